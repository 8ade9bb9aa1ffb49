#include "drivers/consul/consul.h"

#include "catalog/json_read.h"
#include "core/log.h"
#include "core/text.h"
#include "resource/controller.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <random>
#include <set>

namespace orrery::drivers {

namespace {

using namespace std::chrono_literals;
using catalog::Member;
using catalog::Members;
using catalog::object_at;
using catalog::text_at;
using catalog::texts_at;
using ServiceState = catalog::State;

constexpr std::string_view mark = "orrery-instance";

/// What both sides need to speak to Consul.
struct Caller {
    net::HttpClient& client;
    ConsulOptions options;

    Task<net::ClientResponse> call(Context ctx, std::string method, std::string path, std::string body = {}) const {
        net::ClientRequest request;
        request.method = std::move(method);
        if (!options.datacenter.empty())
            path +=
                fmt::format("{}dc={}", path.find('?') == std::string::npos ? '?' : '&', net::percent_encode(options.datacenter));
        CO_TRY(request.url, net::parse_url(options.url + path));
        if (!options.token.empty()) request.headers.set("X-Consul-Token", options.token);
        if (!body.empty()) request.headers.set("Content-Type", "application/json");
        request.body = std::move(body);
        co_return co_await client.send(std::move(ctx), std::move(request));
    }

