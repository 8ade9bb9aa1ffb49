#pragma once

#include "dns/dynamic_name.h"
#include "gslb/clients/client_classes.h"
#include "gslb/decide/decision.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

/// Compiles decisions into the answer sets that the DNS server draws from, and predicts how clients will be distributed.
namespace orrery::gslb {

/// Equal answers share one answer set, and only prefixes whose clients get a different one are kept.
dns::DynamicName compile(const Decision& decision, const ClientClasses& clients);
dns::AnswerSet compile(const Answer& answer);

/// What one client gets for one selection input: the contents of the response.
struct Selected {
    const Answer* answer = nullptr;
    std::vector<const AnswerMember*> members; ///< empty: an alias, or no address
};
/// Without `client`: the default class. The decision must outlive the result.
Selected select(const Decision& decision, const ClientClasses& clients, const std::optional<boost::asio::ip::address>& client,
                const dns::SelectionInput& input);

/// The expected distribution of the clients of one class, if each uses any of the addresses it gets. Shares add up to 1, or there
/// are none.
struct Shares {
    std::string clients; ///< the client class
    std::map<std::string, double> by_member, by_pool, by_site;
    json::object to_json() const;
};
/// Exact for all, round-robin, weighted, and sticky with one answer; otherwise from a fixed set of many draws.
Shares predict(const Answer& answer);

} // namespace orrery::gslb
