#include "api/kosmos.h"
#include "api/problem.h"
#include "api/state.h"
#include "gslb/controller.h"

#include <fmt/format.h>

/// The API that Kosmos (OpenStack GSLB) specified, v0.1, over the same resources: a gslb is a LoadBalancer, pools, pool members and
/// monitors are what they are called here. Ids are names.
namespace orrery::api {

namespace {

using kosmos::Sort;
using kosmos::text_in;
using resource::Kind;
using resource::Object;

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
        kosmos::Written before;
        if (!parent.empty()) before.spec["pool"] = parent;
        CO_TRY(auto written, at.sort_.read(body, std::move(before)));
        CO_TRY(auto object, resource::read_object(at.kind_, {},
                                                  json::object{{"name", text_in(body, "name")},
                                                               {"labels", std::move(written.labels)},
                                                               {"spec", std::move(written.spec)}}));
        CO_TRY(const auto outcome, co_await at.state_.resources.create(call.ctx, at.kind_, std::move(object), {}));
        co_return co_await send_json(call, 201, json::object{{at.sort_.single, at.sort_.shown(outcome.object)}});
    }

    static Task<Unit> change(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(const auto body, co_await body_of(at, call));
        CO_TRY(const auto before, at.found(name, parent));
        if (body.contains("name") && text_in(body, "name") != name)
            co_return kosmos::wrong(at.sort_.single + ".name", "is its id, and stays");
        kosmos::Written was{.spec = before.spec};
        for (const auto& [key, value] : before.labels) was.labels[key] = value;
        CO_TRY(auto written, at.sort_.read(body, std::move(was)));
        CO_TRY(auto object,
               resource::read_object(
                   at.kind_, name,
                   json::object{{"name", name}, {"labels", std::move(written.labels)}, {"spec", std::move(written.spec)}}));
        CO_TRY(const auto outcome, co_await at.state_.resources.replace(call.ctx, at.kind_, std::move(object), {}));
        co_return co_await send_json(call, 200, json::object{{at.sort_.single, at.sort_.shown(outcome.object)}});
    }

    static Task<Unit> remove(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(std::ignore, at.found(name, parent));
        CO_TRY(std::ignore, co_await at.state_.resources.remove(call.ctx, at.kind_, name, {}));
        co_return co_await call.out.send(call.ctx, {204, {}, ""});
    }

    /// The monitors that look at a pool or a member, those of its pool included.
    static Task<Unit> monitors(Kosmos at, Call call, std::string name, std::string parent) {
        CO_TRY(const auto object, at.found(name, parent));
        auto names = kosmos::list_in(object.spec, "monitors");
        const auto& registry = at.state_.resources.registry();
        if (!parent.empty()) {
            CO_TRY(const auto pool, at.state_.resources.get(*registry.find("Pool"), parent));
            for (const auto& one : kosmos::list_in(pool.spec, "monitors")) names.push_back(one);
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
        auto shown = at.sort_.shown(object);
        json::object out{{"id", name}, {"status", shown.at("status")}};
        for (const auto* key : {"why", "because", "since", "answers", "pool"})
            if (const auto* value = object.status.if_contains(key)) out[key] = *value;
        co_return co_await send_json(call, 200, json::object{{"status", std::move(out)}});
    }

private:
    Result<Object> found(const std::string& name, const std::string& parent) const {
        TRY(auto object, state_.resources.get(kind_, name));
        if (!parent.empty() && text_in(object.spec, "pool") != parent)
            return Error{Code::not_found, fmt::format("pool {} has no member {}", parent.substr(0, 256), name.substr(0, 256))};
        return object;
    }
    static Task<json::object> body_of(Kosmos at, Call& call) {
        CO_TRY(const auto document, co_await read_document(call, at.state_.options.max_body));
        co_return kosmos::body_of(at.sort_, document);
    }

    Api::State& state_;
    const Sort& sort_;
    const Kind& kind_;
};

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
        json::object one{{"time", text_in(object.spec, "at")}, {"cause", text_in(object.spec, "cause")}};
        if (after != nullptr && after->is_object()) {
            one["status"] = kosmos::gslb_state({{"state", text_in(after->get_object(), "condition")}});
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
    for (const auto& use : kosmos::list_in(balancer.spec, "pools"))
        if (const auto pool = state.resources.get(*state.resources.registry().find("Pool"), text_in(use.as_object(), "pool"));
            pool.ok()) {
            auto shown = kosmos::pool().shown(*pool);
            shown["type"] = text_in(use.as_object(), "tier") == "passive" ? "PASSIVE" : "ACTIVE";
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
                          .response = status == 204 ? json::object{} : any,
                          .status = status,
                          .handler = std::move(handler)});
    };
    using Handler = Task<Unit> (*)(Kosmos, Call, std::string, std::string);
    /// `with_parent`: the pool is the path's {name}, and what is meant its {member}.
    const auto single = [&](const char* method, const std::string& pattern, const Sort& sort, const std::string& summary,
                            Handler handler, bool with_parent, int status = 200) {
        add(method, pattern, sort, summary, status, [of, what = &sort, handler, with_parent](Call call) {
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
        single("DELETE", one, sort, "Delete a " + sort.single, &Kosmos::remove, with_parent, 204);
        single("GET", one + "/status", sort, "The state of a " + sort.single, &Kosmos::status, with_parent);
    };
    for (const auto* sort : {&kosmos::gslb(), &kosmos::pool(), &kosmos::monitor()})
        all_of(*sort, "/v0.1/" + sort->plural, "/v0.1/" + sort->plural + "/{name}", false);
    all_of(kosmos::member(), "/v0.1/pools/{name}/pool_members", "/v0.1/pools/{name}/pool_members/{member}", true);
    single("GET", "/v0.1/pools/{name}/monitors", kosmos::pool(), "The monitors of a pool", &Kosmos::monitors, false);
    single("GET", "/v0.1/pools/{name}/pool_members/{member}/monitors", kosmos::member(), "The monitors of a pool_member",
           &Kosmos::monitors, true);
    add("GET", "/v0.1/gslbs/{name}/history", kosmos::gslb(), "What was decided about a gslb, the newest first", 200,
        [of](Call call) { return show_history(*of, std::move(call)); });
    add("GET", "/v0.1/gslbs/{name}/pools", kosmos::gslb(), "The pools of a gslb", 200,
        [of](Call call) { return show_pools(*of, std::move(call)); });
}

} // namespace orrery::api