    /// A write: `denied` or `unavailable` with Consul's own words where it was refused.
    Task<Unit> put(Context ctx, std::string path, const boost::json::object& body) const {
        CO_TRY(const auto answer, co_await call(ctx.with_timeout(10s), "PUT", std::move(path), to_json_text(body)));
        if (answer.status == 200) co_return Unit{};
        co_return Error{answer.status == 403  ? Code::denied
                        : answer.status < 500 ? Code::invalid
                                              : Code::unavailable,
                        fmt::format("Consul refused a registration with {}: {}", answer.status, answer.body.substr(0, 200)),
                        answer.status == 403 ? "give the token the rights to write nodes and services" : ""};
    }
};

std::uint64_t index_of(const net::ClientResponse& answer) {
    const auto text = answer.headers.get("X-Consul-Index");
    std::uint64_t out = 0;
    std::from_chars(text.data(), text.data() + text.size(), out);
    return out;
}

} // namespace

Result<Members> read_health(std::string_view body) {
    const Error bad{Code::invalid, "Consul's answer is not a list of instances"};
    const auto value = parse_json(body);
    if (!value.ok() || !value->is_array()) return bad;
    Members out;
    for (const auto& item : value->get_array()) {
        if (!item.is_object()) return bad;
        const auto& node = object_at(item.get_object(), "Node");
        const auto& service = object_at(item.get_object(), "Service");
        Member member;
        member.node = text_at(node, "Node");
        member.id = text_at(service, "ID");
        if (member.node.empty() || member.id.empty()) return bad;
        member.address = text_at(service, "Address");
        if (member.address.empty()) member.address = text_at(node, "Address");
        const auto port = catalog::number_at(service, "Port", 0);
        member.port = static_cast<std::uint16_t>(port < 0 || port > 65535 ? 0 : port);
        member.tags = texts_at(service, "Tags");
        std::sort(member.tags.begin(), member.tags.end());
        member.state = ServiceState::passing;
        member.why = "its checks pass";
        const auto* checks = item.get_object().if_contains("Checks");
        if (checks != nullptr && checks->is_array())
            for (const auto& check : checks->get_array()) {
                if (!check.is_object()) return bad;
                const auto status = text_at(check.get_object(), "Status");
                if (status == "passing") continue;
                const auto state = status == "warning" ? ServiceState::usable : ServiceState::registered;
                if (state >= member.state) continue;
                member.state = state;
                member.why = fmt::format("check \"{}\" {}: {}", text_at(check.get_object(), "Name"),
                                         state == ServiceState::usable ? "warns" : "is critical",
                                         text_at(check.get_object(), "Output").substr(0, 200));
            }
        out.all.push_back(std::move(member));
    }
    std::sort(out.all.begin(), out.all.end(),
              [](const Member& a, const Member& b) { return std::tie(a.node, a.id) < std::tie(b.node, b.id); });
    return out;
}

struct ConsulMembership::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor, net::HttpClient& client, Clock& clock_, ConsulOptions options)
        : caller{client, std::move(options)}, clock(clock_), group(executor), wanted(executor) {}

    struct Followed {
        Result<Members> members = Error{Code::unavailable, "Consul has not been asked yet"};
        std::weak_ptr<void> handle;
        SteadyTime asked_at{};
        bool runs = false;
    };

    Followed& follow(const std::string& service) {
        auto& followed = services[service];
        followed.asked_at = clock.steady();
        if (!followed.runs && running) {
            followed.runs = true;
            group.spawn(watch(shared_from_this(), service));
        }
        return followed;
    }

    void tell(const std::string& service) {
        const auto all = subscribers;
        for (const auto& weak : all)
            if (const auto subscriber = weak.lock()) (*subscriber)(service);
        std::erase_if(subscribers, [](const auto& weak) { return weak.expired(); });
    }

    void lose(const std::string& service, Error why) {
        auto& followed = services[service];
        const bool had = followed.members.ok();
        followed.members = Error{Code::unavailable, std::move(why.message), std::move(why.remedy)};
        if (had) {
            log::warn(ctx, "nothing is known of {} any more: {}", service, followed.members.error().message);
            tell(service);
        }
    }

    /// The one answer: members, or why there are none to be known.
    static Result<Members> judge(const net::ClientResponse& answer) {
        if (answer.status != 200)
            return Error{Code::unavailable, fmt::format("Consul answered {}: {}", answer.status, answer.body.substr(0, 200)),
                         answer.status == 403 ? "give the token the right to read nodes and services" : ""};
        if (answer.headers.get("X-Consul-Results-Filtered-By-ACLs") == "true")
            return Error{Code::unavailable, "Consul left something out that the token may not see",
                         "give the token the right to read all nodes and services"};
        if (answer.headers.get("X-Consul-KnownLeader") == "false") return Error{Code::unavailable, "Consul has no leader"};
        return read_health(answer.body);
    }

    static asio::awaitable<void> watch(std::shared_ptr<State> self, std::string service) {
        co_await asio::this_coro::throw_if_cancelled(false);
        std::uint64_t index = 0;
        auto backoff = self->caller.options.first_backoff;
        const auto& options = self->caller.options;
        for (;;) {
            auto& followed = self->services[service];
            if (followed.handle.expired() && self->clock.steady() - followed.asked_at > options.forget_after) break;
            auto path = fmt::format("/v1/health/service/{}", net::percent_encode(service));
            if (index > 0) path += fmt::format("?index={}&wait={}s", index, options.wait / 1s);
            const auto began = self->clock.steady();
            auto answer = co_await self->caller.call(self->ctx.with_timeout(options.wait * 17 / 16 + 15s), "GET", std::move(path));
            if (!answer.ok() && answer.error().code == Code::cancelled) co_return;
            auto members = answer.ok() ? judge(*answer) : Result<Members>(answer.error());
            if (!members.ok()) {
                self->lose(service, members.error());
                index = 0;
                const auto jitter = std::uniform_real_distribution<>(0.75, 1.25)(self->random);
                const auto slept = co_await self->clock.sleep(std::chrono::duration_cast<Duration>(backoff * jitter));
                if (!slept.ok()) co_return;
                backoff = std::min(backoff * 2, options.longest_backoff);
                continue;
            }
            backoff = options.first_backoff;
            const auto now = std::max<std::uint64_t>(1, index_of(*answer));
            index = now < index ? 0 : now; // it went back: another Consul, or one that was restored
            members->revision = static_cast<store::Revision>(now);
            auto& known = self->services[service].members;
            const bool changed = !known.ok() || known->all != members->all;
            known = std::move(*members);
            if (changed) self->tell(service);
            // A service that changes all the time is looked at a few times a second, not more.
            if (self->clock.steady() - began < 100ms) {
                const auto slept = co_await self->clock.sleep(100ms);
                if (!slept.ok()) co_return;
            }
        }
        self->services.erase(service);
    }

    Caller caller;
    Clock& clock;
    TaskGroup group;
    Notifier wanted;
    Context ctx = Context::make("consul");
    bool running = false;
    std::map<std::string, Followed> services;
    std::vector<std::weak_ptr<std::function<void(const std::string&)>>> subscribers;
    std::mt19937_64 random{std::random_device{}()};
};

ConsulMembership::ConsulMembership(std::shared_ptr<State> state) : state_(std::move(state)) {}
ConsulMembership::~ConsulMembership() = default;

Result<std::unique_ptr<ConsulMembership>> ConsulMembership::make(asio::any_io_executor executor, net::HttpClient& client,
                                                                 Clock& clock, ConsulOptions options) {
    while (options.url.ends_with('/')) options.url.pop_back();
    TRY(std::ignore, net::parse_url(options.url + "/"));
    return std::unique_ptr<ConsulMembership>(
        new ConsulMembership(std::make_shared<State>(std::move(executor), client, clock, std::move(options))));
}

