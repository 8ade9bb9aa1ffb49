#include "core/log.h"
#include "gslb/publish/zone_publisher_state.h"

#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace orrery::gslb {

using namespace std::chrono_literals;

std::string_view name_of(PublishState state) {
    switch (state) {
    case PublishState::pending: return "PENDING";
    case PublishState::in_sync: return "IN_SYNC";
    case PublishState::drift: return "DRIFT";
    case PublishState::error: return "ERROR";
    }
    return "?";
}

// --- status ---

void ZonePublisher::State::set_status(Entry& entry, PublishState state, std::string message) {
    auto& status = entry.status;
    const bool same = status.state == state && status.message == message;
    if (status.state != state) status.since = clock.wall();
    status.state = state;
    status.message = std::move(message);
    if (!same) notify(entry);
}

void ZonePublisher::State::notify(const Entry& entry) {
    if (!on_change) return;
    const auto copy = entry.status; // the callback may change the entry
    on_change(copy);
}

void ZonePublisher::State::wake() {
    if (publish_more) publish_more->notify_all();
}

void ZonePublisher::State::wake_checker() {
    if (ask_more) ask_more->notify_all();
}

// --- decisions ---

void ZonePublisher::State::desire(const std::string& name, Desired desired) {
    const auto now = clock.steady();
    auto [at, is_new] = names.try_emplace(name);
    auto& entry = at->second;
    entry.status.name = name;
    const bool same = !is_new && !entry.leaving && same_data(entry.desired.sets, desired.sets) &&
                      entry.desired.empty_is_meant == desired.empty_is_meant;
    entry.desired = std::move(desired);
    entry.leaving = false;
    entry.status.decision = entry.desired.decision;
    if (same) return;
    restart(entry, now);
}

void ZonePublisher::State::withdraw(const std::string& name) {
    const auto found = names.find(name);
    if (found == names.end() || found->second.leaving) return;
    auto& entry = found->second;
    entry.leaving = true;
    entry.desired = {.sets = {}, .empty_is_meant = true, .decision = entry.desired.decision, .reason = "the name is withdrawn"};
    restart(entry, clock.steady());
}

void ZonePublisher::State::repair(const std::string& name) {
    const auto found = names.find(name);
    if (found == names.end()) return;
    found->second.repair = true;
    restart(found->second, clock.steady());
}

void ZonePublisher::State::restart(Entry& entry, SteadyTime now) {
    entry.decided = now;
    entry.dirty = true;
    entry.at_service = entry.seen = false;
    entry.ask_due = never;
    entry.failures = 0;
    entry.due = now + options.gather;
    entry.status.desired = entry.desired.sets;
    entry.status.decided_at = clock.wall();
    entry.status.time_to_publish.reset();
    entry.status.withheld = false;
    entry.status.servers.clear();
    // A new decision retries a failing target sooner.
    if (failures > 0) not_before = std::min(not_before, std::max(now, tried + options.first_backoff));
    if (failures > 0)
        set_status(entry, PublishState::error, target_error());
    else
        set_status(entry, PublishState::pending, "to be written");
    wake();
}

std::string ZonePublisher::State::target_error() const { return fmt::format("{}; the last answer stays", last_failure); }

// --- the service ---

Duration ZonePublisher::State::backoff(int failed, Duration max) {
    auto wait = options.first_backoff;
    for (; failed > 1 && wait < max; --failed) wait *= 2;
    return std::chrono::duration_cast<Duration>(std::min(wait, max) * std::uniform_real_distribution<>(0.75, 1.0)(random));
}

std::vector<std::string> ZonePublisher::State::due_names(SteadyTime now) const {
    std::vector<std::string> out, polls;
    const auto max = std::max<std::size_t>(1, provider.max_batch());
    for (const auto& [name, entry] : names)
        if (entry.due <= now && out.size() < max) (entry.dirty ? out : polls).push_back(name);
    polls.resize(std::min(polls.size(), max - out.size()));
    out.insert(out.end(), polls.begin(), polls.end());
    return out;
}

SteadyTime ZonePublisher::State::next_due() const {
    auto out = never;
    for (const auto& [name, entry] : names) out = std::min(out, entry.due);
    return out == never ? never : std::max(out, not_before);
}

