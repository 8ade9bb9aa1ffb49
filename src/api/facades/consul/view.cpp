#include "api/facades/consul/view.h"

#include "api/facades/consul/state.h"
#include "catalog/json_read.h"
#include "core/log.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

namespace orrery::api::consul {

View::State::State(asio::any_io_executor executor_, resource::Resources& resources_, catalog::Catalog& catalog_,
                   catalog::Checker& checker_, identity::Identity& identity_, store::Leadership& leadership_, Clock& clock_,
                   ViewOptions options_)
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
    add_catalog_routes();
    add_health_routes();
    add_agent_routes();
    add_kv_routes();
    add_session_routes();
    add_status_routes();
    for (const auto* prefix : {"nodes/", "catalognodes/", "services/", "instances/"})
        observers.push_back(resources.store().observe(prefix, [this](const store::Event&) { kv.changed().notify_all(); }));
    dns->follow(executor, catalog, resources.store());
}

View::View(asio::any_io_executor executor, resource::Resources& resources, catalog::Catalog& catalog, catalog::Checker& checker,
           identity::Identity& identity, store::Leadership& leadership, Clock& clock, ViewOptions options)
    : state_(std::make_shared<State>(std::move(executor), resources, catalog, checker, identity, leadership, clock,
                                     std::move(options))) {}

View::~View() {
    state_->dns->stop_following();
    state_->observers.clear();
}

net::Handler View::handler() {
    return [state = state_.get()](Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
        return state->serve(std::move(ctx), request, body, out);
    };
}

std::function<net::Response(const Context&, const Error&)> View::on_error() {
    return [](const Context&, const Error& error) {
        return net::Response{
            error.code == Code::too_large ? 413 : 500, {{"Content-Type", "text/plain; charset=utf-8"}}, error.message};
    };
}

std::shared_ptr<const dns::Responder> View::dns() { return state_->dns; }

namespace {

/// Sessions whose node is gone, or a check of theirs gone or critical.
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

} // namespace

asio::awaitable<void> View::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    auto& state = *state_;
    // This server is a node like others, and its own health is that it answers.
    json::object spec{{"id", uuid_of(state.options.node)},
                      {"address", state.options.address},
                      {"meta", json::object{{"consul-network-segment", ""}, {"consul-version", "1.16.3"}}},
                      {"tagged_addresses", json::object{{"lan", state.options.address},
                                                        {"lan_ipv4", state.options.address},
                                                        {"wan", state.options.address},
                                                        {"wan_ipv4", state.options.address}}}};
    if (state.options.address.find(':') != std::string::npos)
        spec["tagged_addresses"] = json::object{{"lan", state.options.address},
                                                {"lan_ipv6", state.options.address},
                                                {"wan", state.options.address},
                                                {"wan_ipv6", state.options.address}};
    for (;;) {
        auto done = co_await state.change_node({ctx, {}}, state.options.node, [&spec](json::object& now) {
            for (const auto& [key, value] : spec) now[key] = value;
            json::array checks;
            if (const auto* kept = now.if_contains("checks"); kept != nullptr && kept->is_array())
                for (const auto& check : kept->get_array())
                    if (catalog::text_at(check.as_object(), "id") != "serfHealth") checks.push_back(check);
            catalog::Check own;
            own.id = "serfHealth";
            own.name = "Serf Health Status";
            own.initial = catalog::CheckStatus::passing;
            checks.push_back(own.to_json());
            now["checks"] = std::move(checks);
        });
        if (done.ok()) {
            const auto node = state.catalog.node(state.options.node);
            if (node)
                done = co_await state.checker.report(ctx, "catalognodes/" + node->resource, "serfHealth",
                                                     catalog::CheckStatus::passing, "Agent alive and reachable");
        }
        if (done.ok()) break;
        log::warn(ctx, "this server cannot be entered in the catalog: {}", done.error().text());
        if (const auto slept = co_await state.clock.sleep(std::chrono::seconds(5)); !slept.ok()) co_return;
    }
    for (;;) {
        if (const auto fence = state.leadership.fence()) {
            for (const auto& id : lost_sessions(state.kv, state.catalog)) {
                log::info(ctx, "session {} ends: its node or a check of it is gone or critical", id);
                std::ignore = co_await state.kv.destroy_session(ctx, {}, id, "its node or a check of it is gone or critical");
            }
            const auto freed = co_await state.kv.free_orphans(ctx, &*fence);
            if (!freed.ok()) log::warn(ctx, "locks of ended sessions are still held: {}", freed.error().text());
        }
        // Anything may have changed; and once in a while anyway, for what changed before this server led.
        const auto woken = co_await state.kv.changed().wait(ctx.with_timeout(std::chrono::seconds(30)));
        if (!woken.ok() && woken.error().code == Code::cancelled) co_return;
    }
}

} // namespace orrery::api::consul
