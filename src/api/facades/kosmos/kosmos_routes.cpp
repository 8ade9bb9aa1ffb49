#include "api/facades/kosmos/kosmos_mapping.h"
#include "api/problem.h"
#include "api/state.h"
#include "core/json_fields.h"
#include "core/truncate.h"
#include "gslb/runtime/controller.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <charconv>

/// The Kosmos API (OpenStack GSLB) v0.1 over the same resources: a gslb is a LoadBalancer; pools, pool members and monitors are
/// Pool, Member and Monitor. Ids are names.
namespace orrery::api {

namespace {

using kosmos::ResourceType;
using resource::Kind;
using resource::Object;

class Kosmos {
public:
    static constexpr std::size_t max_page = 5000;

    Kosmos(Api::State& state, const ResourceType& type)
        : state_(state), type_(type), kind_(*state.resources.registry().find(type.kind)) {}

    /// `parent`: the pool, for pool members.
    static Task<Unit> list(Kosmos at, Call call, std::string parent) {
        resource::ListQuery query;
        if (!parent.empty()) {
            CO_TRY(std::ignore, at.state_.resources.get(*at.state_.resources.registry().find("Pool"), parent));
            query.fields = {{"pool", parent}};
        }
        query.limit = max_page;
        const auto limit = call.query("limit");
        if (limit) std::from_chars(limit->data(), limit->data() + limit->size(), query.limit);
        if (const auto marker = call.query("marker")) {
            CO_TRY(query.after, at.after_marker(*marker, parent));
        }
        json::array items;
        do {
            CO_TRY(const auto page, at.state_.resources.list(at.kind_, query));
            for (const auto& record : page.records) {
                CO_TRY(const auto object, resource::from_stored(*record));
                items.emplace_back(at.type_.shown(object));
            }
            query.after = page.next;
        } while (!query.after.empty() && !limit);
        json::object body{{at.type_.plural, std::move(items)}};
        if (!query.after.empty())
            body[at.type_.plural + "_links"] = json::array{json::object{
                {"rel", "next"}, {"href", fmt::format("{}?limit={}&marker={}", call.request.target.path, *limit, query.after)}}};
        co_return co_await send_json(call, 200, body);
    }

    static Task<Unit> show(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(const auto object, at.found(name, parent));
        co_return co_await send_json(call, 200, json::object{{at.type_.single, at.type_.shown(object)}});
    }

    static Task<Unit> create(Kosmos at, Call call, std::string parent) {
        CO_TRY(const auto body, co_await body_of(at, call));
        kosmos::ResourceBody before;
        if (!parent.empty()) before.spec["pool"] = parent;
        CO_TRY(auto written, at.type_.read(body, std::move(before)));
        CO_TRY(auto object, resource::read_object(at.kind_, {},
                                                  json::object{{"name", text_at(body, "name")},
                                                               {"labels", std::move(written.labels)},
                                                               {"spec", std::move(written.spec)}}));
        CO_TRY(const auto outcome, co_await at.state_.resources.create(call.ctx, at.kind_, std::move(object), {}));
        co_return co_await send_json(call, 201, json::object{{at.type_.single, at.type_.shown(outcome.object)}});
    }

    static Task<Unit> change(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(const auto body, co_await body_of(at, call));
        CO_TRY(const auto before, at.found(name, parent));
        if (body.contains("name") && text_at(body, "name") != name)
            co_return kosmos::wrong(at.type_.single + ".name", "is the id and cannot change");
        kosmos::ResourceBody was{.spec = before.spec};
        for (const auto& [key, value] : before.labels) was.labels[key] = value;
        CO_TRY(auto written, at.type_.read(body, std::move(was)));
        CO_TRY(auto object,
               resource::read_object(
                   at.kind_, name,
                   json::object{{"name", name}, {"labels", std::move(written.labels)}, {"spec", std::move(written.spec)}}));
        CO_TRY(const auto outcome, co_await at.state_.resources.replace(call.ctx, at.kind_, std::move(object), {}));
        co_return co_await send_json(call, 200, json::object{{at.type_.single, at.type_.shown(outcome.object)}});
    }

    static Task<Unit> remove(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(std::ignore, at.found(name, parent));
        CO_TRY(std::ignore, co_await at.state_.resources.remove(call.ctx, at.kind_, name, {}));
        co_return co_await call.out.send(call.ctx, {204, {}, ""});
    }

    /// The monitors of a pool or a member; those of a member include the monitors of its pool.
    static Task<Unit> monitors(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(const auto object, at.found(name, parent));
        auto names = array_at(object.spec, "monitors");
        const auto& registry = at.state_.resources.registry();
        if (!parent.empty()) {
            CO_TRY(const auto pool, at.state_.resources.get(*registry.find("Pool"), parent));
            for (const auto& one : array_at(pool.spec, "monitors")) names.push_back(one);
        }
        json::array items;
        for (const auto& one : names)
            if (const auto monitor = at.state_.resources.get(*registry.find("Monitor"), std::string_view(one.as_string()));
                monitor.ok())
                items.emplace_back(kosmos::monitor().shown(*monitor));
        co_return co_await send_json(call, 200, json::object{{"monitors", std::move(items)}});
    }

