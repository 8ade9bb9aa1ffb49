#include "api/problem.h"
#include "api/state.h"
#include "core/text.h"
#include "gslb/controller.h"
#include "gslb/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

/// What load balancers have beyond the routes of every kind: why they answer so, what would be if, what was decided.
namespace orrery::api {

namespace {

using gslb::Controller;

Error gslb_query_error(std::string_view parameter, std::string message) {
    Error error{Code::invalid, "the query is not right"};
    error.fields.push_back({fmt::format("?{}", parameter), std::move(message)});
    return error;
}

/// An address, or a network by its first address: a client's network is what a resolver tells.
Result<std::optional<boost::asio::ip::address>> client_in(const Call& call) {
    const auto text = call.query("client");
    if (!text) return std::optional<boost::asio::ip::address>{};
    boost::system::error_code failed;
    const auto address = boost::asio::ip::make_address(text->substr(0, text->find('/')), failed);
    if (failed || (text->find('/') != std::string::npos && !gslb::parse_prefix(*text).ok()))
        return gslb_query_error("client", "must be an address or a network, as in 198.51.100.7 or 198.51.100.0/24");
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

/// By its own name, or by the domain name it answers for.
Result<std::string> load_balancer_in(const Controller& controller, const Call& call) {
    if (controller.engine().rule(call.name()) != nullptr) return call.name();
    if (auto name = controller.engine().name_of_fqdn(call.name()); !name.empty()) return name;
    return Error{Code::not_found, fmt::format("there is no LoadBalancer {}", call.name().substr(0, 256)),
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
    gslb::Hypothesis change;
    const auto& pools = controller.engine().rule(name)->pools;
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
    if (const auto text = call.query("limit")) {
        const auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), query.limit);
        if (failed != std::errc{} || end != text->data() + text->size() || query.limit == 0 || query.limit > 1000)
            co_return gslb_query_error("limit", "must be a number from 1 to 1000");
    }
    query.after = call.query("continue").value_or("");
    const auto& kind = *state.resources.registry().find("Decision");
    CO_TRY(const auto page, state.resources.list(kind, query));
    json::array items;
    for (const auto& record : page.records) {
        CO_TRY(const auto object, resource::from_stored(*record));
        items.emplace_back(object.to_json());
    }
    json::object body{{"loadbalancer", name}, {"items", std::move(items)}};
    if (!page.next.empty()) body["continue"] = page.next;
    co_return co_await send_json(call, 200, body);
}

Task<Unit> take_load(Api::State& state, Controller& controller, Call call) {
    CO_TRY(const auto document, co_await read_document(call, state.options.max_body));
    const auto* object = document.if_object();
    const auto* load = object == nullptr ? nullptr : object->if_contains("load");
    if (load == nullptr || object->size() != 1 || !load->is_number()) {
        Error error{Code::invalid, "the load is not right", R"(send {"load": 55.5})"};
        error.fields.push_back({"load", "must be a number"});
        co_return error;
    }
    CO_TRY(std::ignore, controller.report_load(call.name(), load->to_number<double>()));
    co_return co_await send_json(call, 200, json::object{{"member", call.name()}, {"load", *load}});
}

/// Somebody outside says how a member is: kept in the store, so that every server knows, also after a restart.
Task<Unit> take_said(Api::State& state, Call call) {
    auto& resources = state.resources;
    const auto& registry = resources.registry();
    CO_TRY(std::ignore, resources.get(*registry.find("Member"), call.name()));
    const auto monitor = call.path.at("monitor");
    CO_TRY(const auto known, resources.get(*registry.find("Monitor"), monitor));
    const auto* kind = known.spec.if_contains("kind");
    if (kind == nullptr || *kind != "push")
        co_return Error{Code::conflict, fmt::format("Monitor {} is not of kind push: it looks itself", monitor)};
    CO_TRY(const auto document, co_await read_document(call, state.options.max_body));
    Duration ttl = std::chrono::minutes(1);
    if (const auto* given = known.spec.if_contains("ttl"); given != nullptr && given->is_string())
        ttl = parse_duration(std::string_view(given->get_string())).value_or(ttl);
    CO_TRY(const auto said, gslb::read_said(document, ttl));
    const auto name = gslb::report_name(call.name(), monitor);
    const auto& reports = *registry.find("Report");
    const auto spec = gslb::report_spec(call.name(), monitor, said, state.clock.wall());
    CO_TRY(auto object, resource::read_object(reports, name, json::object{{"name", name}, {"spec", spec}}));
    auto done = resources.exists(reports, name) ? co_await resources.replace(call.ctx, reports, std::move(object), {})
                                                : co_await resources.create(call.ctx, reports, std::move(object), {});
    if (!done.ok()) co_return std::move(done).error();
    co_return co_await send_json(call, 200, spec);
}

Task<Unit> approve_failback(Api::State& state, Controller& controller, Call call) {
    CO_TRY(const auto name, load_balancer_in(controller, call));
    json::value patch =
        json::object{{"spec", json::object{{"failback", json::object{{"approved_at", to_rfc3339(state.clock.wall())}}}}}};
    CO_TRY(const auto done, co_await state.resources.patch(call.ctx, *state.resources.registry().find("LoadBalancer"), name,
                                                           std::move(patch), {.because = "failback approved"}));
    co_return co_await send_json(call, 200, done.object.to_json());
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
    add("GET", "/v1/loadbalancers/{name}/why", "LoadBalancer", "Why a name answers as it does, and what a client gets",
        Role::viewer,
        {{"client", "an address or a network; left out: one of no network of its own"},
         {"at", "as it was at this time, decided again from what was recorded"}},
        [with](Call call) { return show_gslb_why(*with, std::move(call)); });
    add("GET", "/v1/loadbalancers/{name}/whatif", "LoadBalancer", "What a name would answer, and whether that is safe",
        Role::viewer,
        {{"drain", "pools or members to drain, with commas between"}, {"down", "members that fail, with commas between"}},
        [of, with](Call call) { return show_what_if(*of, *with, std::move(call)); });
    add("GET", "/v1/loadbalancers/{name}/decisions", "Decision", "What was decided about a name, the newest first", Role::viewer,
        {{"limit", "at most so many (50)", "integer"}, {"continue", "what the last page gave"}},
        [of, with](Call call) { return list_decisions(*of, *with, std::move(call)); });
    add("POST", "/v1/loadbalancers/{name}/failback", "LoadBalancer", "Let clients return to the pools they left", Role::operator_,
        {}, [of, with](Call call) { return approve_failback(*of, *with, std::move(call)); });
    add(
        "PUT", "/v1/members/{name}/load", "Member", "Say how busy a member is", Role::operator_, {},
        [of, with](Call call) { return take_load(*of, *with, std::move(call)); },
        json::object{{"type", "object"},
                     {"required", json::array{"load"}},
                     {"properties", json::object{{"load", json::object{{"type", "number"}}}}}});
    const json::object text_type{{"type", "string"}};
    add(
        "PUT", "/v1/members/{name}/health/{monitor}", "Member", "Say how a member is, for a Monitor of kind push", Role::operator_,
        {}, [of](Call call) { return take_said(*of, std::move(call)); },
        json::object{{"type", "object"},
                     {"required", json::array{"state"}},
                     {"properties",
                      json::object{{"state", json::object{{"type", "string"}, {"enum", json::array{"up", "degraded", "down"}}}},
                                   {"text", text_type},
                                   {"ttl", text_type}}}});
}

} // namespace orrery::api
