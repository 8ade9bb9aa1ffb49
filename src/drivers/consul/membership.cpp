#include "core/json_fields.h"
#include "core/log.h"
#include "core/truncate.h"
#include "drivers/consul/caller.h"
#include "drivers/rest/rest.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

namespace orrery::drivers {

namespace {

using namespace std::chrono_literals;
using catalog::Member;
using catalog::Members;
using ServiceState = catalog::State;

} // namespace

Result<Members> read_health(std::string_view body, catalog::InvalidMemberLog* log) {
    const Error bad{Code::invalid, "the answer of Consul is not a list of instances"};
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
        const auto port = integer_at(service, "Port");
        member.port = static_cast<std::uint16_t>(port < 0 || port > 65535 ? 0 : port);
        member.tags = texts_at(service, "Tags");
        std::sort(member.tags.begin(), member.tags.end());
        member.state = ServiceState::passing;
        member.why = "its checks pass";
        for (const auto& value_of_check : array_at(item.get_object(), "Checks")) {
            if (!value_of_check.is_object()) return bad;
            const auto& check = value_of_check.get_object();
            member.checked = member.checked || !text_at(check, "ServiceID").empty();
            const auto status = text_at(check, "Status");
            if (status == "passing") continue;
            const auto state = status == "warning" ? ServiceState::usable : ServiceState::registered;
            if (state >= member.state) continue;
            member.state = state;
            member.why =
                fmt::format("check \"{}\" {}: {}", text_at(check, "Name"), state == ServiceState::usable ? "warns" : "is critical",
                            truncate(text_at(check, "Output"), 200));
        }
        if (auto problem = catalog::member_problem(member.node, member.address); !problem.empty()) {
            if (log != nullptr) log->note(text_at(service, "Service"), member);
            out.add_invalid(member, std::move(problem));
            continue;
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
        Result<Members> members = Error{Code::unavailable, "Consul has not answered yet"};
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

    void notify(const std::string& service) {
        const auto all = subscribers;
        for (const auto& weak : all)
            if (const auto subscriber = weak.lock()) (*subscriber)(service);
        std::erase_if(subscribers, [](const auto& weak) { return weak.expired(); });
    }

    void lose(const std::string& service, Error why) {
        auto& members = services[service].members;
        const bool had = members.ok(), is_news = had || members.error().message != why.message;
        members = Error{Code::unavailable, std::move(why.message), std::move(why.remedy)};
        if (had) log::warn(ctx, "Consul service unavailable: service={} error=\"{}\"", service, members.error().text());
        if (is_news) notify(service); // waiting tasks show the new reason
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
            auto answer =
                co_await self->caller.call(self->ctx.with_timeout(options.wait * 17 / 16 + options.grace), "GET", std::move(path));
            if (!answer.ok() && answer.error().code == Code::cancelled) co_return;
            const auto usable = answer.ok() ? check_evidence(*answer, options) : Result<Unit>(answer.error());
            auto members = usable.ok() ? read_health(answer->body, &self->invalid_members) : Result<Members>(usable.error());
            if (!members.ok()) {
                self->lose(service, members.error());
                index = 0;
                const auto jitter = std::uniform_real_distribution<>(0.75, 1.25)(self->random);
                const auto slept = co_await self->clock.sleep(std::chrono::duration_cast<Duration>(backoff * jitter));
                if (!slept.ok()) co_return;
                backoff = std::min(backoff * 2, options.max_backoff);
                continue;
            }
            backoff = options.first_backoff;
            const auto now = std::max<std::uint64_t>(1, index_of(*answer));
            index = now < index ? 0 : now; // the index decreased: another Consul, or one that was restored
            members->revision = static_cast<store::Revision>(now);
            auto& known = self->services[service].members;
            const bool changed = !known.ok() || known->all != members->all;
            known = std::move(*members);
            if (changed) self->notify(service);
            // A service that changes constantly is read at most ten times a second.
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
    catalog::InvalidMemberLog invalid_members;
    std::vector<std::weak_ptr<std::function<void(const std::string&)>>> subscribers;
    std::mt19937_64 random{std::random_device{}()};
};

ConsulMembership::ConsulMembership(std::shared_ptr<State> state) : state_(std::move(state)) {}
ConsulMembership::~ConsulMembership() = default;

Result<std::unique_ptr<ConsulMembership>> ConsulMembership::make(asio::any_io_executor executor, net::HttpClient& client,
                                                                 Clock& clock, ConsulOptions options) {
    while (options.url.ends_with('/')) options.url.pop_back();
    TRY(std::ignore, api_base("catalog.consul.url", options.url, options.allow_plaintext));
    return std::unique_ptr<ConsulMembership>(
        new ConsulMembership(std::make_shared<State>(std::move(executor), client, clock, std::move(options))));
}

Result<Members> ConsulMembership::members(std::string_view service, std::string_view tag) const {
    const auto& followed = state_->follow(std::string(service));
    if (!followed.members.ok() || tag.empty()) return followed.members;
    Members out;
    out.revision = followed.members->revision;
    out.invalid = followed.members->invalid;
    out.invalid_count = followed.members->invalid_count;
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
    state->group.reopen();
    state->running = true;
    std::vector<std::string> known; // requested before run() began
    for (const auto& [service, followed] : state->services) known.push_back(service);
    for (const auto& service : known) state->follow(service);
    std::ignore = co_await state->wanted.wait(ctx.without_deadline()); // never notified: waits until it is cancelled
    state->running = false;
    co_await state->group.stop();
    for (auto& [service, followed] : state->services) followed.runs = false;
}

} // namespace orrery::drivers
