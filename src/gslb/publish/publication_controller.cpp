#include "gslb/publish/publication_controller.h"

#include "core/json_fields.h"
#include "core/log.h"
#include "gslb/decide/compile_answers.h"
#include "gslb/model/specs.h"
#include "resource/object.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace orrery::gslb {

namespace {

/// The resolution of publication times: smaller differences cause no status write.
using tenths = std::chrono::duration<std::int64_t, std::deci>;
constexpr auto gather_statuses_of_publishers = std::chrono::milliseconds(500);

std::string with_dot(std::string_view name) { return lowered_name(name) + "."; }

/// All members that a response could contain.
std::vector<const AnswerMember*> all_members(const Decision& decision) {
    const auto& answer = decision.answers.front();
    if (answer.policy == Answers::subset || answer.policy == Answers::sticky || answer.policy == Answers::sticky_by_name)
        return select(decision, {}, std::nullopt, {}).members;
    std::vector<const AnswerMember*> out;
    const bool weights =
        std::any_of(answer.candidates.begin(), answer.candidates.end(), [](const auto& one) { return one.weight > 0; });
    for (const auto& one : answer.candidates)
        if (one.weight > 0 || !weights) out.push_back(&one);
    const bool one_of_them = answer.policy == Answers::weighted;
    if (!one_of_them && answer.max_answers > 0 && out.size() > answer.max_answers) out.resize(answer.max_answers);
    return out;
}

/// The order of states, worst last.
int severity_of(PublishState state) {
    switch (state) {
    case PublishState::in_sync: return 0;
    case PublishState::pending: return 1;
    case PublishState::drift: return 2;
    case PublishState::error: return 3;
    }
    return 3;
}

} // namespace

Desired desired_of(const Decision& decision, std::int64_t number) {
    Desired out;
    out.decision = static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0));
    if (!decision.messages.empty()) out.reason = decision.messages.back();
    const auto& answer = decision.answers.front();
    const auto add = [&](RecordType type, std::vector<std::string> values) {
        if (values.empty()) return;
        if (auto set = record_set(type, answer.ttl, std::move(values)); set.ok()) out.sets.push_back(std::move(*set));
    };
    if (!answer.alias.empty()) {
        add(RecordType::cname, {answer.alias});
        return out;
    }
    std::vector<std::string> v4, v6;
    for (const auto* one : all_members(decision))
        for (auto& text : one->addresses.texts()) (text.find(':') == std::string::npos ? v4 : v6).push_back(std::move(text));
    add(RecordType::a, std::move(v4));
    add(RecordType::aaaa, std::move(v6));
    out.empty_is_meant = out.sets.empty() && answer.empty == AllDown::nodata;
    return out;
}