void ZonePublisher::State::target_failed(const Context& ctx, const std::vector<std::string>& due, Error error) {
    ++counts.failures;
    ++failures;
    not_before = clock.steady() + backoff(failures, options.max_backoff);
    last_failure = fmt::format("{}: {}", provider.description(), error.message);
    if (!error.remedy.empty()) last_failure += fmt::format(" (fix: {})", error.remedy);
    if (failures == 1)
        log::warn(ctx, "publication failed: zone={} provider=\"{}\": {}", options.zone, provider.description(), error.text());
    for (const auto& name : due)
        if (const auto found = names.find(name); found != names.end()) {
            auto& entry = found->second;
            entry.status.last_error = last_failure;
            if (entry.dirty) {
                set_status(entry, PublishState::error, target_error());
            } else {
                entry.due = not_before; // a poll only: the state is not known to have changed
            }
        }
}

Task<Unit> ZonePublisher::State::round(Context ctx) {
    const auto due = due_names(clock.steady());
    if (due.empty()) co_return Unit{};
    tried = clock.steady();
    ++counts.reads;
    const auto limited = ctx.with_timeout(options.call_timeout, clock);
    auto read = co_await within_deadline(limited, provider.read(limited, options.zone, due), clock);
    if (read.ok() && read->size() != due.size()) read = Error{Code::internal, "the provider did not return every name"};
    if (!read.ok()) {
        if (read.error().code == Code::cancelled) co_return std::move(read).error();
        target_failed(ctx, due, std::move(read).error());
        co_return Unit{};
    }
    std::vector<ProviderRecords> wanted;
    for (const auto& name : due) {
        const auto found = names.find(name);
        wanted.push_back({name, found == names.end() ? RecordSets{} : found->second.desired.sets, true, {}});
    }
    auto normalised = co_await within_deadline(limited, provider.normalised(limited, options.zone, std::move(wanted)), clock);
    if (normalised.ok() && normalised->size() != due.size())
        normalised = Error{Code::internal, "the provider did not normalise every name"};
    if (!normalised.ok()) {
        if (normalised.error().code == Code::cancelled) co_return std::move(normalised).error();
        target_failed(ctx, due, std::move(normalised).error());
        co_return Unit{};
    }
    std::vector<Change> changes;
    for (std::size_t i = 0; i < due.size(); ++i)
        if (auto change = compare(ctx, due[i], (*read)[i], (*normalised)[i].sets)) changes.push_back(std::move(*change));
    if (!changes.empty()) {
        CO_TRY(std::ignore, co_await write(ctx, std::move(changes)));
    }
    if (failures > 0 && not_before <= clock.steady()) recovered(ctx);
    co_return Unit{};
}

void ZonePublisher::State::recovered(const Context& ctx) {
    log::info(ctx, "publication recovered: zone={} provider=\"{}\" failures={}", options.zone, provider.description(), failures);
    failures = 0;
    last_failure.clear();
}

std::optional<Change> ZonePublisher::State::compare(const Context& ctx, const std::string& name, const ProviderRecords& current,
                                                    const RecordSets& wanted) {
    const auto found = names.find(name);
    if (found == names.end()) return std::nullopt;
    auto& entry = found->second;
    entry.wanted = wanted;
    entry.status.observed = current.sets;
    entry.status.observed_at = clock.wall();
    entry.due = clock.steady() + options.poll_interval;
    auto by = options.ownership_policy;
    if (entry.repair) by.repair = by.adopt = true;
    auto plan = plan_for(wanted, entry.desired.empty_is_meant, current.sets, entry.published ? &*entry.published : nullptr, by);
    entry.status.withheld = plan.action == Plan::Action::withhold;
    entry.status.last_error.clear();
    switch (plan.action) {
    case Plan::Action::withhold:
        entry.dirty = false;
        set_status(entry, PublishState::error, plan.message);
        return std::nullopt;
    case Plan::Action::drift:
        entry.dirty = false;
        if (entry.leaving) {
            forget(found, "withdrawn; records of others are kept: " + plan.message);
            return std::nullopt;
        }
        if (entry.status.state != PublishState::drift)
            log::warn(ctx, "publication drift: name={} provider=\"{}\": {}", name, provider.description(), plan.message);
        entry.at_service = false;
        entry.ask_due = never;
        set_status(entry, PublishState::drift, plan.message);
        return std::nullopt;
    case Plan::Action::in_place:
        entry.published = current.sets;
        at_service(found, current.propagated, current.error);
        return std::nullopt;
    case Plan::Action::write: break;
    }
    if (plan.repairs) {
        log::warn(ctx, "publication repaired: name={} provider=\"{}\": {}", name, provider.description(), plan.message);
        if (!entry.dirty) { // it was in sync before: a new publication time starts
            entry.decided = clock.steady();
            entry.status.decided_at = clock.wall();
            entry.status.time_to_publish.reset();
            entry.at_service = entry.seen = false; // so that the name servers are queried again
        }
        set_status(entry, PublishState::pending, "repair: " + plan.message);
    }
    entry.dirty = true;
    return Change{name, current.sets, std::move(plan.after), wanted.empty(), entry.desired.reason};
}

