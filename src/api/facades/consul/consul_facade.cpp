#include "api/facades/consul/consul_facade.h"

#include "api/facades/consul/facade_state.h"
#include "core/json_fields.h"
#include "core/log.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

namespace orrery::api::consul {

ConsulFacade::State::State(asio::any_io_executor executor_, resource::Resources& resources_, catalog::Catalog& catalog_,
                           catalog::Checker& checker_, identity::Identity& identity_, store::Leadership& leadership_, Clock& clock_,
                           ConsulFacadeOptions options_)
    : executor(executor_),
      resources(resources_),
      catalog(catalog_),
      checker(checker_),
      identity(identity_),
      leadership(leadership_),
      clock(clock_),
      options(std::move(options_)),
      kv(executor_, resources_.store(), clock_),
      dns(std::make_shared<DnsAnswers>(DnsAnswers::Options{.domain = options.domain,
                                                           .datacenter = options.datacenter,
                                                           .name_server = options.node,
                                                           .only_passing = options.dns_only_passing,
                                                           .truncate = options.dns_truncate,
                                                           .udp_answers = options.dns_udp_answers,
                                                           .node_ttl = options.dns_node_ttl,
                                                           .service_ttl = options.dns_service_ttl})) {
    add_routes();
    for (const auto* prefix : {"nodes/", "catalognodes/", "services/", "instances/"})
        observers.push_back(resources.store().observe(prefix, [this](const store::Event&) { kv.changed().notify_all(); }));
    dns->follow(executor, catalog, resources.store());
}

ConsulFacade::ConsulFacade(asio::any_io_executor executor, resource::Resources& resources, catalog::Catalog& catalog,
                           catalog::Checker& checker, identity::Identity& identity, store::Leadership& leadership, Clock& clock,
                           ConsulFacadeOptions options)
    : state_(std::make_shared<State>(std::move(executor), resources, catalog, checker, identity, leadership, clock,
                                     std::move(options))) {}

ConsulFacade::~ConsulFacade() {
    state_->dns->stop_following();
    state_->observers.clear();
}

net::Handler ConsulFacade::handler() {
    return [state = state_.get()](Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
        return state->serve(std::move(ctx), request, body, out);
    };
}

std::function<net::Response(const Context&, const Error&)> ConsulFacade::on_error() {
    return [](const Context&, const Error& error) {
        return net::Response{
            error.code == Code::too_large ? 413 : 500, {{"Content-Type", "text/plain; charset=utf-8"}}, error.message};
    };
}

std::shared_ptr<const dns::Responder> ConsulFacade::dns() { return state_->dns; }

namespace {

/// Sessions whose node does not exist, or a check of which is missing or critical.
std::vector<std::string> lost_sessions(const KeyValues& kv, const catalog::Catalog& catalog) {
    std::vector<std::string> out;
    for (const auto* session : kv.sessions()) {
        const auto node = catalog.node(session->node);
        std::vector<std::string> wanted = session->node_checks;
        for (const auto& [id, space] : session->service_checks) wanted.push_back(id);
        bool lost = !node;
        for (const auto& id : wanted) {
            const CheckView* found = nullptr;
            if (node)
                for (const auto& check : node->checks)
                    if (check.check.id == id) found = &check;
            const auto here = catalog.instances_on(session->node);
            for (const auto& instance : here)
                for (const auto& check : instance->checks)
                    if (check.check.id == id) found = &check;
            lost = lost || found == nullptr || found->result.status == catalog::CheckStatus::critical;
        }
        if (lost) out.push_back(session->id);
    }
    return out;
}

json::object node_spec(const ConsulFacadeOptions& options) {
    const std::string family = options.address.find(':') != std::string::npos ? "ipv6" : "ipv4";
    return {{"id", uuid_of(options.node)},
            {"address", options.address},
            {"meta", json::object{{"consul-network-segment", ""}, {"consul-version", "1.16.3"}}},
            {"tagged_addresses", json::object{{"lan", options.address},
                                              {"lan_" + family, options.address},
                                              {"wan", options.address},
                                              {"wan_" + family, options.address}}}};
}

/// Adds or replaces the check serfHealth, which Consul maintains for each agent.
void put_serf_health(json::object& spec) {
    json::array checks;
    if (const auto* present = spec.if_contains("checks"); present != nullptr && present->is_array())
        for (const auto& check : present->get_array())
            if (text_at(check.as_object(), "id") != "serfHealth") checks.push_back(check);
    catalog::Check own;
    own.id = "serfHealth";
    own.name = "Serf Health Status";
    own.initial = catalog::CheckStatus::passing;
    checks.push_back(own.to_json());
    spec["checks"] = std::move(checks);
}

} // namespace

Task<Unit> ConsulFacade::State::register_own_node(Context ctx) {
    const auto spec = node_spec(options);
    CO_TRY(std::ignore, co_await change_node({ctx, {}}, options.node, [&spec](json::object& now) {
               for (const auto& [key, value] : spec) now[key] = value;
               put_serf_health(now);
           }));
    const auto node = catalog.node(options.node);
    if (!node) co_return Unit{};
    co_return co_await checker.report(ctx, "catalognodes/" + node->resource, "serfHealth", catalog::CheckStatus::passing,
                                      "Agent alive and reachable");
}

Task<Unit> ConsulFacade::State::end_lost_sessions(Context ctx) {
    const auto fence = leadership.fence();
    if (!fence) co_return Unit{};
    for (const auto& id : lost_sessions(kv, catalog)) {
        log::info(ctx, "Consul session ended: its node or one of its checks is missing or critical; session={}", id);
        std::ignore = co_await kv.destroy_session(ctx, {}, id, "the node or a check of the session is missing or critical");
    }
    co_return co_await kv.free_orphans(ctx, &*fence);
}

asio::awaitable<void> ConsulFacade::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    auto& state = *state_;
    for (;;) {
        const auto registered = co_await state.register_own_node(ctx);
        if (registered.ok()) break;
        log::warn(ctx, "registration of this server in the catalog failed; it is retried: error={}", registered.error().text());
        if (const auto slept = co_await state.clock.sleep(std::chrono::seconds(5)); !slept.ok()) co_return;
    }
    for (;;) {
        const auto released = co_await state.end_lost_sessions(ctx);
        if (!released.ok()) log::warn(ctx, "release of locks of ended Consul sessions failed: error={}", released.error().text());
        // The timeout covers changes from before this server became the leader.
        const auto woken = co_await state.kv.changed().wait(ctx.with_timeout(std::chrono::seconds(30)));
        if (!woken.ok() && woken.error().code == Code::cancelled) co_return;
    }
}

} // namespace orrery::api::consul