Result<Members> ConsulMembership::members(std::string_view service, std::string_view tag) const {
    const auto& followed = state_->follow(std::string(service));
    if (!followed.members.ok() || tag.empty()) return followed.members;
    Members out;
    out.revision = followed.members->revision;
    for (const auto& member : followed.members->all)
        if (std::find(member.tags.begin(), member.tags.end(), tag) != member.tags.end()) out.all.push_back(member);
    return out;
}

std::shared_ptr<void> ConsulMembership::subscribe(std::function<void(const std::string&)> changed) {
    auto handle = std::make_shared<std::function<void(const std::string&)>>(std::move(changed));
    state_->subscribers.push_back(handle);
    return handle;
}

std::shared_ptr<void> ConsulMembership::follow(std::string_view service) {
    auto& followed = state_->follow(std::string(service));
    auto handle = followed.handle.lock();
    if (!handle) {
        handle = std::make_shared<int>(0);
        followed.handle = handle;
    }
    return handle;
}

asio::awaitable<void> ConsulMembership::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    state->ctx = ctx;
    state->running = true;
    std::vector<std::string> known; // asked about before we ran
    for (const auto& [service, followed] : state->services) known.push_back(service);
    for (const auto& service : known) state->follow(service);
    std::ignore = co_await state->wanted.wait(ctx.without_deadline()); // nobody tells: until we are cancelled
    state->running = false;
    co_await state->group.stop();
}

struct ConsulMirror::State {
    State(store::Store& store, net::HttpClient& client, const catalog::Catalog& catalog_, store::Leadership& leadership,
          Clock& clock_, ConsulOptions options)
        : caller{client, std::move(options)},
          catalog(catalog_),
          clock(clock_),
          controller(store, leadership, clock_, {"instances/", "nodes/", "catalognodes/"},
                     [this](Context ctx, std::string key, store::Fence) { return look_at(std::move(ctx), std::move(key)); },
                     {.at_once = 8}) {
        while (caller.options.url.ends_with('/')) caller.options.url.pop_back();
    }

