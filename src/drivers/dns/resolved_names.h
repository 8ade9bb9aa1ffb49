#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "drivers/dns/exchange.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// One record of a DNS name.
struct ResolvedRecord {
    std::string address; ///< of A and AAAA records; the target of SRV records
    std::uint16_t port = 0;
    bool operator==(const ResolvedRecord&) const = default;
};

/// The name servers in the text of a resolv.conf, with port 53.
std::vector<DnsServer> servers_of_resolv_conf(std::string_view text);

/// Resolves DNS names periodically, with recursion, while they have followers, and reports changed answers. Loop thread only.
class ResolvedNames {
public:
    struct Options {
        std::vector<DnsServer> servers; ///< queried one after another until one answers
        Duration interval = std::chrono::seconds(2);
        std::size_t max_names = 1000; ///< further names are not resolved
    };
    /// Sends one query; tests supply their own function.
    using Query = std::function<Task<dns::Message>(Context ctx, DnsServer server, dns::Name name, std::uint16_t type)>;
    ResolvedNames(asio::any_io_executor executor, Clock& clock, Options options, Query query = {});
    ~ResolvedNames();

    /// Resolves until it is cancelled.
    asio::awaitable<void> run(Context ctx);

    /// The records of a type ("A", "AAAA", "SRV"), sorted. An empty list is an answer (NXDOMAIN, no such records); `unavailable`
    /// where no server has answered, or the name has no follower.
    Result<std::vector<ResolvedRecord>> find(std::string_view name, std::string_view type) const;
    /// Resolves the name while the handle lives.
    std::shared_ptr<void> follow(std::string_view name, std::string_view type);
    /// Calls `changed` with a name when its answer or its availability changes, until the handle is destroyed.
    std::shared_ptr<void> subscribe(std::function<void(const std::string& name)> changed);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::drivers