Task<Unit> ZonePublisher::State::write(Context ctx, std::vector<Change> changes) {
    ++counts.publishes;
    counts.changes += changes.size();
    std::vector<std::string> changed;
    std::vector<RecordSets> after;
    // A decision that arrives during the call is newer than this write.
    for (const auto& change : changes) {
        changed.push_back(change.name);
        after.push_back(change.after);
        names.find(change.name)->second.dirty = false;
    }
    const auto limited = ctx.with_timeout(options.call_timeout, clock);
    auto done = co_await within_deadline(limited, provider.publish(limited, options.zone, std::move(changes)), clock);
    if (done.ok() && done->size() != changed.size())
        done = Error{Code::internal, "the provider did not return a result for every change"};
    if (!done.ok()) {
        if (done.error().code == Code::cancelled) co_return std::move(done).error();
        // Some changes may have been made: the next read shows which.
        for (const auto& name : changed)
            if (const auto found = names.find(name); found != names.end()) {
                found->second.published.reset();
                found->second.dirty = true;
                found->second.due = clock.steady();
            }
        target_failed(ctx, changed, std::move(done).error());
        co_return Unit{};
    }
    std::optional<Error> whole; // if all changes fail, the target itself fails
    for (std::size_t i = 0; i < changed.size(); ++i) {
        const auto found = names.find(changed[i]);
        if (found == names.end()) continue;
        const auto& result = (*done)[i];
        if (result.ok()) {
            found->second.published = after[i];
            found->second.status.observed = after[i];
            found->second.status.observed_at = clock.wall();
            found->second.repair = false;
            if (!found->second.dirty) at_service(found, result->propagated, {});
        } else {
            refused(ctx, found->second, result.error());
            if (i == 0 && result.error().code != Code::conflict && result.error().code != Code::invalid) whole = result.error();
        }
    }
    if (whole && std::none_of(done->begin(), done->end(), [](const auto& result) { return result.ok(); }))
        target_failed(ctx, changed, std::move(*whole));
    co_return Unit{};
}

void ZonePublisher::State::refused(const Context& ctx, Entry& entry, const Error& error) {
    ++entry.failures;
    ++counts.failures;
    entry.dirty = true;
    entry.status.last_error = error.text();
    const bool as_it_is = error.code == Code::invalid || error.code == Code::too_large || error.code == Code::unsupported;
    if (error.code == Code::conflict) {
        entry.published.reset(); // the next read shows the owner
        entry.due = clock.steady() + (entry.failures > 1 ? backoff(entry.failures, options.max_backoff) : Duration{});
        set_status(entry, PublishState::pending, "another writer changed the name at the same time; reading again");
        return;
    }
    entry.published.reset();
    entry.due = clock.steady() + backoff(entry.failures, as_it_is ? options.refused_backoff : options.max_backoff);
    if (entry.failures == 1)
        log::warn(ctx, "change refused: name={} provider=\"{}\": {}", entry.status.name, provider.description(), error.text());
    set_status(entry, PublishState::error,
               fmt::format("{}: {}{}; the last answer stays", provider.description(), error.message,
                           error.remedy.empty() ? "" : fmt::format(" (fix: {})", error.remedy)));
}

void ZonePublisher::State::at_service(EntryIterator at, bool propagated, const std::string& error) {
    auto& entry = at->second;
    const auto now = clock.steady();
    entry.failures = 0;
    entry.dirty = false;
    if (entry.leaving) return forget(at, {});
    const bool first = !std::exchange(entry.at_service, true);
    if (first) entry.written = now;
    entry.error = error;
    if (options.servers.empty()) {
        if (!error.empty()) {
            entry.due = now + std::min<Duration>(options.poll_interval, max_ask_interval);
            set_status(entry, PublishState::error, fmt::format("{} stored it, but reports: {}", provider.description(), error));
        } else if (!propagated) {
            entry.due = now + std::min<Duration>(options.poll_interval, 1s);
            if (now - entry.written > options.propagation_timeout)
                set_status(entry, PublishState::error,
                           fmt::format("{} stored it {} ago and does not serve it yet", provider.description(),
                                       to_text(std::chrono::duration_cast<std::chrono::seconds>(now - entry.written))));
            else
                set_status(entry, PublishState::pending, "stored by the service, not served yet");
        } else {
            served(at);
        }
        return;
    }
    if (!propagated || !error.empty()) entry.due = now + std::min<Duration>(options.poll_interval, max_ask_interval);
    if (first) {
        entry.ask_wait = first_ask_interval;
        entry.ask_due = now;
        if (!entry.seen) set_status(entry, PublishState::pending, "written; querying the name servers");
    } else if (entry.seen) {
        entry.ask_due = now;
    }
    wake_checker();
}