    static Task<Unit> status(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(const auto object, at.found(name, parent));
        auto shown = at.type_.shown(object);
        json::object out{{"id", name}, {"status", shown.at("status")}};
        for (const auto* key : {"message", "messages", "since", "answers", "pool"})
            if (const auto* value = object.status.if_contains(key)) out[key] = *value;
        co_return co_await send_json(call, 200, json::object{{"status", std::move(out)}});
    }

private:
    /// Checks ?marker, the id of the last resource of the previous page.
    Result<std::string> after_marker(const std::string& marker, const std::string& parent) const {
        if (found(marker, parent).ok()) return marker;
        Error error{Code::invalid, "invalid query", "list again without ?marker"};
        error.fields.push_back({"?marker", fmt::format("must be the id of an existing {}", type_.single)});
        return error;
    }
    Result<Object> found(const std::string& name, const std::string& parent) const {
        TRY(auto object, state_.resources.get(kind_, name));
        if (!parent.empty() && text_at(object.spec, "pool") != parent)
            return Error{Code::not_found, fmt::format("pool {} has no member {}", truncate(parent, 256), truncate(name, 256))};
        return object;
    }
    static Task<json::object> body_of(Kosmos at, Call& call) {
        CO_TRY(const auto document, co_await read_document(call, at.state_.options.max_body, EmptyBody::refuse));
        co_return kosmos::body_of(at.type_, document);
    }

    Api::State& state_;
    const ResourceType& type_;
    const Kind& kind_;
};

/// The decisions about a gslb: time, state, endpoints and message.
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
        json::object one{{"time", text_at(object.spec, "at")}, {"cause", text_at(object.spec, "cause")}};
        if (after != nullptr && after->is_object()) {
            one["status"] = kosmos::gslb_state({{"state", text_at(after->get_object(), "condition")}});
            if (const auto* answers = after->get_object().if_contains("answers")) one["endpoints"] = *answers;
        }
        if (const auto* messages = object.spec.if_contains("messages")) one["messages"] = *messages;
        items.push_back(std::move(one));
    }
    co_return co_await send_json(call, 200, json::object{{"history", std::move(items)}});
}

Task<Unit> show_pools(Api::State& state, Call call) {
    CO_TRY(const auto balancer, state.resources.get(*state.resources.registry().find("LoadBalancer"), call.name()));
    json::array items;
    for (const auto& use : array_at(balancer.spec, "pools"))
        if (const auto pool = state.resources.get(*state.resources.registry().find("Pool"), text_at(use.as_object(), "pool"));
            pool.ok()) {
            auto shown = kosmos::pool().shown(*pool);
            shown["type"] = text_at(use.as_object(), "tier") == "passive" ? "PASSIVE" : "ACTIVE";
            items.push_back(std::move(shown));
        }
    co_return co_await send_json(call, 200, json::object{{"pools", std::move(items)}});
}

} // namespace

namespace {

/// "KosmosPool", to avoid a clash with the schemas of our kinds.
std::string schema_name(const ResourceType& type) {
    std::string out = "Kosmos";
    bool upper = true;
    for (const char c : type.single) {
        if (c != '_') out += upper ? static_cast<char>(c - 'a' + 'A') : c;
        upper = c == '_';
    }
    return out;
}

json::object schema_reference(const ResourceType& type) { return {{"$ref", "#/components/schemas/" + schema_name(type)}}; }

/// {"pool": {...}}.
json::object single_schema(const ResourceType& type) {
    return {{"type", "object"},
            {"required", json::array{type.single}},
            {"properties", json::object{{type.single, schema_reference(type)}}}};
}

/// {"pools": [...], "pools_links": [...]}.
json::object list_schema_of(const ResourceType& type) {
    const json::object links =
        json::parse(R"({"type":"array","description":"The next page, if there is one.","items":{"type":"object",
            "required":["rel","href"],"properties":{"rel":{"type":"string"},"href":{"type":"string"}}}})")
            .as_object();
    return {{"type", "object"},
            {"required", json::array{type.plural}},
            {"properties", json::object{{type.plural, json::object{{"type", "array"}, {"items", schema_reference(type)}}},
                                        {type.plural + "_links", links}}}};
}

/// Adds the routes of the facade.
class KosmosRoutes {
public:
    using Handler = Task<Unit> (*)(Kosmos, Call, std::string name, std::string parent);
    using Collection = Task<Unit> (*)(Kosmos, Call, std::string parent);

