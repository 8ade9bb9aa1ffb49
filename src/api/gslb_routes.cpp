#include "api/continue_token.h"
#include "api/problem.h"
#include "api/state.h"
#include "core/text.h"
#include "core/truncate.h"
#include "gslb/observe/health_source.h"
#include "gslb/runtime/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

/// Routes of load balancers and members beyond those of every kind: explanations, impact reports, decisions, failback, reported
/// load and pushed health.
namespace orrery::api {

namespace {

using gslb::Controller;

/// Above the highest load threshold that a Pool accepts.
constexpr double max_load = 1'000'000'000;
/// Default lifetime of a reported load.
constexpr Duration default_load_ttl = std::chrono::minutes(5);

Error gslb_query_error(std::string_view parameter, std::string message) {
    Error error{Code::invalid, "invalid query"};
    error.fields.push_back({fmt::format("?{}", parameter), std::move(message)});
    return error;
}

/// Parses ?client: an address, or a network, of which the first address is used. Resolvers send networks (EDNS Client Subnet).
Result<std::optional<boost::asio::ip::address>> client_in(const Call& call) {
    const auto text = call.query("client");
    if (!text) return std::optional<boost::asio::ip::address>{};
    boost::system::error_code failed;
    const auto address = boost::asio::ip::make_address(text->substr(0, text->find('/')), failed);
    if (failed || (text->find('/') != std::string::npos && !gslb::parse_prefix(*text).ok()))
        return gslb_query_error("client", "must be an address or a network, for example 198.51.100.7 or 198.51.100.0/24");
    return std::optional(address);
}

Result<std::optional<WallTime>> time_in(const Call& call) {
    const auto text = call.query("at");
    if (!text) return std::optional<WallTime>{};
    const auto time = from_rfc3339(*text);
    if (!time.ok()) return gslb_query_error("at", "must be a time such as 2026-11-16T04:42:52Z");
    return std::optional(*time);
}

std::vector<std::string> names_in(const Call& call, std::string_view parameter) {
    std::vector<std::string> out;
    const auto given = call.query(parameter).value_or("");
    std::string_view text = given;
    while (!text.empty()) {
        const auto comma = text.find(',');
        if (const auto name = text.substr(0, comma); !name.empty()) out.emplace_back(name);
        if (comma == std::string_view::npos) break;
        text.remove_prefix(comma + 1);
    }
    return out;
}

/// Finds a load balancer by its resource name or by its domain name.
Result<std::string> load_balancer_in(const Controller& controller, const Call& call) {
    if (controller.engine().spec(call.name()) != nullptr) return call.name();
    if (auto name = controller.engine().lb_of_fqdn(call.name()); !name.empty()) return name;
    return Error{Code::not_found, fmt::format("there is no LoadBalancer {}", truncate(call.name(), 256)),
                 "see: orrery get loadbalancers"};
}

Task<Unit> show_gslb_why(Controller& controller, Call call) {
    CO_TRY(const auto client, client_in(call));
    CO_TRY(const auto at, time_in(call));
    CO_TRY(const auto answer, controller.why(call.name(), client, at));
    co_return co_await send_json(call, 200, answer);
}

Task<Unit> show_what_if(Api::State& state, Controller& controller, Call call) {
    CO_TRY(const auto name, load_balancer_in(controller, call));
    gslb::ProposedChange change;
    const auto& pools = controller.engine().spec(name)->pools;
    for (auto& one : names_in(call, "drain")) {
        const bool pool = std::any_of(pools.begin(), pools.end(), [&](const auto& use) { return use.pool == one; });
        (pool ? change.drained_pools : change.drained_members).insert(std::move(one));
    }
    for (auto& one : names_in(call, "down")) change.down_members.insert(std::move(one));
    if (change.drained_pools.empty() && change.drained_members.empty() && change.down_members.empty())
        co_return gslb_query_error("drain", "must name pools or members; ?down= names members");
    CO_TRY(const auto seen, controller.engine().what_if(name, change, state.clock.wall()));
    auto body = seen.to_json();
    body["loadbalancer"] = name;
    co_return co_await send_json(call, 200, body);
}

Task<Unit> list_decisions(Api::State& state, Controller& controller, Call call) {
    CO_TRY(const auto name, load_balancer_in(controller, call));
    resource::ListQuery query;
    query.fields = {{"loadbalancer", name}};
    query.newest_first = true;
    query.limit = 50;
    if (const auto text = call.query("limit")) std::from_chars(text->data(), text->data() + text->size(), query.limit);
    if (const auto token = call.query("continue").value_or(""); !token.empty()) {
        CO_TRY(query.after, read_continue_token("decisions", token));
    }
    const auto& kind = *state.resources.registry().find("Decision");
    CO_TRY(const auto page, state.resources.list(kind, query));
    json::array items;
    for (const auto& record : page.records) {
        CO_TRY(const auto object, resource::from_stored(*record));
        items.emplace_back(object.to_json());
    }
    json::object body{{"loadbalancer", name}, {"items", std::move(items)}};
    if (!page.next.empty()) body["continue"] = continue_token("decisions", page.next);
    co_return co_await send_json(call, 200, body);
}

Task<Unit> report_load(Api::State& state, Controller& controller, Call call) {
    CO_TRY(const auto document, co_await read_document(call, state.options.max_body));
    const auto* object = document.if_object();
    const auto wrong = [](std::string_view field, std::string_view message) {
        Error error{Code::invalid, "invalid load", R"(send {"load": 55.5, "ttl": "1m"})"};
        error.fields.push_back({std::string(field), std::string(message)});
        return error;
    };
    if (object == nullptr) co_return wrong("(body)", "must be an object with load");
    for (const auto& [key, value] : *object)
        if (key != "load" && key != "ttl") co_return wrong(key, "unknown field");
    const auto* load = object->if_contains("load");
    const auto number = load != nullptr && load->is_number() ? load->to_number<double>() : -1;
    if (!(number >= 0 && number <= max_load)) co_return wrong("load", "must be a number from 0 to 1000000000");
    Duration ttl = default_load_ttl;
    if (const auto* given = object->if_contains("ttl")) {
        const auto parsed = given->is_string() ? parse_duration(std::string_view(given->get_string())) : Result<Duration>(Error{});
        if (!parsed.ok() || *parsed < std::chrono::seconds(1) || *parsed > std::chrono::hours(24))
            co_return wrong("ttl", "must be a time between 1s and 24h");
        ttl = *parsed;
    }
    CO_TRY(std::ignore, controller.report_load(call.name(), number, ttl));
    co_return co_await send_json(call, 200, json::object{{"member", call.name()}, {"load", *load}, {"ttl", to_text(ttl)}});
}

/// Records a pushed status of a member in the store, so that every server has it, also after a restart.
Task<Unit> push_member_health(Api::State& state, Call call) {
    auto& resources = state.resources;
    const auto& registry = resources.registry();
    CO_TRY(std::ignore, resources.get(*registry.find("Member"), call.name()));
    const auto monitor = call.path.at("monitor");
    CO_TRY(const auto known, resources.get(*registry.find("Monitor"), monitor));
    const auto* kind = known.spec.if_contains("kind");
    if (kind == nullptr || *kind != "push")
        co_return Error{Code::conflict, fmt::format("Monitor {} is not of kind push; only push monitors accept a status", monitor)};
    CO_TRY(const auto document, co_await read_document(call, state.options.max_body));
    Duration ttl = std::chrono::minutes(1);
    if (const auto* given = known.spec.if_contains("ttl"); given != nullptr && given->is_string())
        ttl = parse_duration(std::string_view(given->get_string())).value_or(ttl);
    CO_TRY(const auto pushed, gslb::parse_pushed_status(document, ttl));
    const auto name = gslb::report_name(call.name(), monitor);
    const auto& reports = *registry.find("Report");
    const auto spec = gslb::report_spec(call.name(), monitor, pushed, state.clock.wall());
    CO_TRY(auto object, resource::read_object(reports, name, json::object{{"name", name}, {"spec", spec}}));
    auto done = resources.exists(reports, name) ? co_await resources.replace(call.ctx, reports, std::move(object), {})
                                                : co_await resources.create(call.ctx, reports, std::move(object), {});
    if (!done.ok()) co_return std::move(done).error();
    co_return co_await send_json(call, 200, spec);
}

Task<Unit> approve_failback(Api::State& state, Controller& controller, Call call) {
    CO_TRY(const auto name, load_balancer_in(controller, call));
    json::array left;
    if (const auto decision = controller.engine().decision(name))
        for (const auto& [pool, since] : decision->state.left) left.emplace_back(pool);
    if (left.empty()) { // a stored approval would apply to a failback that no person has seen
        CO_TRY(const auto now, state.resources.get(*state.resources.registry().find("LoadBalancer"), name));
        auto body = now.to_json();
        body["returning"] = std::move(left);
        co_return co_await send_json(call, 200, body);
    }
    json::value patch =
        json::object{{"spec", json::object{{"failback", json::object{{"approved_at", to_rfc3339(state.clock.wall())}}}}}};
    CO_TRY(const auto done, co_await state.resources.patch(call.ctx, *state.resources.registry().find("LoadBalancer"), name,
                                                           std::move(patch), {.reason = "failback approved"}));
    auto body = done.object.to_json();
    body["returning"] = std::move(left);
    co_return co_await send_json(call, 200, body);
}

} // namespace

void add_gslb_routes(Api::State& state, Controller& controller) {
    auto* of = &state;
    auto* with = &controller;
    const auto add = [&](std::string method, std::string pattern, std::string_view kind, std::string summary, Role role,
                         std::vector<Parameter> query, std::function<Task<Unit>(Call)> handler, json::object request = {}) {
        state.router.add({.method = std::move(method),
                          .pattern = std::move(pattern),
                          .summary = std::move(summary),
                          .group = "load balancing",
                          .role = role,
                          .kind = state.resources.registry().find(kind),
                          .query = std::move(query),
                          .request = std::move(request),
                          .response = {{"type", "object"}},
                          .status = 200,
                          .handler = std::move(handler)});
    };
    add("GET", "/v1/loadbalancers/{name}/why", "LoadBalancer",
        "Explain the answers of a load balancer, and which answer a client gets", Role::viewer,
        {{"client", "address or network of the client; default: the default client class"},
         {"at", "explain the decision of this time, replayed from its record"}},
        [with](Call call) { return show_gslb_why(*with, std::move(call)); });
    add("GET", "/v1/loadbalancers/{name}/whatif", "LoadBalancer", "Report the impact of a proposed change on a load balancer",
        Role::viewer,
        {{"drain", "pools or members to drain, separated by commas"}, {"down", "members that fail, separated by commas"}},
        [of, with](Call call) { return show_what_if(*of, *with, std::move(call)); });
    add("GET", "/v1/loadbalancers/{name}/decisions", "Decision", "List the decisions about a load balancer, newest first",
        Role::viewer, {limit_parameter(50, 1000), continue_parameter("decisions")},
        [of, with](Call call) { return list_decisions(*of, *with, std::move(call)); });
    add("POST", "/v1/loadbalancers/{name}/failback", "LoadBalancer", "Approve the failback of clients to the preferred pools",
        Role::operator_, {}, [of, with](Call call) { return approve_failback(*of, *with, std::move(call)); });
    add(
        "PUT", "/v1/members/{name}/load", "Member", "Report the load of a member", Role::operator_, {},
        [of, with](Call call) { return report_load(*of, *with, std::move(call)); },
        json::object{{"type", "object"},
                     {"required", json::array{"load"}},
                     {"properties", json::object{{"load", json::object{{"type", "number"}, {"minimum", 0}, {"maximum", max_load}}},
                                                 {"ttl", json::object{{"type", "string"}}}}}});
    const json::object text_type{{"type", "string"}};
    add(
        "PUT", "/v1/members/{name}/health/{monitor}", "Member", "Push the health of a member, for a Monitor of kind push",
        Role::operator_, {}, [of](Call call) { return push_member_health(*of, std::move(call)); },
        json::object{{"type", "object"},
                     {"required", json::array{"state"}},
                     {"properties",
                      json::object{{"state", json::object{{"type", "string"}, {"enum", json::array{"up", "degraded", "down"}}}},
                                   {"message", text_type},
                                   {"ttl", text_type}}}});
}

} // namespace orrery::api
