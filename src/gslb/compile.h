#pragma once

#include "dns/choice.h"
#include "gslb/clients.h"
#include "gslb/decide.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

/// From decisions to what a DNS server can draw from, and what will come of the draws.
namespace orrery::gslb {

/// Equal answers are one choice, and only clients that get something else have a prefix.
dns::Tailored compile(const Decision& decision, const Clients& clients);
dns::Choice compile(const Answer& answer);

/// What one client gets with one draw: what the server's answer would hold.
struct Selected {
    const Answer* answer = nullptr;
    std::vector<const Serving*> members; ///< empty: an alias, or nothing
};
/// No client: one of no class. The decision must outlive what is returned.
Selected select(const Decision& decision, const Clients& clients, const std::optional<boost::asio::ip::address>& client,
                const dns::Draw& draw);

/// How the clients of a class will be divided, each taking any of the addresses it is given. Shares sum to 1, or there are none.
struct Shares {
    std::string clients; ///< the class
    std::map<std::string, double> by_member, by_pool, by_site;
    json::object to_json() const;
};
/// Exact where a formula is (all, round-robin, weighted, and sticky with one answer), else from many draws, always the same ones.
Shares predict(const Answer& answer);

} // namespace orrery::gslb
