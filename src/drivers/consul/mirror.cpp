#include "catalog/json_read.h"
#include "core/log.h"
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
using catalog::object_at;
using catalog::text_at;

constexpr std::string_view service_mark = "orrery-instance";              // in a service's meta: the Instance it is
constexpr std::string_view ours_only = "?node-meta=registered-by:orrery"; // in a node's
constexpr std::string_view agents_check = "serfHealth";                   // a node has it when an agent runs there
constexpr std::string_view all_of_it = "consul";                          // the key under which Consul as a whole is looked at
constexpr auto agents_known_for = 5min;

bool same_node(std::string_view a, std::string_view b) { return catalog::lowered(a) == catalog::lowered(b); }

boost::json::object check_json(const CheckView& check, std::string_view service_id) {
    return {{"CheckID", check.check.id},     {"Name", check.check.name},
            {"Notes", check.check.notes},    {"Status", name_of(check.result.status)},
            {"Output", check.result.output}, {"ServiceID", service_id}};
}

boost::json::object maintenance_json(std::string id, std::string_view name, std::string_view reason, std::string_view service_id) {
    return {{"CheckID", std::move(id)}, {"Name", name}, {"Notes", reason}, {"Status", "critical"}, {"ServiceID", service_id}};
}

/// Its own checks, and those of its machine, which count for every instance on it.
boost::json::array checks_json(const InstanceView& view) {
    boost::json::array out;
    for (const auto& check : view.checks) out.push_back(check_json(check, view.id));
    if (view.maintenance)
        out.push_back(
            maintenance_json("_service_maintenance:" + view.id, "Service Maintenance Mode", view.maintenance_reason, view.id));
    if (!view.on) return out;
    for (const auto& check : view.on->checks)
        if (check.check.id != agents_check) out.push_back(check_json(check, "")); // it would say that an agent runs there
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
              [this](Context ctx, std::string key, store::Fence) { return look_at(std::move(ctx), std::move(key)); },
              {.first_backoff = caller.options.first_backoff, .longest_backoff = caller.options.longest_backoff, .at_once = 8}) {
        while (caller.options.url.ends_with('/')) caller.options.url.pop_back();
    }

    // --- Speaking -----------------------------------------------------------------------------------------------------

    /// `denied` or `invalid` with Consul's own words where it refuses just this, `unavailable` where nothing can be written.
    Task<Unit> put(Context ctx, std::string path, const boost::json::object& body) {
        CO_TRY(const auto answer, co_await caller.call(ctx.with_timeout(10s), "PUT", std::move(path), to_json_text(body)));
        if (answer.status == 200) co_return Unit{};
        co_return Error{answer.status == 403  ? Code::denied
                        : answer.status < 500 ? Code::invalid
                                              : Code::unavailable,
                        fmt::format("Consul refused a registration with {}: {}", answer.status, answer.body.substr(0, 200)),
                        answer.status == 403 ? "give the token the right to write nodes and services" : ""};
    }
    Task<Unit> remove(Context ctx, std::string_view node, std::string_view what, std::string_view id) {
        boost::json::object body{{"Node", node}};
        if (!what.empty()) body[what] = id;
        co_return co_await put(std::move(ctx), "/v1/catalog/deregister", body);
    }
    Task<boost::json::value> get(Context ctx, std::string path) {
        CO_TRY(const auto answer, co_await caller.call(ctx.with_timeout(20s), "GET", std::move(path)));
        CO_TRY(std::ignore, as_evidence(answer, caller.options));
        auto value = parse_json(answer.body);
        if (!value.ok()) co_return Error{Code::unavailable, "Consul's answer is no JSON"};
        co_return std::move(*value);
    }

    // --- One key ------------------------------------------------------------------------------------------------------

    /// While Consul cannot be spoken to nobody tries key by key: what is missed meanwhile is looked at when it is back.
    Task<Unit> look_at(Context ctx, std::string key) {
        if (key == all_of_it) co_return co_await look_at_all(std::move(ctx));
        if (key.starts_with("services/")) {
            for (const auto& instance : catalog.instances(key.substr(9))) controller.poke("instances/" + instance->resource);
            co_return Unit{};
        }
        const auto resource = key.substr(key.find('/') + 1);
        if (!key.starts_with("instances/")) { // its instances may be elsewhere now, or stand otherwise
            auto& name = node_names[key];
            const auto node = key.starts_with("nodes/") ? catalog.node(resource) : catalog.find_node_resource(resource);
            if (node) name = node->name;
            for (const auto& instance : catalog.instances_on(name)) controller.poke("instances/" + instance->resource);
            if (!node) node_names.erase(key);
            co_return Unit{};
        }
        if (lost) {
            missed.insert(key);
            co_return Unit{};
        }
        auto done = co_await look_at_instance(ctx, resource);
        if (done.ok() || (done.error().code != Code::unavailable && done.error().code != Code::timeout)) co_return done;
        missed.insert(key);
        if (!lost) log::warn(ctx, "nothing is written to Consul for now: {}", done.error().text());
        lost = true;
        controller.poke(std::string(all_of_it));
        co_return Unit{};
    }

    Task<Unit> look_at_instance(Context ctx, std::string resource) {
        const auto view = catalog.find_resource(resource);
        if (const auto was = written.find(resource);
            was != written.end() && (!view || !same_node(was->second.node, view->node) || was->second.id != view->id)) {
            CO_TRY(std::ignore, co_await remove(ctx, was->second.node, "ServiceID", was->second.id));
            written.erase(resource);
        }
        if (!view || (view->address.empty() && !view->on)) co_return Unit{}; // gone, or nobody knows where it is
        auto checks = checks_json(*view);
        std::set<std::string> here; // on Consul's side ids of checks are a node's
        for (const auto& check : checks) here.emplace(std::string_view(check.at("CheckID").as_string()));
        std::set<std::string> gone;
        const auto was = written.find(resource);
        const auto known = agents.find(catalog::lowered(view->node));
        if (was == written.end() || known == agents.end() || clock.steady() - known->second.second > agents_known_for) {
            CO_TRY(const auto standing, co_await get(ctx, "/v1/health/node/" + net::percent_encode(view->node)));
            bool agent = false;
            if (standing.is_array())
                for (const auto& check : standing.get_array()) {
                    if (!check.is_object()) continue;
                    const auto id = text_at(check.get_object(), "CheckID");
                    agent = agent || id == agents_check;
                    if (text_at(check.get_object(), "ServiceID") == view->id && !here.contains(id)) gone.insert(id);
                }
            if (agents.size() > 100'000) agents.clear();
            agents[catalog::lowered(view->node)] = {agent, clock.steady()};
        }
        // An agent keeps its node's services itself, and would take out what it does not know.
        if (agents.at(catalog::lowered(view->node)).first) {
            log::debug(ctx, "{} on {} is not written to Consul: an agent runs there", view->id, view->node);
            co_return Unit{};
        }
        if (was != written.end())
            for (const auto& id : was->second.checks)
                if (!here.contains(id)) gone.insert(id);
        CO_TRY(std::ignore, co_await put(ctx, "/v1/catalog/register", registration_json(*view, std::move(checks))));
        written[resource] = {view->node, view->id, std::move(here)};
        for (const auto& id : gone) {
            CO_TRY(std::ignore, co_await remove(ctx, view->node, "CheckID", id));
        }
        co_return Unit{};
    }

    // --- Consul as a whole --------------------------------------------------------------------------------------------

    /// Takes out what carries our mark and is not ours any more, writes again what is ours and not there (it was restored, or came
    /// back empty), and catches up with what was missed while nobody could speak to it.
    Task<Unit> look_at_all(Context ctx) {
        CO_TRY(const auto services, co_await get(ctx, fmt::format("/v1/catalog/services{}", ours_only)));
        if (!services.is_object()) co_return Error{Code::unavailable, "Consul's answer is not a list of services"};
        std::set<std::string> there; // resources
        for (const auto& [name, tags] : services.get_object()) {
            CO_TRY(const auto instances, co_await get(ctx, fmt::format("/v1/catalog/service/{}{}",
                                                                       net::percent_encode(std::string_view(name)), ours_only)));
            if (!instances.is_array()) continue;
            for (const auto& one : instances.get_array()) {
                if (!one.is_object()) continue;
                const auto& instance = one.get_object();
                const auto resource = text_at(object_at(instance, "ServiceMeta"), service_mark);
                if (resource.empty()) continue; // another's, on a node of ours
                const auto node = text_at(instance, "Node"), id = text_at(instance, "ServiceID");
                const auto view = catalog.find_resource(resource);
                if (view && same_node(view->node, node) && view->id == id) {
                    there.insert(resource);
                    continue;
                }
                log::info(ctx, "{} on {} is taken out of Consul: it is not ours any more", id, node);
                CO_TRY(std::ignore, co_await remove(ctx, node, "ServiceID", id));
            }
        }
        CO_TRY(std::ignore, co_await remove_empty_nodes(ctx));
        if (lost) log::info(ctx, "Consul answers again: {} instances are caught up with", missed.size());
        lost = false;
        for (auto& key : std::exchange(missed, {})) controller.poke(key);
        std::vector<std::string> absent;
        for (const auto& [resource, place] : written)
            if (!there.contains(resource)) absent.push_back(resource);
        for (const auto& resource : absent) {
            written.erase(resource); // so that all that is known of it is asked for anew
            controller.poke("instances/" + resource);
        }
        co_return Unit{};
    }

    /// Nodes that we registered and on which nobody has anything any more.
    Task<Unit> remove_empty_nodes(Context ctx) {
        CO_TRY(const auto nodes, co_await get(ctx, fmt::format("/v1/catalog/nodes{}", ours_only)));
        if (!nodes.is_array()) co_return Error{Code::unavailable, "Consul's answer is not a list of nodes"};
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

    /// At first soon again: nothing happens while another server leads, or before anybody does.
    asio::awaitable<void> look_at_all_now_and_then() {
        for (auto wait = caller.options.first_backoff;; wait = std::min(wait * 2, caller.options.look_at_all_every)) {
            controller.poke(std::string(all_of_it));
            const auto slept = co_await clock.sleep(wait);
            if (!slept.ok()) co_return;
        }
    }

    struct Written {
        std::string node, id;
        std::set<std::string> checks;
    };

    Caller caller;
    const catalog::Catalog& catalog;
    Clock& clock;
    bool lost = false;
    std::set<std::string> missed;                              ///< keys that changed while it was
    std::map<std::string, std::pair<bool, SteadyTime>> agents; ///< by lower-case node: whether one runs there, as of when
    std::map<std::string, std::string> node_names;             ///< by key: of nodes that were there, for when they go
    std::map<std::string, Written> written;                    ///< by resource
    resource::Controller controller;
};

ConsulMirror::ConsulMirror(store::Store& store, net::HttpClient& client, const catalog::Catalog& catalog,
                           store::Leadership& leadership, Clock& clock, ConsulOptions options)
    : state_(std::make_shared<State>(store, client, catalog, leadership, clock, std::move(options))) {}
ConsulMirror::~ConsulMirror() = default;

asio::awaitable<void> ConsulMirror::run(Context ctx) {
    const auto state = state_;
    TaskGroup group(co_await asio::this_coro::executor);
    group.spawn(state->look_at_all_now_and_then());
    co_await state->controller.run(ctx);
    co_await asio::this_coro::throw_if_cancelled(false);
    co_await group.stop();
}

} // namespace orrery::drivers
