#include "core/ascii.h"
#include "core/json_fields.h"
#include "core/log.h"
#include "core/truncate.h"
#include "drivers/consul/caller.h"
#include "resource/controller.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <map>
#include <set>

namespace orrery::drivers {

namespace {

using namespace std::chrono_literals;
using catalog::CheckView;
using catalog::InstanceView;

constexpr std::string_view service_mark = "orrery-instance"; // key in a service's meta; the value is the name of the Instance
constexpr std::string_view ours_only = "?node-meta=registered-by:orrery"; // nodes that carry our mark
constexpr std::string_view agents_check = "serfHealth";                   // the check that every node with an agent has
constexpr std::string_view resync_key = "consul";                         // the controller key of the comparison with Consul
constexpr auto agent_cache_lifetime = 5min;

bool same_node(std::string_view a, std::string_view b) { return ascii_lower(a) == ascii_lower(b); }

boost::json::object check_json(const CheckView& check, std::string_view service_id) {
    return {{"CheckID", check.check.id},     {"Name", check.check.name},
            {"Notes", check.check.notes},    {"Status", name_of(check.result.status)},
            {"Output", check.result.output}, {"ServiceID", service_id}};
}

boost::json::object maintenance_json(std::string id, std::string_view name, std::string_view reason, std::string_view service_id) {
    return {{"CheckID", std::move(id)}, {"Name", name}, {"Notes", reason}, {"Status", "critical"}, {"ServiceID", service_id}};
}

/// The checks of the instance and of its node, which count for every instance on the node.
boost::json::array checks_json(const InstanceView& view) {
    boost::json::array out;
    for (const auto& check : view.checks) out.push_back(check_json(check, view.id));
    if (view.maintenance)
        out.push_back(
            maintenance_json("_service_maintenance:" + view.id, "Service Maintenance Mode", view.maintenance_reason, view.id));
    if (!view.on) return out;
    for (const auto& check : view.on->checks)
        if (check.check.id != agents_check) out.push_back(check_json(check, "")); // it would claim that an agent runs on the node
    if (view.on->maintenance)
        out.push_back(maintenance_json("_node_maintenance", "Node Maintenance Mode", view.on->maintenance_reason, ""));
    return out;
}

boost::json::object registration_json(const InstanceView& view, boost::json::array checks) {
    boost::json::object meta;
    for (const auto& [name, value] : view.meta) meta[name] = value;
    meta[service_mark] = view.resource;
    boost::json::object service{
        {"ID", view.id},
        {"Service", view.service},
        {"Tags", boost::json::array(view.tags.begin(), view.tags.end())},
        {"Address", view.own_address},
        {"Port", view.port},
        {"Meta", std::move(meta)},
        {"Weights", boost::json::object{{"Passing", view.weight_passing}, {"Warning", view.weight_warning}}}};
    return {{"Node", view.node},
            {"Address", view.on && !view.on->address.empty() ? view.on->address : view.address},
            {"NodeMeta", boost::json::object{{"external-node", "true"}, {"external-probe", "false"}, {"registered-by", "orrery"}}},
            {"Service", std::move(service)},
            {"Checks", std::move(checks)}};
}

} // namespace

struct ConsulMirror::State {
    State(store::Store& store, net::HttpClient& client, const catalog::Catalog& catalog_, store::Leadership& leadership,
          Clock& clock_, ConsulOptions options)
        : caller{client, std::move(options)},
          catalog(catalog_),
          clock(clock_),
          controller(
              store, leadership, clock_, {"instances/", "nodes/", "catalognodes/", "services/"},
              [this](Context ctx, std::string key, store::Fence) { return sync(std::move(ctx), std::move(key)); },
              {.first_backoff = caller.options.first_backoff, .max_backoff = caller.options.max_backoff, .max_concurrent = 8}) {
        while (caller.options.url.ends_with('/')) caller.options.url.pop_back();
    }

    // --- Requests -----------------------------------------------------------------------------------------------------