void ZonePublisher::State::served(EntryIterator at) {
    auto& entry = at->second;
    if (!entry.seen) entry.status.time_to_publish = clock.steady() - entry.decided;
    entry.seen = true;
    entry.ask_due = never;
    set_status(entry, PublishState::in_sync, {});
}

void ZonePublisher::State::forget(EntryIterator at, std::string message) {
    auto status = std::move(at->second.status);
    names.erase(at);
    status.removed = true;
    status.message = std::move(message);
    status.state = status.message.empty() ? PublishState::in_sync : PublishState::drift;
    status.since = clock.wall();
    if (on_change) on_change(status);
}

ZonePublisher::ZonePublisher(Clock& clock, DnsProvider& provider, NameServers* servers, Options options, OnChange on_change)
    : state_(std::make_shared<State>(clock, provider, servers, std::move(options), std::move(on_change))) {}
ZonePublisher::~ZonePublisher() = default;

void ZonePublisher::desire(const std::string& name, Desired desired) { state_->desire(name, std::move(desired)); }
void ZonePublisher::withdraw(const std::string& name) { state_->withdraw(name); }
void ZonePublisher::repair(const std::string& name) { state_->repair(name); }

const PublishStatus* ZonePublisher::status(std::string_view name) const {
    const auto found = state_->names.find(name);
    return found == state_->names.end() ? nullptr : &found->second.status;
}

std::vector<const PublishStatus*> ZonePublisher::statuses() const {
    std::vector<const PublishStatus*> out;
    for (const auto& [name, entry] : state_->names) out.push_back(&entry.status);
    return out;
}

ZonePublisher::Counts ZonePublisher::counts() const {
    auto out = state_->counts;
    out.names = state_->names.size();
    for (const auto& [name, entry] : state_->names) out.waiting += entry.dirty ? 1 : 0;
    return out;
}

namespace {

/// Waits for a notification or until `when`; false when cancelled.
asio::awaitable<bool> wait_for_work(Context ctx, Notifier& more, SteadyTime when, Clock& clock) {
    auto waited =
        when == never ? co_await more.wait(ctx) : co_await within_deadline(ctx.with_deadline(when), more.wait(ctx), clock);
    co_return waited.ok() || waited.error().code == Code::timeout;
}

template <class State> asio::awaitable<void> publish_loop(std::shared_ptr<State> state, Context ctx) {
    for (;;) {
        const auto when = state->next_due();
        if (when > state->clock.steady()) {
            const bool goes_on = co_await wait_for_work(ctx, *state->publish_more, when, state->clock);
            if (!goes_on) co_return;
            continue;
        }
        auto done = co_await state->round(Context::make(ctx.actor()));
        if (!done.ok()) co_return;
    }
}

template <class State> asio::awaitable<void> ask_loop(std::shared_ptr<State> state, Context ctx) {
    for (;;) {
        const auto when = state->next_ask();
        if (when > state->clock.steady()) {
            const bool goes_on = co_await wait_for_work(ctx, *state->ask_more, when, state->clock);
            if (!goes_on) co_return;
            continue;
        }
        co_await state->ask_round(Context::make(ctx.actor()));
    }
}

} // namespace

asio::awaitable<void> ZonePublisher::run(Context ctx) {
    auto state = state_;
    const auto executor = co_await asio::this_coro::executor;
    state->publish_more = std::make_unique<Notifier>(executor);
    state->ask_more = std::make_unique<Notifier>(executor);
    ctx = ctx.without_deadline();
    TaskGroup group(executor);
    group.spawn(publish_loop(state, ctx));
    group.spawn(ask_loop(state, ctx));
    try {
        co_await group.join();
    } catch (const boost::system::system_error&) { // NOLINT: cancellation; the clean-up follows
    }
    co_await asio::this_coro::reset_cancellation_state();
    co_await group.stop();
}

} // namespace orrery::gslb