struct PublicationController::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor_, resource::Resources& resources_, store::Leadership& leadership_, Clock& clock_,
          DnsProviderFactory& factory_, NameServers* servers_)
        : executor(std::move(executor_)),
          resources(resources_),
          leadership(leadership_),
          clock(clock_),
          factory(factory_),
          servers(servers_),
          to_write(executor) {}

    struct Wanted {
        std::string zone;
        Desired desired;
    };
    /// One zone at one Publisher, while this server is the leader.
    struct Route {
        Route(const asio::any_io_executor& executor, Clock& clock, std::shared_ptr<DnsProvider> to_, NameServers* servers,
              ZonePublisher::Options options, ZonePublisher::OnChange on_change)
            : to(std::move(to_)),
              publisher(clock, *to, servers, std::move(options), std::move(on_change)),
              over(executor),
              group(executor) {}
        std::shared_ptr<DnsProvider> to;
        ZonePublisher publisher;
        Notifier over;
        bool closed = false;
        Duration slowest{}; ///< from a decision to the name servers, of all names
        TaskGroup group;
    };
    struct PublisherEntry {
        json::object spec;
        std::string error;                                    ///< why nothing is published
        std::string recorded;                                 ///< the state in the last event
        std::map<std::string, std::shared_ptr<Route>> routes; ///< by zone; only while this server is the leader
    };

    asio::any_io_executor executor;
    resource::Resources& resources;
    store::Leadership& leadership;
    Clock& clock;
    DnsProviderFactory& factory;
    NameServers* servers;
    std::map<std::string, Wanted> wanted; ///< by fqdn
    std::map<std::string, PublisherEntry> publishers;
    OnStatusChange on_status_change;
    TaskGroup* term = nullptr; ///< while this server is the leader
    Context ctx = Context::background();
    Notifier to_write;
    std::set<std::string> statuses;
    std::vector<std::shared_ptr<void>> observed;

    static asio::awaitable<void> hold(std::shared_ptr<Route> route, Context ctx) {
        co_await asio::this_coro::throw_if_cancelled(false);
        route->group.spawn(route->publisher.run(ctx));
        while (!route->closed)
            if (!(co_await route->over.wait(ctx)).ok()) break;
        co_await route->group.stop();
    }

    static void close(PublisherEntry& entry) {
        for (auto& [zone, route] : entry.routes) {
            route->closed = true;
            route->over.notify_all();
        }
        entry.routes.clear();
    }

    void open(const std::string& name, PublisherEntry& entry) {
        entry.error.clear();
        statuses.insert(name);
        to_write.notify_all();
        if (term == nullptr) return;
        auto made = factory.make(name, entry.spec);
        if (!made.ok()) {
            entry.error = made.error().message;
            log::warn(ctx, "publisher not started: publisher={}: {}", name, made.error().text());
            return;
        }
        for (const auto& zone : texts_at(entry.spec, "zones")) {
            ZonePublisher::Options options;
            options.zone = with_dot(zone);
            options.ownership_policy = {text_at(entry.spec, "owner"), flag_at(entry.spec, "repair"), flag_at(entry.spec, "adopt")};
            options.servers = texts_at(entry.spec, "check_servers");
            options.poll_interval = duration_at(entry.spec, "poll_interval", options.poll_interval);
            auto route = std::make_shared<Route>(executor, clock, *made, servers, std::move(options),
                                                 [this, name](const PublishStatus& status) { changed(name, status); });
            entry.routes.emplace(zone, route);
            for (const auto& [fqdn, one] : wanted)
                if (one.zone == zone) route->publisher.desire(with_dot(fqdn), one.desired);
            term->spawn(hold(route, ctx));
        }
    }

    void changed(const std::string& name, const PublishStatus& status) {
        if (const auto entry = publishers.find(name); status.time_to_publish && entry != publishers.end())
            for (auto& [zone, route] : entry->second.routes)
                if (route->publisher.status(status.name) != nullptr)
                    route->slowest = std::max<Duration>(route->slowest, std::chrono::ceil<tenths>(*status.time_to_publish));
        statuses.insert(name);
        to_write.notify_all();
        if (on_status_change) on_status_change(lowered_name(status.name));
    }

    void apply_event(const std::string& name, const store::Record* record) {
        const auto object =
            record == nullptr ? Result<resource::Object>(Error{Code::not_found, ""}) : resource::from_stored(*record);
        if (!object.ok()) {
            if (const auto known = publishers.find(name); known != publishers.end()) close(known->second);
            publishers.erase(name);
            return;
        }
        auto& entry = publishers[name];
        if (entry.spec == object->spec) return;
        close(entry);
        entry.spec = object->spec;
        open(name, entry);
    }

    void secret_changed(const std::string& secret) {
        for (auto& [name, entry] : publishers)
            if (text_at(entry.spec, "credentials") == secret) {
                close(entry);
                open(name, entry);
            }
    }

    json::object status_of(const PublisherEntry& entry) const {
        std::int64_t names = 0, in_sync = 0;
        const PublishStatus* worst = nullptr;
        std::optional<Duration> slowest;
        for (const auto& [zone, route] : entry.routes)
            for (const auto* status : route->publisher.statuses()) {
                ++names;
                if (status->time_to_publish) slowest = std::max(slowest.value_or(Duration::zero()), *status->time_to_publish);
                in_sync += status->state == PublishState::in_sync ? 1 : 0;
                if (worst == nullptr || severity_of(status->state) > severity_of(worst->state)) worst = status;
            }
        json::object out{{"state", !entry.error.empty() ? "ERROR"
                                   : worst == nullptr   ? "idle"
                                                        : name_of(worst->state)},
                         {"names", names},
                         {"in_sync", in_sync}};
        if (slowest) out["seconds"] = std::chrono::round<std::chrono::milliseconds>(*slowest).count() / 1000.0;
        if (!entry.error.empty())
            out["message"] = entry.error;
        else if (worst != nullptr && !worst->message.empty())
            out["message"] = fmt::format("{}: {}", worst->name, worst->message);
        return out;
    }

    /// Records an event when a Publisher enters or leaves ERROR or DRIFT.
    static asio::awaitable<void> note(std::shared_ptr<State> self, std::string name, const json::object& status) {
        const auto state = text_at(status, "state");
        if (state != "ERROR" && state != "DRIFT" && state != "IN_SYNC") co_return; // PENDING is no event
        const auto entry = self->publishers.find(name);
        if (entry == self->publishers.end() || entry->second.recorded == state) co_return;
        const bool first = entry->second.recorded.empty();
        entry->second.recorded = state;
        if (first && state == "IN_SYNC") co_return;
        const auto* what = state == "ERROR" ? "publishing-failed" : state == "DRIFT" ? "publishing-drift" : "publishing-in-sync";
        std::ignore = co_await self->resources.record(
            self->ctx, {fmt::format("Publisher/{}", name), what, text_at(status, "message"),
                        json::object{{"names", status.at("names")}, {"in_sync", status.at("in_sync")}}});
    }

    static asio::awaitable<void> write_loop(std::shared_ptr<State> self, store::Fence fence) {
        const auto& kind = *self->resources.registry().find("Publisher");
        while (true) {
            while (self->statuses.empty()) {
                if (!(co_await self->to_write.wait(self->ctx)).ok()) co_return;
            }
            if (!(co_await self->clock.sleep(gather_statuses_of_publishers)).ok()) co_return;
            for (const auto& name : std::exchange(self->statuses, {})) {
                const auto found = self->publishers.find(name);
                const auto record = self->resources.find(kind, name);
                if (found == self->publishers.end() || !record) continue;
                auto status = self->status_of(found->second);
                co_await note(self, name, status);
                if (const auto object = resource::from_stored(*record); object.ok() && object->status == status) continue;
                const auto written =
                    co_await self->resources.set_status(self->ctx, kind, name, std::move(status), {.fence = &fence});
                if (written.ok() || written.error().code == Code::not_found) continue;
                if (written.error().code == Code::cancelled) co_return;
                self->statuses.insert(name);
            }
        }
    }
};