    /// Returns `denied` or `invalid`, with Consul's message, where Consul refuses this request; `unavailable` where no request can
    /// succeed.
    Task<Unit> put(Context ctx, std::string path, const boost::json::object& body) {
        CO_TRY(const auto answer, co_await caller.call(ctx.with_timeout(10s), "PUT", std::move(path), to_json_text(body)));
        if (answer.status == 200) co_return Unit{};
        co_return Error{answer.status == 403  ? Code::denied
                        : answer.status < 500 ? Code::invalid
                                              : Code::unavailable,
                        fmt::format("Consul refused a registration with {}: {}", answer.status, truncate(answer.body, 200)),
                        answer.status == 403 ? "give the token write access to nodes and services" : ""};
    }
    Task<Unit> remove(Context ctx, std::string_view node, std::string_view id_field, std::string_view id) {
        boost::json::object body{{"Node", node}};
        if (!id_field.empty()) body[id_field] = id;
        co_return co_await put(std::move(ctx), "/v1/catalog/deregister", body);
    }
    Task<boost::json::value> get(Context ctx, std::string path) {
        CO_TRY(const auto answer, co_await caller.call(ctx.with_timeout(20s), "GET", std::move(path)));
        CO_TRY(std::ignore, check_evidence(answer, caller.options));
        auto value = parse_json(answer.body);
        if (!value.ok()) co_return Error{Code::unavailable, "the answer of Consul is not JSON"};
        co_return std::move(*value);
    }

    // --- One key ------------------------------------------------------------------------------------------------------

    /// While Consul is unavailable, changed keys are only recorded; the next successful resync writes them.
    Task<Unit> sync(Context ctx, std::string key) {
        if (key == resync_key) co_return co_await resync(std::move(ctx));
        if (key.starts_with("services/")) {
            for (const auto& instance : catalog.instances(key.substr(9))) controller.enqueue("instances/" + instance->resource);
            co_return Unit{};
        }
        const auto resource = key.substr(key.find('/') + 1);
        if (!key.starts_with("instances/")) { // the node's instances may have another address or state now
            auto& name = node_names[key];
            const auto node = key.starts_with("nodes/") ? catalog.node(resource) : catalog.find_node_resource(resource);
            if (node) name = node->name;
            for (const auto& instance : catalog.instances_on(name)) controller.enqueue("instances/" + instance->resource);
            if (!node) node_names.erase(key);
            co_return Unit{};
        }
        if (unavailable) {
            deferred.insert(key);
            co_return Unit{};
        }
        auto done = co_await sync_instance(ctx, resource);
        if (done.ok() || (done.error().code != Code::unavailable && done.error().code != Code::timeout)) co_return done;
        deferred.insert(key);
        if (!unavailable) log::warn(ctx, "Consul unavailable, registrations deferred: error=\"{}\"", done.error().text());
        unavailable = true;
        controller.enqueue(std::string(resync_key));
        co_return Unit{};
    }