    /// An agent keeps its node's services itself, and would take out what it does not know.
    Task<bool> has_agent(Context ctx, std::string node) {
        if (const auto known = agents.find(node); known != agents.end() && clock.steady() - known->second.second < 5min)
            co_return known->second.first;
        CO_TRY(const auto answer,
               co_await caller.call(ctx.with_timeout(10s), "GET", "/v1/health/node/" + net::percent_encode(node)));
        if (answer.status != 200)
            co_return Error{Code::unavailable, fmt::format("Consul answered {}: {}", answer.status, answer.body.substr(0, 200))};
        const auto checks = parse_json(answer.body);
        bool found = false;
        if (checks.ok() && checks->is_array())
            for (const auto& check : checks->get_array())
                if (check.is_object() && text_at(check.get_object(), "CheckID") == "serfHealth") found = true;
        if (agents.size() > 100'000) agents.clear();
        agents[node] = {found, clock.steady()};
        co_return found;
    }

    Task<Unit> look_at(Context ctx, std::string key) {
        CO_TRY(std::ignore, co_await remove_strays(ctx));
        const auto resource = key.substr(key.find('/') + 1);
        if (!key.starts_with("instances/")) { // its instances may be elsewhere now
            const auto node = key.starts_with("nodes/") ? catalog.node(resource) : catalog.find_node_resource(resource);
            if (node)
                for (const auto& instance : catalog.instances_on(node->name)) controller.poke("instances/" + instance->resource);
            co_return Unit{};
        }
        const auto view = catalog.find_resource(resource);
        if (!view) {
            const auto was = written.find(resource);
            if (was == written.end()) co_return Unit{};
            CO_TRY(std::ignore, co_await caller.put(ctx, "/v1/catalog/deregister",
                                                    {{"Node", was->second.first}, {"ServiceID", was->second.second}}));
            written.erase(was);
            co_return Unit{};
        }
        if (view->address.empty() && !view->on) co_return Unit{}; // nobody knows where it is
        CO_TRY(const bool skip, co_await has_agent(ctx, view->node));
        if (skip) {
            log::debug(ctx, "{} on {} is not written to Consul: an agent runs there", view->id, view->node);
            co_return Unit{};
        }
        boost::json::object meta;
        for (const auto& [name, value] : view->meta) meta[name] = value;
        meta[mark] = resource;
        boost::json::object service{
            {"ID", view->id},
            {"Service", view->service},
            {"Tags", boost::json::array(view->tags.begin(), view->tags.end())},
            {"Address", view->own_address},
            {"Port", view->port},
            {"Meta", std::move(meta)},
            {"Weights", boost::json::object{{"Passing", view->weight_passing}, {"Warning", view->weight_warning}}}};
        boost::json::array checks;
        for (const auto& check : view->checks)
            checks.push_back(boost::json::object{{"CheckID", check.check.id},
                                                 {"Name", check.check.name},
                                                 {"Status", name_of(check.result.status)},
                                                 {"Output", check.result.output},
                                                 {"ServiceID", view->id}});
        if (view->maintenance)
            checks.push_back(boost::json::object{{"CheckID", "_service_maintenance:" + view->id},
                                                 {"Name", "Service Maintenance Mode"},
                                                 {"Status", "critical"},
                                                 {"Notes", view->maintenance_reason},
                                                 {"ServiceID", view->id}});
        std::set<std::string> here;
        for (const auto& check : checks) here.emplace(std::string_view(check.at("CheckID").as_string()));
        const auto node_address = view->on && !view->on->address.empty() ? view->on->address : view->address;
        CO_TRY(std::ignore, co_await caller.put(ctx, "/v1/catalog/register",
                                                {{"Node", view->node},
                                                 {"Address", node_address},
                                                 {"NodeMeta", boost::json::object{{"external-node", "true"},
                                                                                  {"external-probe", "false"},
                                                                                  {"registered-by", "orrery"}}},
                                                 {"Service", std::move(service)},
                                                 {"Checks", std::move(checks)}}));
        written[resource] = {view->node, view->id};
        // Checks that are no longer there.
        for (const auto& gone : checks_written[resource])
            if (!here.contains(gone)) {
                CO_TRY(std::ignore, co_await caller.put(ctx, "/v1/catalog/deregister", {{"Node", view->node}, {"CheckID", gone}}));
            }
        checks_written[resource] = std::move(here);
        co_return Unit{};
    }

    /// Once a term: what carries our mark and is not ours any more.
    Task<Unit> remove_strays(Context ctx) {
        if (clock.steady() < strays_after) co_return Unit{};
        strays_after = clock.steady() + 10min;
        auto answer = co_await caller.call(ctx.with_timeout(20s), "GET", "/v1/catalog/nodes?node-meta=registered-by:orrery");
        if (!answer.ok() || answer->status != 200) {
            strays_after = SteadyTime{};
            co_return answer.ok()
                ? Error{Code::unavailable, fmt::format("Consul answered {}: {}", answer->status, answer->body.substr(0, 200))}
                : answer.error();
        }
        const auto nodes = parse_json(answer->body);
        if (!nodes.ok() || !nodes->is_array()) co_return Unit{};
        for (const auto& node : nodes->get_array()) {
            if (!node.is_object()) continue;
            const auto name = text_at(node.get_object(), "Node");
            CO_TRY(const auto services,
                   co_await caller.call(ctx.with_timeout(20s), "GET", "/v1/catalog/node/" + net::percent_encode(name)));
            const auto parsed = parse_json(services.body);
            if (services.status != 200 || !parsed.ok() || !parsed->is_object()) continue;
            bool any = false;
            for (const auto& [id, service] : object_at(parsed->get_object(), "Services")) {
                if (!service.is_object()) continue;
                const auto resource = text_at(object_at(service.get_object(), "Meta"), mark);
                const auto view = resource.empty() ? nullptr : catalog.find_resource(resource);
                if (resource.empty() || (view && view->node == name && view->id == std::string_view(id))) {
                    any = true;
                    continue;
                }
                log::info(ctx, "{} on {} is taken out of Consul: it is not ours any more", std::string_view(id), name);
                CO_TRY(std::ignore,
                       co_await caller.put(ctx, "/v1/catalog/deregister", {{"Node", name}, {"ServiceID", std::string_view(id)}}));
            }
            if (!any && catalog.instances_on(name).empty()) {
                CO_TRY(std::ignore, co_await caller.put(ctx, "/v1/catalog/deregister", {{"Node", name}}));
            }
        }
        co_return Unit{};
    }

    Caller caller;
    const catalog::Catalog& catalog;
    Clock& clock;
    SteadyTime strays_after{};
    std::map<std::string, std::pair<bool, SteadyTime>> agents;
    std::map<std::string, std::pair<std::string, std::string>> written; ///< resource → node, id
    std::map<std::string, std::set<std::string>> checks_written;
    resource::Controller controller;
};

ConsulMirror::ConsulMirror(store::Store& store, net::HttpClient& client, const catalog::Catalog& catalog,
                           store::Leadership& leadership, Clock& clock, ConsulOptions options)
    : state_(std::make_shared<State>(store, client, catalog, leadership, clock, std::move(options))) {}
ConsulMirror::~ConsulMirror() = default;

asio::awaitable<void> ConsulMirror::run(Context ctx) {
    const auto state = state_;
    co_await state->controller.run(ctx);
}

} // namespace orrery::drivers
