#include "core/log.h"
#include "gslb/publication_state.h"

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

// --- saying how it stands ---

void Publication::State::say(Entry& entry, PublishState state, std::string why) {
    auto& status = entry.status;
    const bool same = status.state == state && status.why == why;
    if (status.state != state) status.since = clock.wall();
    status.state = state;
    status.why = std::move(why);
    if (!same) tell(entry);
}

void Publication::State::tell(const Entry& entry) {
    if (!on_change) return;
    const auto copy = entry.status; // the one told may change what it is told of
    on_change(copy);
}

void Publication::State::wake() {
    if (publish_more) publish_more->notify_all();
}

void Publication::State::wake_asker() {
    if (ask_more) ask_more->notify_all();
}

// --- decisions ---

void Publication::State::desire(const std::string& name, Desired desired) {
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
    decide_anew(entry, now);
}

void Publication::State::withdraw(const std::string& name) {
    const auto found = names.find(name);
    if (found == names.end() || found->second.leaving) return;
    auto& entry = found->second;
    entry.leaving = true;
    entry.desired = {.sets = {}, .empty_is_meant = true, .decision = entry.desired.decision, .reason = "the name is withdrawn"};
    decide_anew(entry, clock.steady());
}

void Publication::State::repair(const std::string& name) {
    const auto found = names.find(name);
    if (found == names.end()) return;
    found->second.repair = true;
    decide_anew(found->second, clock.steady());
}

void Publication::State::decide_anew(Entry& entry, SteadyTime now) {
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
    // A path that fails is tried a little sooner for a new decision than for old ones.
    if (failures > 0) not_before = std::min(not_before, std::max(now, tried + options.first_backoff));
    if (failures > 0)
        say(entry, PublishState::error, path_trouble());
    else
        say(entry, PublishState::pending, "to be written");
    wake();
}

std::string Publication::State::path_trouble() const { return fmt::format("{}; the last answer stands", last_failure); }

// --- the service ---

Duration Publication::State::backoff(int failed, Duration longest) {
    auto wait = options.first_backoff;
    for (; failed > 1 && wait < longest; --failed) wait *= 2;
    return std::chrono::duration_cast<Duration>(std::min(wait, longest) * std::uniform_real_distribution<>(0.75, 1.0)(random));
}

std::vector<std::string> Publication::State::due_names(SteadyTime now) const {
    std::vector<std::string> out, looks;
    const auto most = std::max<std::size_t>(1, publisher.most_at_once());
    for (const auto& [name, entry] : names)
        if (entry.due <= now && out.size() < most) (entry.dirty ? out : looks).push_back(name);
    looks.resize(std::min(looks.size(), most - out.size()));
    out.insert(out.end(), looks.begin(), looks.end());
    return out;
}

SteadyTime Publication::State::next_due() const {
    auto out = never;
    for (const auto& [name, entry] : names) out = std::min(out, entry.due);
    return out == never ? never : std::max(out, not_before);
}

void Publication::State::path_failed(const Context& ctx, const std::vector<std::string>& due, Error error) {
    ++counts.failures;
    ++failures;
    not_before = clock.steady() + backoff(failures, options.longest_backoff);
    last_failure = fmt::format("{}: {}", publisher.description(), error.message);
    if (!error.remedy.empty()) last_failure += fmt::format(" (fix: {})", error.remedy);
    if (failures == 1) log::warn(ctx, "{} cannot be published to {}: {}", options.zone, publisher.description(), error.text());
    for (const auto& name : due)
        if (const auto found = names.find(name); found != names.end()) {
            auto& entry = found->second;
            entry.status.last_error = last_failure;
            if (entry.dirty) {
                say(entry, PublishState::error, path_trouble());
            } else {
                entry.due = not_before; // only a look: how it stands is not known to have changed
            }
        }
}