    explicit KosmosRoutes(Api::State& state) : state_(state) {}

    /// The routes of a resource type. `with_parent`: {name} of the path is the pool and {member} the resource.
    void add_type(const ResourceType& type, const std::string& collection, const std::string& single, bool with_parent) {
        add("GET", collection, type, "List " + type.plural, 200, on_collection(type, &Kosmos::list, with_parent),
            list_schema_of(type), page_query());
        add("POST", collection, type, "Create a " + type.single, 201, on_collection(type, &Kosmos::create, with_parent),
            single_schema(type));
        add_single("GET", single, type, "Read a " + type.single, &Kosmos::show, with_parent, 200, single_schema(type));
        add_single("PUT", single, type, "Change a " + type.single, &Kosmos::change, with_parent, 200, single_schema(type));
        add_single("PATCH", single, type, "Change parts of a " + type.single, &Kosmos::change, with_parent, 200,
                   single_schema(type));
        add_single("DELETE", single, type, "Delete a " + type.single, &Kosmos::remove, with_parent, 204, {});
        add_single("GET", single + "/status", type, "Show the state of a " + type.single, &Kosmos::status, with_parent, 200,
                   {{"type", "object"}});
    }

    void add_single(const char* method, const std::string& pattern, const ResourceType& type, const std::string& summary,
                    Handler handler, bool with_parent, int status, json::object response) {
        const auto handle = [state = &state_, of = &type, handler, with_parent](Call call) {
            auto name = call.path.at(with_parent ? "member" : "name");
            auto parent = with_parent ? call.name() : std::string();
            return handler(Kosmos(*state, *of), std::move(call), std::move(name), std::move(parent));
        };
        add(method, pattern, type, summary, status, handle, std::move(response));
    }

    void add(std::string method, std::string pattern, const ResourceType& type, std::string summary, int status,
             std::function<Task<Unit>(Call)> handler, json::object response, std::vector<Parameter> query = {}) {
        const bool reads = method == "GET", body = method != "GET" && method != "DELETE";
        state_.router.add({.method = std::move(method),
                           .pattern = std::move(pattern),
                           .summary = std::move(summary),
                           .group = "Kosmos v0.1",
                           .role = reads ? Role::viewer : Role::operator_,
                           .kind = state_.resources.registry().find(type.kind),
                           .query = std::move(query),
                           .request = body ? kosmos::request_schema(type, status == 201) : json::object{},
                           .response = status == 204 ? json::object{} : std::move(response),
                           .status = status,
                           .handler = std::move(handler)});
    }

private:
    static std::vector<Parameter> page_query() {
        return {
            {.name = "limit", .doc = "maximum number of items; default: all", .type = "integer", .min = 1, .max = Kosmos::max_page},
            {.name = "marker", .doc = "id of the last item of the previous page"}};
    }

    std::function<Task<Unit>(Call)> on_collection(const ResourceType& type, Collection handler, bool with_parent) {
        return [state = &state_, of = &type, handler, with_parent](Call call) {
            auto parent = with_parent ? call.name() : std::string();
            return handler(Kosmos(*state, *of), std::move(call), std::move(parent));
        };
    }

    Api::State& state_;
};

} // namespace

void add_kosmos_routes(Api::State& state) {
    auto* of = &state;
    for (const auto* type : {&kosmos::gslb(), &kosmos::pool(), &kosmos::member(), &kosmos::monitor()})
        state.router.add_schema(schema_name(*type), kosmos::answer_schema(*type));
    KosmosRoutes routes(state);
    for (const auto* type : {&kosmos::gslb(), &kosmos::pool(), &kosmos::monitor()})
        routes.add_type(*type, "/v0.1/" + type->plural, "/v0.1/" + type->plural + "/{name}", false);
    routes.add_type(kosmos::member(), "/v0.1/pools/{name}/pool_members", "/v0.1/pools/{name}/pool_members/{member}", true);
    routes.add_single("GET", "/v0.1/pools/{name}/monitors", kosmos::pool(), "List the monitors of a pool", &Kosmos::monitors, false,
                      200, list_schema_of(kosmos::monitor()));
    routes.add_single("GET", "/v0.1/pools/{name}/pool_members/{member}/monitors", kosmos::member(),
                      "List the monitors of a pool_member", &Kosmos::monitors, true, 200, list_schema_of(kosmos::monitor()));
    routes.add("GET", "/v0.1/gslbs/{name}/history", kosmos::gslb(), "List the decisions about a gslb, newest first", 200,
               [of](Call call) { return show_history(*of, std::move(call)); }, {{"type", "object"}});
    routes.add(
        "GET", "/v0.1/gslbs/{name}/pools", kosmos::gslb(), "List the pools of a gslb", 200,
        [of](Call call) { return show_pools(*of, std::move(call)); }, list_schema_of(kosmos::pool()));
}

} // namespace orrery::api
