#include "gslb/publishing.h"

#include "core/log.h"
#include "gslb/compile.h"
#include "gslb/model.h"
#include "gslb/read.h"
#include "resource/object.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace orrery::gslb {

namespace {

/// Finer differences are not worth another status.
using tenths = std::chrono::duration<std::int64_t, std::deci>;
constexpr auto gather_statuses_of_publishers = std::chrono::milliseconds(500);

std::string with_dot(std::string_view name) { return lowered_name(name) + "."; }

/// Who would be in an answer to anybody.
std::vector<const Serving*> everybody_in(const Decision& decision) {
    const auto& answer = decision.answers.front();
    if (answer.picking == Answers::subset || answer.picking == Answers::sticky || answer.picking == Answers::sticky_by_name)
        return select(decision, {}, std::nullopt, {}).members;
    std::vector<const Serving*> out;
    const bool weights =
        std::any_of(answer.candidates.begin(), answer.candidates.end(), [](const auto& one) { return one.weight > 0; });
    for (const auto& one : answer.candidates)
        if (one.weight > 0 || !weights) out.push_back(&one);
    const bool one_of_them = answer.picking == Answers::weighted;
    if (!one_of_them && answer.most > 0 && out.size() > answer.most) out.resize(answer.most);
    return out;
}

/// In the order of trouble.
int trouble_in(PublishState state) {
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
    if (!decision.because.empty()) out.reason = decision.because.back();
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
    for (const auto* one : everybody_in(decision))
        for (auto& text : one->addresses.texts()) (text.find(':') == std::string::npos ? v4 : v6).push_back(std::move(text));
    add(RecordType::a, std::move(v4));
    add(RecordType::aaaa, std::move(v6));
    out.empty_is_meant = out.sets.empty() && answer.empty == AllDown::nodata;
    return out;
}

struct Publishing::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor_, resource::Resources& resources_, store::Leadership& leadership_, Clock& clock_,
          PublisherMaker& maker_, NameServers* servers_)
        : executor(std::move(executor_)),
          resources(resources_),
          leadership(leadership_),
          clock(clock_),
          maker(maker_),
          servers(servers_),
          to_write(executor) {}

    struct Wanted {
        std::string zone;
        Desired desired;
    };
    /// One zone at one publisher, as long as it is published there by us.
    struct Route {
        Route(const asio::any_io_executor& executor, Clock& clock, std::shared_ptr<Publisher> to_, NameServers* servers,
              Publication::Options options, Publication::OnChange on_change)
            : to(std::move(to_)),
              publication(clock, *to, servers, std::move(options), std::move(on_change)),
              over(executor),
              group(executor) {}
        std::shared_ptr<Publisher> to;
        Publication publication;
        Notifier over;
        bool closed = false;
        Duration slowest{}; ///< from a decision to the name servers, of all names
        TaskGroup group;
    };
    struct Outlet {
        json::object spec;
        std::string trouble;                                  ///< why nothing goes there
        std::string recorded;                                 ///< the state of the last event
        std::map<std::string, std::shared_ptr<Route>> routes; ///< by zone; only while we lead
    };

    asio::any_io_executor executor;
    resource::Resources& resources;
    store::Leadership& leadership;
    Clock& clock;
    PublisherMaker& maker;
    NameServers* servers;
    std::map<std::string, Wanted> wanted; ///< by fqdn
    std::map<std::string, Outlet> outlets;
    OnStanding on_standing;
    TaskGroup* term = nullptr; ///< while we lead
    Context ctx = Context::background();
    Notifier to_write;
    std::set<std::string> statuses;
    std::vector<std::shared_ptr<void>> observed;

    static asio::awaitable<void> hold(std::shared_ptr<Route> route, Context ctx) {
        co_await asio::this_coro::throw_if_cancelled(false);
        route->group.spawn(route->publication.run(ctx));
        while (!route->closed)
            if (!(co_await route->over.wait(ctx)).ok()) break;
        co_await route->group.stop();
    }

    static void close(Outlet& outlet) {
        for (auto& [zone, route] : outlet.routes) {
            route->closed = true;
            route->over.notify_all();
        }
        outlet.routes.clear();
    }

    void open(const std::string& name, Outlet& outlet) {
        outlet.trouble.clear();
        statuses.insert(name);
        to_write.notify_all();
        if (term == nullptr) return;
        auto made = maker.make(name, outlet.spec);
        if (!made.ok()) {
            outlet.trouble = made.error().message;
            log::warn(ctx, "nothing is published by {}: {}", name, made.error().text());
            return;
        }
        for (const auto& zone : texts_at(outlet.spec, "zones")) {
            Publication::Options options;
            options.zone = with_dot(zone);
            options.ownerships = {text_at(outlet.spec, "owner"), flag_at(outlet.spec, "repair"), flag_at(outlet.spec, "adopt")};
            options.servers = texts_at(outlet.spec, "check_servers");
            options.look_every = duration_at(outlet.spec, "look_every", options.look_every);
            auto route = std::make_shared<Route>(executor, clock, *made, servers, std::move(options),
                                                 [this, name](const PublishStatus& status) { changed(name, status); });
            outlet.routes.emplace(zone, route);
            for (const auto& [fqdn, one] : wanted)
                if (one.zone == zone) route->publication.desire(with_dot(fqdn), one.desired);
            term->spawn(hold(route, ctx));
        }
    }

    void changed(const std::string& name, const PublishStatus& status) {
        if (const auto outlet = outlets.find(name); status.time_to_publish && outlet != outlets.end())
            for (auto& [zone, route] : outlet->second.routes)
                if (route->publication.status(status.name) != nullptr)
                    route->slowest = std::max<Duration>(route->slowest, std::chrono::ceil<tenths>(*status.time_to_publish));
        statuses.insert(name);
        to_write.notify_all();
        if (on_standing) on_standing(lowered_name(status.name));
    }

    void take(const std::string& name, const store::Record* record) {
        const auto object =
            record == nullptr ? Result<resource::Object>(Error{Code::not_found, ""}) : resource::from_stored(*record);
        if (!object.ok()) {
            if (const auto known = outlets.find(name); known != outlets.end()) close(known->second);
            outlets.erase(name);
            return;
        }
        auto& outlet = outlets[name];
        if (outlet.spec == object->spec) return;
        close(outlet);
        outlet.spec = object->spec;
        open(name, outlet);
    }

    void secret_changed(const std::string& secret) {
        for (auto& [name, outlet] : outlets)
            if (text_at(outlet.spec, "credentials") == secret) {
                close(outlet);
                open(name, outlet);
            }
    }

    json::object status_of(const Outlet& outlet) const {
        std::int64_t names = 0, in_sync = 0;
        const PublishStatus* worst = nullptr;
        std::optional<Duration> slowest;
        for (const auto& [zone, route] : outlet.routes)
            for (const auto* status : route->publication.statuses()) {
                ++names;
                if (status->time_to_publish) slowest = std::max(slowest.value_or(Duration::zero()), *status->time_to_publish);
                in_sync += status->state == PublishState::in_sync ? 1 : 0;
                if (worst == nullptr || trouble_in(status->state) > trouble_in(worst->state)) worst = status;
            }
        json::object out{{"state", !outlet.trouble.empty() ? "ERROR"
                                   : worst == nullptr      ? "idle"
                                                           : name_of(worst->state)},
                         {"names", names},
                         {"in_sync", in_sync}};
        if (slowest) out["seconds"] = std::chrono::round<std::chrono::milliseconds>(*slowest).count() / 1000.0;
        if (!outlet.trouble.empty())
            out["why"] = outlet.trouble;
        else if (worst != nullptr && !worst->why.empty())
            out["why"] = fmt::format("{}: {}", worst->name, worst->why);
        return out;
    }

    /// An event whenever a way out gets into trouble, or out of it.
    static asio::awaitable<void> note(std::shared_ptr<State> self, std::string name, const json::object& status) {
        const auto state = text_at(status, "state");
        if (state != "ERROR" && state != "DRIFT" && state != "IN_SYNC") co_return; // on its way: not worth a word
        const auto outlet = self->outlets.find(name);
        if (outlet == self->outlets.end() || outlet->second.recorded == state) co_return;
        const bool first = outlet->second.recorded.empty();
        outlet->second.recorded = state;
        if (first && state == "IN_SYNC") co_return;
        const auto* what = state == "ERROR" ? "publishing-failed" : state == "DRIFT" ? "publishing-drift" : "publishing-in-sync";
        std::ignore = co_await self->resources.record(
            self->ctx, {fmt::format("Publisher/{}", name), what, text_at(status, "why"),
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
                const auto found = self->outlets.find(name);
                const auto record = self->resources.find(kind, name);
                if (found == self->outlets.end() || !record) continue;
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

Publishing::Publishing(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Clock& clock,
                       PublisherMaker& maker, NameServers* servers)
    : state_(std::make_shared<State>(std::move(executor), resources, leadership, clock, maker, servers)) {
    auto* state = state_.get();
    state->observed.push_back(resources.store().observe(
        "secrets/", [state](const store::Event& event) { state->secret_changed(event.key.substr(event.key.find('/') + 1)); }));
    state->observed.push_back(resources.store().observe("publishers/", [state](const store::Event& event) {
        state->take(event.key.substr(event.key.find('/') + 1), event.record.get());
    }));
}

Publishing::~Publishing() { state_->observed.clear(); }

void Publishing::serve(std::vector<Change> changes) {
    for (const auto& change : changes) {
        const auto known = state_->wanted.find(change.fqdn);
        const auto from = known == state_->wanted.end() ? std::string() : known->second.zone;
        if (change.decision)
            state_->wanted[change.fqdn] = {change.zone, desired_of(*change.decision, change.number)};
        else if (known != state_->wanted.end())
            state_->wanted.erase(known);
        for (auto& [name, outlet] : state_->outlets) {
            if (const auto route = outlet.routes.find(from);
                !from.empty() && route != outlet.routes.end() && (!change.decision || from != change.zone))
                route->second->publication.withdraw(with_dot(change.fqdn));
            if (const auto route = outlet.routes.find(change.zone); change.decision && route != outlet.routes.end())
                route->second->publication.desire(with_dot(change.fqdn), state_->wanted.at(change.fqdn).desired);
        }
    }
}

json::array Publishing::standing(const std::string& fqdn) const {
    json::array out;
    for (const auto& [name, outlet] : state_->outlets)
        for (const auto& [zone, route] : outlet.routes) {
            const auto* status = route->publication.status(with_dot(fqdn));
            if (status == nullptr) continue;
            json::object one{{"path", name}, {"state", name_of(status->state)}, {"decision", status->decision}};
            if (!status->why.empty()) one["why"] = status->why;
            if (!status->last_error.empty()) one["last_error"] = status->last_error;
            if (status->time_to_publish)
                one["took_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(*status->time_to_publish).count();
            out.push_back(std::move(one));
        }
    return out;
}

Duration Publishing::slowest_publication(const std::string& fqdn) const {
    Duration out{};
    for (const auto& [name, outlet] : state_->outlets)
        for (const auto& [zone, route] : outlet.routes)
            if (route->publication.status(with_dot(fqdn)) != nullptr) out = std::max(out, route->slowest);
    return out;
}

void Publishing::report_to(OnStanding on_standing) { state_->on_standing = std::move(on_standing); }

asio::awaitable<void> Publishing::run(Context ctx) {
    const auto state = state_;
    state->ctx = ctx;
    co_await state->leadership.each_term(
        ctx,
        [state](TaskGroup& term, const store::Fence& fence) {
            state->term = &term;
            for (auto& [name, outlet] : state->outlets) state->open(name, outlet);
            term.spawn(State::write_loop(state, fence));
        },
        [state]() -> asio::awaitable<void> { // NOLINT: each_term keeps it for as long as it lasts
            state->term = nullptr;
            for (auto& [name, outlet] : state->outlets) outlet.routes.clear();
            co_return;
        });
}

} // namespace orrery::gslb