    Task<Unit> sync_instance(Context ctx, std::string resource) {
        const auto view = catalog.find_resource(resource);
        if (const auto was = written.find(resource);
            was != written.end() && (!view || !same_node(was->second.node, view->node) || was->second.id != view->id)) {
            CO_TRY(std::ignore, co_await remove(ctx, was->second.node, "ServiceID", was->second.id));
            written.erase(resource);
        }
        if (!view || (view->address.empty() && !view->on)) co_return Unit{}; // deleted, or without a known address
        auto checks = checks_json(*view);
        std::set<std::string> here; // in Consul the ids of checks are unique for each node
        for (const auto& check : checks) here.emplace(std::string_view(check.at("CheckID").as_string()));
        std::set<std::string> obsolete;
        const auto was = written.find(resource);
        const auto known = agents.find(ascii_lower(view->node));
        if (was == written.end() || known == agents.end() || clock.steady() - known->second.second > agent_cache_lifetime) {
            CO_TRY(const auto health, co_await get(ctx, "/v1/health/node/" + net::percent_encode(view->node)));
            bool agent = false;
            if (health.is_array())
                for (const auto& check : health.get_array()) {
                    if (!check.is_object()) continue;
                    const auto id = text_at(check.get_object(), "CheckID");
                    agent = agent || id == agents_check;
                    if (text_at(check.get_object(), "ServiceID") == view->id && !here.contains(id)) obsolete.insert(id);
                }
            if (agents.size() > 100'000) agents.clear();
            agents[ascii_lower(view->node)] = {agent, clock.steady()};
        }
        // An agent manages the services of its node, and would remove services that it does not know.
        if (agents.at(ascii_lower(view->node)).first) {
            log::debug(ctx, "not registered in Consul, the node has an agent: instance={} node={}", view->id, view->node);
            co_return Unit{};
        }
        if (was != written.end())
            for (const auto& id : was->second.checks)
                if (!here.contains(id)) obsolete.insert(id);
        CO_TRY(std::ignore, co_await put(ctx, "/v1/catalog/register", registration_json(*view, std::move(checks))));
        written[resource] = {view->node, view->id, std::move(here)};
        for (const auto& id : obsolete) {
            CO_TRY(std::ignore, co_await remove(ctx, view->node, "CheckID", id));
        }
        co_return Unit{};
    }

    // --- Consul as a whole --------------------------------------------------------------------------------------------

    /// Removes registrations that carry our mark and are obsolete, writes those again that Consul unavailable (it was restored, or
    /// started empty), and enqueues the keys that were deferred while Consul was unavailable.
    Task<Unit> resync(Context ctx) {
        CO_TRY(const auto services, co_await get(ctx, fmt::format("/v1/catalog/services{}", ours_only)));
        if (!services.is_object()) co_return Error{Code::unavailable, "the answer of Consul is not a list of services"};
        std::set<std::string> there; // resources
        for (const auto& [name, tags] : services.get_object()) {
            CO_TRY(const auto instances, co_await get(ctx, fmt::format("/v1/catalog/service/{}{}",
                                                                       net::percent_encode(std::string_view(name)), ours_only)));
            if (!instances.is_array()) continue;
            for (const auto& one : instances.get_array()) {
                if (!one.is_object()) continue;
                const auto& instance = one.get_object();
                const auto resource = text_at(object_at(instance, "ServiceMeta"), service_mark);
                if (resource.empty()) continue; // registered by another client, on a node of ours
                const auto node = text_at(instance, "Node"), id = text_at(instance, "ServiceID");
                const auto view = catalog.find_resource(resource);
                if (view && same_node(view->node, node) && view->id == id) {
                    there.insert(resource);
                    continue;
                }
                log::info(ctx, "removing obsolete registration from Consul: instance={} node={}", id, node);
                CO_TRY(std::ignore, co_await remove(ctx, node, "ServiceID", id));
            }
        }
        CO_TRY(std::ignore, co_await remove_empty_nodes(ctx));
        if (unavailable) log::info(ctx, "Consul available again: deferred={}", deferred.size());
        unavailable = false;
        for (auto& key : std::exchange(deferred, {})) controller.enqueue(key);
        std::vector<std::string> absent;
        for (const auto& [resource, registration] : written)
            if (!there.contains(resource)) absent.push_back(resource);
        for (const auto& resource : absent) {
            written.erase(resource); // so that the next sync reads the node's state again
            controller.enqueue("instances/" + resource);
        }
        co_return Unit{};
    }

    /// Removes nodes that we registered and that have no services any more.
    Task<Unit> remove_empty_nodes(Context ctx) {
        CO_TRY(const auto nodes, co_await get(ctx, fmt::format("/v1/catalog/nodes{}", ours_only)));
        if (!nodes.is_array()) co_return Error{Code::unavailable, "the answer of Consul is not a list of nodes"};
        for (const auto& node : nodes.get_array()) {
            if (!node.is_object()) continue;
            const auto name = text_at(node.get_object(), "Node");
            if (name.empty() || !catalog.instances_on(name).empty()) continue;
            CO_TRY(const auto now, co_await get(ctx, "/v1/catalog/node/" + net::percent_encode(name)));
            if (!now.is_object() || !object_at(now.get_object(), "Services").empty()) continue;
            CO_TRY(std::ignore, co_await remove(ctx, name, "", ""));
        }
        co_return Unit{};
    }

    /// The first intervals are short, because the controller does nothing until this server is the leader.
    asio::awaitable<void> resync_periodically() {
        for (auto wait = caller.options.first_backoff;; wait = std::min(wait * 2, caller.options.resync_interval)) {
            controller.enqueue(std::string(resync_key));
            const auto slept = co_await clock.sleep(wait);
            if (!slept.ok()) co_return;
        }
    }

    struct Registration {
        std::string node, id;
        std::set<std::string> checks;
    };

    Caller caller;
    const catalog::Catalog& catalog;
    Clock& clock;
    bool unavailable = false;
    std::set<std::string> deferred;                            ///< keys that changed while Consul was unavailable
    std::map<std::string, std::pair<bool, SteadyTime>> agents; ///< by lower-case node: whether an agent runs there, as of when
    std::map<std::string, std::string> node_names;             ///< by key, to find the instances of a node that is deleted
    std::map<std::string, Registration> written;               ///< by resource
    resource::Controller controller;
};

ConsulMirror::ConsulMirror(store::Store& store, net::HttpClient& client, const catalog::Catalog& catalog,
                           store::Leadership& leadership, Clock& clock, ConsulOptions options)
    : state_(std::make_shared<State>(store, client, catalog, leadership, clock, std::move(options))) {}
ConsulMirror::~ConsulMirror() = default;

asio::awaitable<void> ConsulMirror::run(Context ctx) {
    const auto state = state_;
    TaskGroup group(co_await asio::this_coro::executor);
    group.spawn(state->resync_periodically());
    co_await state->controller.run(ctx);
    co_await asio::this_coro::throw_if_cancelled(false);
    co_await group.stop();
}

} // namespace orrery::drivers
