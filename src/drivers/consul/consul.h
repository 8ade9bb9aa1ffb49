#pragma once

#include "catalog/catalog.h"
#include "catalog/membership.h"
#include "core/task.h"
#include "net/http_client.h"
#include "store/leadership.h"

#include <memory>
#include <string>

namespace orrery::drivers {

struct ConsulOptions {
    std::string url;                                  ///< "http://127.0.0.1:8500"
    bool allow_plaintext = false;                     ///< allow http:// beyond loopback
    std::string token;                                ///< may be empty
    std::string datacenter;                           ///< empty: the datacenter of the agent
    Duration wait = std::chrono::minutes(1);          ///< of a blocking query
    Duration grace = std::chrono::seconds(10);        ///< time after `wait` at which a blocking query counts as failed
    Duration forget_after = std::chrono::minutes(15); ///< a service without requests for this long is no longer followed
    Duration first_backoff = std::chrono::seconds(1); ///< after a failure; doubles with each failure
    Duration max_backoff = std::chrono::seconds(30);
    Duration resync_interval = std::chrono::minutes(1); ///< how often the mirror compares its registrations with Consul's
};

/// Membership from a real Consul, read with blocking queries. A service is followed from the first request for it. Where Consul
/// does not answer, has no leader, or hides entries from the token, there is no evidence: `members` is `unavailable`, and never an
/// empty service. Loop thread only.
class ConsulMembership final : public catalog::Membership {
public:
    /// Returns `invalid` where the URL is not valid.
    static Result<std::unique_ptr<ConsulMembership>> make(asio::any_io_executor executor, net::HttpClient& client, Clock& clock,
                                                          ConsulOptions options);
    ~ConsulMembership() override;

    Result<catalog::Members> members(std::string_view service, std::string_view tag) const override;
    std::shared_ptr<void> subscribe(std::function<void(const std::string& service)> changed) override;
    std::shared_ptr<void> follow(std::string_view service) override;

    /// Follows services until it is cancelled.
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    explicit ConsulMembership(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
};

/// Registers our instances in a real Consul through /v1/catalog/register, Consul's API for nodes without an agent: node, service
/// and check results. Nodes with an agent are left to their agent. Registrations carry a mark, so that obsolete ones are found and
/// removed, also after a restart. Registrations that Consul lost are written again. An answer that is no evidence removes nothing.
/// Works only while this server is the leader.
class ConsulMirror {
public:
    ConsulMirror(store::Store& store, net::HttpClient& client, const catalog::Catalog& catalog, store::Leadership& leadership,
                 Clock& clock, ConsulOptions options);
    ~ConsulMirror();
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    std::shared_ptr<State> state_;
};

/// Reads an answer of /v1/health/service/:name. Returns `invalid` where the body is not such an answer. An instance whose node name
/// or address is not valid is not a member; `log` (may be null) records it. Public for the fuzzer.
Result<catalog::Members> read_health(std::string_view body, catalog::InvalidMemberLog* log = nullptr);

} // namespace orrery::drivers
