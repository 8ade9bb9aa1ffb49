#include "api/problem.h"
#include "api/state.h"
#include "core/text.h"
#include "gslb/controller.h"

#include <fmt/format.h>

#include <algorithm>

/// The API that Kosmos (OpenStack GSLB) specified, v0.1, over the same resources: a gslb is a LoadBalancer, pools, pool members and
/// monitors are what they are called here. Ids are names.
namespace orrery::api {

namespace {

using resource::Kind;
using resource::Object;

std::string kosmos_text(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}
const json::array& kosmos_list(const json::object& object, std::string_view key) {
    static const json::array none;
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_array() ? value->get_array() : none;
}
std::string without_dot(std::string text) {
    if (text.ends_with('.')) text.pop_back();
    return text;
}
Error kosmos_error(std::string field, std::string message) {
    Error error{Code::invalid, "the body is not right"};
    error.fields.push_back({std::move(field), std::move(message)});
    return error;
}

/// The states of Kosmos: of gslbs and monitors PENDING, ACTIVE, ERROR; of pools and members also DEGRADED and DOWN.
std::string_view gslb_state(const json::object& status) {
    const auto state = kosmos_text(status, "state");
    return state.empty() ? "PENDING" : state == "normal" || state == "failover" ? "ACTIVE" : "ERROR";
}
std::string_view pool_state(const json::object& status) {
    const auto state = kosmos_text(status, "state");
    if (state.empty()) return "PENDING";
    if (state != "usable") return "DOWN";
    return status.contains("healthy") && status.at("healthy") != status.at("members") ? "DEGRADED" : "ACTIVE";
}
std::string_view member_state(const json::object& status) {
    const auto state = kosmos_text(status, "state");
    return state == "up" ? "ACTIVE" : state == "degraded" || state == "drained" ? "DEGRADED" : state == "down" ? "DOWN" : "PENDING";
}

/// Fields that a body may have; others are refused by name.
Result<Unit> only(const json::object& body, std::string_view root, std::vector<std::string_view> allowed) {
    for (const auto& [key, value] : body)
        if (std::find(allowed.begin(), allowed.end(), std::string_view(key)) == allowed.end())
            return kosmos_error(fmt::format("{}.{}", root, std::string_view(key)), "is not known here");
    return Unit{};
}

// --- gslbs

json::object gslb_shown(const Object& object) {
    const auto self = fmt::format("/v0.1/gslbs/{}", object.name);
    json::array pools;
    for (const auto& use : kosmos_list(object.spec, "pools")) pools.emplace_back(kosmos_text(use.as_object(), "pool"));
    return {
        {"id", object.name},
        {"name", object.name},
        {"description", kosmos_text(object.spec, "description")},
        {"fqdn", kosmos_text(object.spec, "fqdn") + "."},
        {"zone_name", kosmos_text(object.spec, "zone") + "."},
        {"pools", std::move(pools)},
        {"status", gslb_state(object.status)},
        {"links",
         json::object{{"self", self}, {"pools", self + "/pools"}, {"status", self + "/status"}, {"history", self + "/history"}}}};
}
Result<json::object> gslb_spec(const json::object& body, json::object spec) {
    TRY(std::ignore,
        only(body, "gslb", {"id", "name", "description", "fqdn", "zone_name", "domain_name", "pools", "status", "links"}));
    if (body.contains("fqdn")) spec["fqdn"] = without_dot(kosmos_text(body, "fqdn"));
    for (const auto* key : {"domain_name", "zone_name"})
        if (body.contains(key)) spec["zone"] = without_dot(kosmos_text(body, key));
    if (body.contains("description")) spec["description"] = kosmos_text(body, "description");
    if (body.contains("pools")) {
        json::array uses;
        for (const auto& pool : kosmos_list(body, "pools")) {
            // A name, or {"pool": name, "type": "ACTIVE" | "PASSIVE"} as the change of 2017 had it.
            if (pool.is_string()) {
                uses.emplace_back(json::object{{"pool", pool}});
            } else if (pool.is_object()) {
                json::object use{{"pool", kosmos_text(pool.get_object(), "pool")}};
                if (kosmos_text(pool.get_object(), "type") == "PASSIVE") use["tier"] = "passive";
                uses.push_back(std::move(use));
            }
        }
        spec["pools"] = std::move(uses);
    }
    if (kosmos_list(spec, "pools").empty()) return kosmos_error("gslb.pools", "must name one pool at least");
    return spec;
}

// --- pools

json::object pool_shown(const Object& object) {
    const auto self = fmt::format("/v0.1/pools/{}", object.name);
    return {{"id", object.name},
            {"name", object.name},
            {"description", kosmos_text(object.spec, "description")},
            {"status", pool_state(object.status)},
            {"monitors", kosmos_list(object.spec, "monitors")},
            {"links", json::object{{"self", self}, {"pool_members", self + "/pool_members"}, {"status", self + "/status"}}}};
}
Result<json::object> pool_spec(const json::object& body, json::object spec) {
    TRY(std::ignore, only(body, "pool", {"id", "name", "description", "monitors", "status", "links"}));
    if (body.contains("description")) spec["description"] = kosmos_text(body, "description");
    if (body.contains("monitors")) spec["monitors"] = body.at("monitors");
    return spec;
}

// --- pool members

constexpr std::string_view regional_type = "neutron_lbaas_v2";

json::object member_shown(const Object& object) {
    const auto* addresses = object.status.if_contains("addresses");
    json::object out{{"id", object.name},
                     {"name", object.name},
                     {"type", "IP"},
                     {"region", kosmos_text(object.spec, "site")},
                     {"endpoints", addresses != nullptr ? *addresses : json::value(kosmos_list(object.spec, "addresses"))},
                     {"status", member_state(object.status)},
                     {"links", json::object{{"self", fmt::format("/v0.1/pools/{}/pool_members/{}", kosmos_text(object.spec, "pool"),
                                                                 object.name)}}}};
    if (const auto* balancer = object.spec.if_contains("balancer"); balancer != nullptr && balancer->is_object()) {
        out["type"] = regional_type;
        out["region"] = kosmos_text(balancer->get_object(), "source");
        out["neutron_id"] = kosmos_text(balancer->get_object(), "id");
    }
    return out;
}
Result<json::object> member_spec(const json::object& body, json::object spec) {
    TRY(std::ignore, only(body, "pool_member", {"id", "name", "type", "region", "neutron_id", "endpoints", "status", "links"}));
    const auto type = kosmos_text(body, "type");
    if (type == regional_type) {
        // A region is a Source of driver octavia.
        const auto region = kosmos_text(body, "region"), id = kosmos_text(body, "neutron_id");
        if (region.empty()) return kosmos_error("pool_member.region", "must be the Source that knows it");
        if (id.empty()) return kosmos_error("pool_member.neutron_id", "must be the load balancer's id there");
        spec.erase("addresses");
        spec["balancer"] = json::object{{"source", region}, {"id", id}};
        spec["site"] = region;
        return spec;
    }
    if (body.contains("neutron_id")) return kosmos_error("pool_member.neutron_id", "means nothing to a member of type IP");
    if (!type.empty() && type != "IP")
        return kosmos_error("pool_member.type", fmt::format("{} is not known here: give the addresses, as IP", type.substr(0, 64)));
    if (body.contains("endpoints")) spec["addresses"] = body.at("endpoints");
    if (const auto region = kosmos_text(body, "region"); !region.empty()) spec["site"] = region;
    return spec;
}

// --- monitors

json::object kosmos_monitor_shown(const Object& object) {
    const auto kind = kosmos_text(object.spec, "kind");
    auto type = kind;
    std::transform(type.begin(), type.end(), type.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    const auto seconds = [&](std::string_view key, int otherwise) {
        const auto time = parse_duration(kosmos_text(object.spec, key));
        return time.ok() ? std::chrono::duration_cast<std::chrono::seconds>(*time).count() : otherwise;
    };
    json::object out{{"id", object.name},
                     {"name", object.name},
                     {"type", kind == "icmp" ? "PING" : type},
                     {"status", "ACTIVE"},
                     {"delay", seconds("interval", 10)},
                     {"timeout", seconds("timeout", 5)},
                     {"max_retries", object.spec.contains("fall") ? object.spec.at("fall") : json::value(3)}};
    for (const auto& [theirs, ours] : {std::pair("port", "port"), std::pair("url_path", "path"), std::pair("http_method", "method"),
                                       std::pair("receive_string", "contains")})
        if (const auto* value = object.spec.if_contains(ours)) out[theirs] = *value;
    if (const auto* verify = object.spec.if_contains("verify"); verify != nullptr && verify->is_bool())
        out["insecure"] = !verify->get_bool();
    return out;
}
Result<json::object> kosmos_monitor_spec(const json::object& body, json::object spec) {
    TRY(std::ignore, only(body, "monitor",
                          {"id", "name", "description", "type", "delay", "timeout", "max_retries", "port", "http_method",
                           "url_path", "expected_codes", "receive_string", "insecure", "payload", "status", "links"}));
    if (const auto type = kosmos_text(body, "type"); type == "TCP" || type == "HTTP" || type == "HTTPS") {
        spec["kind"] = type == "TCP" ? "tcp" : type == "HTTP" ? "http" : "https";
    } else if (type == "PING" || type == "ICMP") {
        spec["kind"] = "icmp";
    } else if (type == "SSH") {
        spec["kind"] = "tcp";
        spec["contains"] = "SSH-";
        spec["port"] = 22;
    } else if (body.contains("type") || !spec.contains("kind")) {
        return kosmos_error("monitor.type", "must be one of TCP, PING, HTTP, HTTPS and SSH");
    }
    for (const auto& [theirs, ours] : {std::pair("delay", "interval"), std::pair("timeout", "timeout")})
        if (const auto* value = body.if_contains(theirs)) {
            if (!value->is_int64() || value->get_int64() < 1)
                return kosmos_error(fmt::format("monitor.{}", theirs), "must be a number of seconds");
            spec[ours] = fmt::format("{}s", value->get_int64());
        }
    for (const auto& [theirs, ours] :
         {std::pair("max_retries", "fall"), std::pair("port", "port"), std::pair("url_path", "path"),
          std::pair("http_method", "method"), std::pair("receive_string", "contains"), std::pair("description", "description")})
        if (const auto* value = body.if_contains(theirs)) spec[ours] = *value;
    if (const auto* insecure = body.if_contains("insecure"); insecure != nullptr && insecure->is_bool())
        spec["verify"] = !insecure->get_bool();
    std::string codes;
    for (const auto& code : kosmos_list(body, "expected_codes"))
        if (code.is_int64()) codes += fmt::format("{}{}", codes.empty() ? "" : ",", code.get_int64());
    if (!codes.empty()) spec["expect"] = codes;
    if (const auto* payload = body.if_contains("payload"); payload != nullptr && payload->is_object()) {
        spec["body"] = kosmos_text(payload->get_object(), "content");
        if (const auto type = kosmos_text(payload->get_object(), "content_type"); !type.empty())
            spec["headers"] = json::object{{"Content-Type", type}};
    }
    return spec;
}

/// One sort of thing: what it is called there, and how it is read and shown.
struct Sort {
    std::string single, plural, kind;
    json::object (*shown)(const Object&);
    Result<json::object> (*spec)(const json::object&, json::object);
};

class Kosmos {
public:
    Kosmos(Api::State& state, const Sort& sort) : state_(state), sort_(sort), kind_(*state.resources.registry().find(sort.kind)) {}

    /// `parent`: the pool of pool members.
    static Task<Unit> list(Kosmos at, Call call, std::string parent) {
        resource::ListQuery query;
        if (!parent.empty()) query.fields = {{"pool", parent}};
        query.limit = 5000;
        json::array items;
        do {
            CO_TRY(const auto page, at.state_.resources.list(at.kind_, query));
            for (const auto& record : page.records) {
                CO_TRY(const auto object, resource::from_stored(*record));
                items.emplace_back(at.sort_.shown(object));
            }
            query.after = page.next;
        } while (!query.after.empty());
        co_return co_await send_json(call, 200, json::object{{at.sort_.plural, std::move(items)}});
    }

    static Task<Unit> show(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(const auto object, at.found(name, parent));
        co_return co_await send_json(call, 200, json::object{{at.sort_.single, at.sort_.shown(object)}});
    }

    static Task<Unit> create(Kosmos at, Call call, std::string parent) {
        CO_TRY(const auto body, co_await body_of(at, call));
        json::object spec;
        if (!parent.empty()) spec["pool"] = parent;
        CO_TRY(spec, at.sort_.spec(body, std::move(spec)));
        CO_TRY(auto object,
               resource::read_object(at.kind_, {}, json::object{{"name", kosmos_text(body, "name")}, {"spec", std::move(spec)}}));
        CO_TRY(const auto outcome, co_await at.state_.resources.create(call.ctx, at.kind_, std::move(object), {}));
        co_return co_await send_json(call, 201, json::object{{at.sort_.single, at.sort_.shown(outcome.object)}});
    }

    static Task<Unit> change(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(const auto body, co_await body_of(at, call));
        CO_TRY(const auto before, at.found(name, parent));
        if (body.contains("name") && kosmos_text(body, "name") != name)
            co_return kosmos_error(at.sort_.single + ".name", "is its id, and stays");
        CO_TRY(auto spec, at.sort_.spec(body, before.spec));
        json::object labels;
        for (const auto& [key, value] : before.labels) labels[key] = value;
        CO_TRY(auto object,
               resource::read_object(at.kind_, name,
                                     json::object{{"name", name}, {"labels", std::move(labels)}, {"spec", std::move(spec)}}));
        CO_TRY(const auto outcome, co_await at.state_.resources.replace(call.ctx, at.kind_, std::move(object), {}));
        co_return co_await send_json(call, 200, json::object{{at.sort_.single, at.sort_.shown(outcome.object)}});
    }

    static Task<Unit> remove(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(std::ignore, at.found(name, parent));
        CO_TRY(std::ignore, co_await at.state_.resources.remove(call.ctx, at.kind_, name, {}));
        co_return co_await send_json(call, 200, json::object{});
    }

    static Task<Unit> status(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(const auto object, at.found(name, parent));
        auto shown = at.sort_.shown(object);
        json::object out{{"id", name}, {"status", shown.at("status")}};
        for (const auto* key : {"why", "because", "since", "answers", "pool"})
            if (const auto* value = object.status.if_contains(key)) out[key] = *value;
        co_return co_await send_json(call, 200, json::object{{"status", std::move(out)}});
    }

private:
    Result<Object> found(const std::string& name, const std::string& parent) const {
        TRY(auto object, state_.resources.get(kind_, name));
        if (!parent.empty() && kosmos_text(object.spec, "pool") != parent)
            return Error{Code::not_found, fmt::format("pool {} has no member {}", parent.substr(0, 256), name.substr(0, 256))};
        return object;
    }
    /// {"gslb": {...}}, or the fields by themselves.
    static Task<json::object> body_of(Kosmos at, Call& call) {
        CO_TRY(const auto document, co_await read_document(call, at.state_.options.max_body));
        const auto* object = document.if_object();
        if (object == nullptr) co_return kosmos_error(at.sort_.single, "must be an object");
        if (const auto* inner = object->if_contains(at.sort_.single)) {
            if (!inner->is_object()) co_return kosmos_error(at.sort_.single, "must be an object");
            co_return inner->get_object();
        }
        co_return *object;
    }

    Api::State& state_;
    const Sort& sort_;
    const Kind& kind_;
};

const Sort sort_gslb{"gslb", "gslbs", "LoadBalancer", gslb_shown, gslb_spec};
const Sort sort_pool{"pool", "pools", "Pool", pool_shown, pool_spec};
const Sort sort_member{"pool_member", "pool_members", "Member", member_shown, member_spec};
const Sort sort_monitor{"monitor", "monitors", "Monitor", kosmos_monitor_shown, kosmos_monitor_spec};

/// What was decided about a name, as up, down and degraded, when and why.
Task<Unit> show_history(Api::State& state, Call call) {
    CO_TRY(std::ignore, state.resources.get(*state.resources.registry().find("LoadBalancer"), call.name()));
    resource::ListQuery query;
    query.fields = {{"loadbalancer", call.name()}};
    query.newest_first = true;
    query.limit = 100;
    CO_TRY(const auto page, state.resources.list(*state.resources.registry().find("Decision"), query));
    json::array items;
    for (const auto& record : page.records) {
        CO_TRY(const auto object, resource::from_stored(*record));
        const auto* after = object.spec.if_contains("after");
        json::object one{{"time", kosmos_text(object.spec, "at")}, {"cause", kosmos_text(object.spec, "cause")}};
        if (after != nullptr && after->is_object()) {
            one["status"] = gslb_state({{"state", kosmos_text(after->get_object(), "condition")}});
            if (const auto* answers = after->get_object().if_contains("answers")) one["endpoints"] = *answers;
        }
        if (const auto* because = object.spec.if_contains("because")) one["reason"] = *because;
        items.push_back(std::move(one));
    }
    co_return co_await send_json(call, 200, json::object{{"history", std::move(items)}});
}

Task<Unit> show_pools(Api::State& state, Call call) {
    CO_TRY(const auto balancer, state.resources.get(*state.resources.registry().find("LoadBalancer"), call.name()));
    json::array items;
    for (const auto& use : kosmos_list(balancer.spec, "pools"))
        if (const auto pool = state.resources.get(*state.resources.registry().find("Pool"), kosmos_text(use.as_object(), "pool"));
            pool.ok()) {
            auto shown = pool_shown(*pool);
            shown["type"] = kosmos_text(use.as_object(), "tier") == "passive" ? "PASSIVE" : "ACTIVE";
            items.push_back(std::move(shown));
        }
    co_return co_await send_json(call, 200, json::object{{"pools", std::move(items)}});
}

} // namespace

void add_kosmos_routes(Api::State& state) {
    auto* of = &state;
    const json::object any{{"type", "object"}};
    const auto add = [&](std::string method, std::string pattern, const Sort& sort, std::string summary, int status,
                         std::function<Task<Unit>(Call)> handler) {
        const bool reads = method == "GET", body = method != "GET" && method != "DELETE";
        state.router.add({.method = std::move(method),
                          .pattern = std::move(pattern),
                          .summary = std::move(summary),
                          .group = "Kosmos v0.1",
                          .role = reads ? Role::viewer : Role::operator_,
                          .kind = state.resources.registry().find(sort.kind),
                          .request = body ? any : json::object{},
                          .response = any,
                          .status = status,
                          .handler = std::move(handler)});
    };
    using Handler = Task<Unit> (*)(Kosmos, Call, std::string, std::string);
    /// `with_parent`: the pool is the path's {name}, and what is meant its {member}.
    const auto single = [&](const char* method, const std::string& pattern, const Sort& sort, const std::string& summary,
                            Handler handler, bool with_parent) {
        add(method, pattern, sort, summary, 200, [of, what = &sort, handler, with_parent](Call call) {
            auto name = call.path.at(with_parent ? "member" : "name");
            auto parent = with_parent ? call.name() : std::string();
            return handler(Kosmos(*of, *what), std::move(call), std::move(name), std::move(parent));
        });
    };
    const auto all_of = [&](const Sort& sort, const std::string& all, const std::string& one, bool with_parent) {
        const auto* what = &sort;
        add("GET", all, sort, "List " + sort.plural, 200, [of, what, with_parent](Call call) {
            auto parent = with_parent ? call.name() : std::string();
            return Kosmos::list(Kosmos(*of, *what), std::move(call), std::move(parent));
        });
        add("POST", all, sort, "Create a " + sort.single, 201, [of, what, with_parent](Call call) {
            auto parent = with_parent ? call.name() : std::string();
            return Kosmos::create(Kosmos(*of, *what), std::move(call), std::move(parent));
        });
        single("GET", one, sort, "Read a " + sort.single, &Kosmos::show, with_parent);
        single("PUT", one, sort, "Change a " + sort.single, &Kosmos::change, with_parent);
        single("PATCH", one, sort, "Change parts of a " + sort.single, &Kosmos::change, with_parent);
        single("DELETE", one, sort, "Delete a " + sort.single, &Kosmos::remove, with_parent);
        single("GET", one + "/status", sort, "The state of a " + sort.single, &Kosmos::status, with_parent);
    };
    for (const auto* sort : {&sort_gslb, &sort_pool, &sort_monitor})
        all_of(*sort, "/v0.1/" + sort->plural, "/v0.1/" + sort->plural + "/{name}", false);
    all_of(sort_member, "/v0.1/pools/{name}/pool_members", "/v0.1/pools/{name}/pool_members/{member}", true);
    add("GET", "/v0.1/gslbs/{name}/history", sort_gslb, "What was decided about a gslb, the newest first", 200,
        [of](Call call) { return show_history(*of, std::move(call)); });
    add("GET", "/v0.1/gslbs/{name}/pools", sort_gslb, "The pools of a gslb", 200,
        [of](Call call) { return show_pools(*of, std::move(call)); });
}

} // namespace orrery::api