Task<Unit> Publication::State::round(Context ctx) {
    const auto due = due_names(clock.steady());
    if (due.empty()) co_return Unit{};
    tried = clock.steady();
    ++counts.reads;
    const auto limited = ctx.with_timeout(options.call_timeout, clock);
    auto read = co_await within_deadline(limited, publisher.read(limited, options.zone, due), clock);
    if (read.ok() && read->size() != due.size()) read = Error{Code::internal, "the publisher did not answer for every name"};
    if (!read.ok()) {
        if (read.error().code == Code::cancelled) co_return std::move(read).error();
        path_failed(ctx, due, std::move(read).error());
        co_return Unit{};
    }
    std::vector<Standing> wanted;
    for (const auto& name : due) {
        const auto found = names.find(name);
        wanted.push_back({name, found == names.end() ? RecordSets{} : found->second.desired.sets, true, {}});
    }
    auto normalised = co_await within_deadline(limited, publisher.normalised(limited, options.zone, std::move(wanted)), clock);
    if (normalised.ok() && normalised->size() != due.size())
        normalised = Error{Code::internal, "the publisher did not normalise every name"};
    if (!normalised.ok()) {
        if (normalised.error().code == Code::cancelled) co_return std::move(normalised).error();
        path_failed(ctx, due, std::move(normalised).error());
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

void Publication::State::recovered(const Context& ctx) {
    log::info(ctx, "{} can be published to {} again after {} failures", options.zone, publisher.description(), failures);
    failures = 0;
    last_failure.clear();
}

std::optional<Change> Publication::State::compare(const Context& ctx, const std::string& name, const Standing& standing,
                                                  const RecordSets& wanted) {
    const auto found = names.find(name);
    if (found == names.end()) return std::nullopt;
    auto& entry = found->second;
    entry.wanted = wanted;
    entry.status.observed = standing.sets;
    entry.status.observed_at = clock.wall();
    entry.due = clock.steady() + options.look_every;
    auto by = options.ownerships;
    if (entry.repair) by.repair = by.adopt = true;
    auto plan = plan_for(wanted, entry.desired.empty_is_meant, standing.sets, entry.published ? &*entry.published : nullptr, by);
    entry.status.withheld = plan.what == Plan::What::withhold;
    entry.status.last_error.clear();
    switch (plan.what) {
    case Plan::What::withhold:
        entry.dirty = false;
        say(entry, PublishState::error, plan.why);
        return std::nullopt;
    case Plan::What::drift:
        entry.dirty = false;
        if (entry.leaving) {
            forget(found, "it is withdrawn, and what others wrote is left: " + plan.why);
            return std::nullopt;
        }
        if (entry.status.state != PublishState::drift) log::warn(ctx, "{} at {}: {}", name, publisher.description(), plan.why);
        entry.at_service = false;
        entry.ask_due = never;
        say(entry, PublishState::drift, plan.why);
        return std::nullopt;
    case Plan::What::in_place:
        entry.published = standing.sets;
        at_service(found, standing.settled, standing.trouble);
        return std::nullopt;
    case Plan::What::write: break;
    }
    if (plan.repairs) {
        log::warn(ctx, "{} at {} is put right: {}", name, publisher.description(), plan.why);
        if (!entry.dirty) { // it was seen in its place before: this is another wait
            entry.decided = clock.steady();
            entry.status.decided_at = clock.wall();
            entry.status.time_to_publish.reset();
            entry.at_service = entry.seen = false; // so that the name servers are asked anew
        }
        say(entry, PublishState::pending, "is put right: " + plan.why);
    }
    entry.dirty = true;
    return Change{name, standing.sets, std::move(plan.after), wanted.empty(), entry.desired.reason};
}

Task<Unit> Publication::State::write(Context ctx, std::vector<Change> changes) {
    ++counts.publishes;
    counts.changes += changes.size();
    std::vector<std::string> changed;
    std::vector<RecordSets> after;
    // A decision that comes while this one is on its way is newer than what this writes.
    for (const auto& change : changes) {
        changed.push_back(change.name);
        after.push_back(change.after);
        names.find(change.name)->second.dirty = false;
    }
    const auto limited = ctx.with_timeout(options.call_timeout, clock);
    auto done = co_await within_deadline(limited, publisher.publish(limited, options.zone, std::move(changes)), clock);
    if (done.ok() && done->size() != changed.size()) done = Error{Code::internal, "the publisher did not answer for every change"};
    if (!done.ok()) {
        if (done.error().code == Code::cancelled) co_return std::move(done).error();
        // Some of it may have been done: what stands is known when it is read again.
        for (const auto& name : changed)
            if (const auto found = names.find(name); found != names.end()) {
                found->second.published.reset();
                found->second.dirty = true;
                found->second.due = clock.steady();
            }
        path_failed(ctx, changed, std::move(done).error());
        co_return Unit{};
    }
    std::optional<Error> whole; // where nothing at all went through, it is the path that fails
    for (std::size_t i = 0; i < changed.size(); ++i) {
        const auto found = names.find(changed[i]);
        if (found == names.end()) continue;
        const auto& result = (*done)[i];
        if (result.ok()) {
            found->second.published = after[i];
            found->second.status.observed = after[i];
            found->second.status.observed_at = clock.wall();
            found->second.repair = false;
            if (!found->second.dirty) at_service(found, result->settled, {});
        } else {
            refused(ctx, found->second, result.error());
            if (i == 0 && result.error().code != Code::conflict && result.error().code != Code::invalid) whole = result.error();
        }
    }
    if (whole && std::none_of(done->begin(), done->end(), [](const auto& result) { return result.ok(); }))
        path_failed(ctx, changed, std::move(*whole));
    co_return Unit{};
}

void Publication::State::refused(const Context& ctx, Entry& entry, const Error& error) {
    ++entry.failures;
    ++counts.failures;
    entry.dirty = true;
    entry.status.last_error = error.text();
    const bool as_it_is = error.code == Code::invalid || error.code == Code::too_large || error.code == Code::unsupported;
    if (error.code == Code::conflict) {
        entry.published.reset(); // its mark tells whose it is now
        entry.due = clock.steady() + (entry.failures > 1 ? backoff(entry.failures, options.longest_backoff) : Duration{});
        say(entry, PublishState::pending, "somebody else wrote at the same time; it is read again");
        return;
    }
    entry.published.reset();
    entry.due = clock.steady() + backoff(entry.failures, as_it_is ? options.refused_backoff : options.longest_backoff);
    if (entry.failures == 1) log::warn(ctx, "{} is not taken by {}: {}", entry.status.name, publisher.description(), error.text());
    say(entry, PublishState::error,
        fmt::format("{}: {}{}; the last answer stands", publisher.description(), error.message,
                    error.remedy.empty() ? "" : fmt::format(" (fix: {})", error.remedy)));
}

void Publication::State::at_service(Place place, bool settled, const std::string& trouble) {
    auto& entry = place->second;
    const auto now = clock.steady();
    entry.failures = 0;
    entry.dirty = false;
    if (entry.leaving) return forget(place, {});
    const bool first = !std::exchange(entry.at_service, true);
    if (first) entry.written = now;
    entry.trouble = trouble;
    if (options.servers.empty()) {
        if (!trouble.empty()) {
            entry.due = now + std::min<Duration>(options.look_every, longest_ask);
            say(entry, PublishState::error, fmt::format("{} has it, but says: {}", publisher.description(), trouble));
        } else if (!settled) {
            entry.due = now + std::min<Duration>(options.look_every, 1s);
            if (now - entry.written > options.settle_within)
                say(entry, PublishState::error,
                    fmt::format("{} has it since {} and does not serve it yet", publisher.description(),
                                to_text(std::chrono::duration_cast<std::chrono::seconds>(now - entry.written))));
            else
                say(entry, PublishState::pending, "the service has it and does not serve it yet");
        } else {
            served(place);
        }
        return;
    }
    if (!settled || !trouble.empty()) entry.due = now + std::min<Duration>(options.look_every, longest_ask);
    if (first) {
        entry.ask_wait = first_ask;
        entry.ask_due = now;
        if (!entry.seen) say(entry, PublishState::pending, "written; the name servers are asked");
    } else if (entry.seen) {
        entry.ask_due = now;
    }
    wake_asker();
}

void Publication::State::served(Place place) {
    auto& entry = place->second;
    if (!entry.seen) entry.status.time_to_publish = clock.steady() - entry.decided;
    entry.seen = true;
    entry.ask_due = never;
    say(entry, PublishState::in_sync, {});
}

void Publication::State::forget(Place place, std::string why) {
    auto status = std::move(place->second.status);
    names.erase(place);
    status.gone = true;
    status.why = std::move(why);
    status.state = status.why.empty() ? PublishState::in_sync : PublishState::drift;
    status.since = clock.wall();
    if (on_change) on_change(status);
}

Publication::Publication(Clock& clock, Publisher& publisher, NameServers* servers, Options options, OnChange on_change)
    : state_(std::make_shared<State>(clock, publisher, servers, std::move(options), std::move(on_change))) {}
Publication::~Publication() = default;

void Publication::desire(const std::string& name, Desired desired) { state_->desire(name, std::move(desired)); }
void Publication::withdraw(const std::string& name) { state_->withdraw(name); }
void Publication::repair(const std::string& name) { state_->repair(name); }

const PublishStatus* Publication::status(std::string_view name) const {
    const auto found = state_->names.find(name);
    return found == state_->names.end() ? nullptr : &found->second.status;
}

std::vector<const PublishStatus*> Publication::statuses() const {
    std::vector<const PublishStatus*> out;
    for (const auto& [name, entry] : state_->names) out.push_back(&entry.status);
    return out;
}

Publication::Counts Publication::counts() const {
    auto out = state_->counts;
    out.names = state_->names.size();
    for (const auto& [name, entry] : state_->names) out.waiting += entry.dirty ? 1 : 0;
    return out;
}

namespace {

/// Waits until told, or until `when`; false when cancelled.
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

asio::awaitable<void> Publication::run(Context ctx) {
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
    } catch (const boost::system::system_error&) { // NOLINT: what a cancelled coroutine gets, and all that is to be done comes now
    }
    co_await asio::this_coro::reset_cancellation_state();
    co_await group.stop();
}

} // namespace orrery::gslb