PublicationController::PublicationController(asio::any_io_executor executor, resource::Resources& resources,
                                             store::Leadership& leadership, Clock& clock, DnsProviderFactory& factory,
                                             NameServers* servers)
    : state_(std::make_shared<State>(std::move(executor), resources, leadership, clock, factory, servers)) {
    auto* state = state_.get();
    state->observed.push_back(resources.store().observe(
        "secrets/", [state](const store::Event& event) { state->secret_changed(event.key.substr(event.key.find('/') + 1)); }));
    state->observed.push_back(resources.store().observe("publishers/", [state](const store::Event& event) {
        state->apply_event(event.key.substr(event.key.find('/') + 1), event.record.get());
    }));
}

PublicationController::~PublicationController() { state_->observed.clear(); }

void PublicationController::serve(std::vector<Change> changes) {
    for (const auto& change : changes) {
        const auto known = state_->wanted.find(change.fqdn);
        const auto from = known == state_->wanted.end() ? std::string() : known->second.zone;
        if (change.decision)
            state_->wanted[change.fqdn] = {change.zone, desired_of(*change.decision, change.number)};
        else if (known != state_->wanted.end())
            state_->wanted.erase(known);
        for (auto& [name, entry] : state_->publishers) {
            if (const auto route = entry.routes.find(from);
                !from.empty() && route != entry.routes.end() && (!change.decision || from != change.zone))
                route->second->publisher.withdraw(with_dot(change.fqdn));
            if (const auto route = entry.routes.find(change.zone); change.decision && route != entry.routes.end())
                route->second->publisher.desire(with_dot(change.fqdn), state_->wanted.at(change.fqdn).desired);
        }
    }
}

json::array PublicationController::publication_status(const std::string& fqdn) const {
    json::array out;
    for (const auto& [name, entry] : state_->publishers)
        for (const auto& [zone, route] : entry.routes) {
            const auto* status = route->publisher.status(with_dot(fqdn));
            if (status == nullptr) continue;
            json::object one{{"target", name}, {"state", name_of(status->state)}, {"decision", status->decision}};
            if (!status->message.empty()) one["message"] = status->message;
            if (!status->last_error.empty()) one["last_error"] = status->last_error;
            if (status->time_to_publish)
                one["took_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(*status->time_to_publish).count();
            out.push_back(std::move(one));
        }
    return out;
}

Duration PublicationController::slowest_publication(const std::string& fqdn) const {
    Duration out{};
    for (const auto& [name, entry] : state_->publishers)
        for (const auto& [zone, route] : entry.routes)
            if (route->publisher.status(with_dot(fqdn)) != nullptr) out = std::max(out, route->slowest);
    return out;
}

void PublicationController::report_to(OnStatusChange on_status_change) { state_->on_status_change = std::move(on_status_change); }

asio::awaitable<void> PublicationController::run(Context ctx) {
    const auto state = state_;
    state->ctx = ctx;
    co_await state->leadership.for_each_term(
        ctx,
        [state](TaskGroup& term, const store::Fence& fence) {
            state->term = &term;
            for (auto& [name, entry] : state->publishers) state->open(name, entry);
            term.spawn(State::write_loop(state, fence));
        },
        [state]() -> asio::awaitable<void> { // NOLINT: for_each_term keeps it alive
            state->term = nullptr;
            for (auto& [name, entry] : state->publishers) entry.routes.clear();
            co_return;
        });
}

} // namespace orrery::gslb
