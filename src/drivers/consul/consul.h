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
    std::string token;                                ///< empty: none
    std::string datacenter;                           ///< empty: that of the agent asked
    Duration wait = std::chrono::minutes(1);          ///< of a blocking query
    Duration grace = std::chrono::seconds(10);        ///< an answer that is later than that by so much will not come
    Duration forget_after = std::chrono::minutes(15); ///< a service nobody asks about is no longer followed
    Duration first_backoff = std::chrono::seconds(1); ///< after a failure; doubles
    Duration longest_backoff = std::chrono::seconds(30);
    Duration look_at_all_every = std::chrono::minutes(1); ///< what the mirror wrote is compared with what is there
};

/// A real Consul as the catalog, read by blocking queries. A service is followed from the first question about it. Whenever Consul
/// does not answer, has no leader, or leaves something out because the token may not see it, there is no evidence, and `members` is
/// `unavailable`; it is never taken for an empty service. Loop thread only.
class ConsulMembership final : public catalog::Membership {
public:
    /// `invalid` for a URL that is none.
    static Result<std::unique_ptr<ConsulMembership>> make(asio::any_io_executor executor, net::HttpClient& client, Clock& clock,
                                                          ConsulOptions options);
    ~ConsulMembership() override;

    Result<catalog::Members> members(std::string_view service, std::string_view tag) const override;
    std::shared_ptr<void> subscribe(std::function<void(const std::string& service)> changed) override;
    std::shared_ptr<void> follow(std::string_view service) override;

    /// Follows until it is cancelled.
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    explicit ConsulMembership(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
};

/// Writes our instances into a real Consul through /v1/catalog/register, as it is meant for hosts without an agent: the node, the
/// service, and what our checks say of both. Hosts that have an agent are left to it. What is no longer ours is taken out, also
/// after a restart: what we wrote carries a mark. What Consul has lost is written again. An answer that is no evidence takes
/// nothing out. Only while this server leads.
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

/// One answer of /v1/health/service/:name as members; `invalid` for what is none. Public for the fuzzer.
Result<catalog::Members> read_health(std::string_view body);

} // namespace orrery::drivers
