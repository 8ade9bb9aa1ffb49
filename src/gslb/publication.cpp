#include "gslb/publication.h"

#include "core/log.h"

#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <utility>

namespace orrery::gslb {

using namespace std::chrono_literals;

namespace {

constexpr auto never = SteadyTime::max();
constexpr auto first_ask = 50ms; // after a write; services that serve at once are seen at once
constexpr auto longest_ask = 5s; // between questions while a write is under way
constexpr std::size_t names_a_question_round = 200;

/// Do the answers of a name server say what is wanted? Its TTL counts only where it is the authority itself.
bool agrees(const RecordSets& wanted, const Answered& answered) {
    return std::equal(wanted.begin(), wanted.end(), answered.sets.begin(), answered.sets.end(),
                      [&](const RecordSet& want, const RecordSet& seen) {
                          return want.type == seen.type && want.values == seen.values &&
                                 (!answered.authoritative || want.ttl == seen.ttl);
                      });
}

} // namespace

std::string_view name_of(PublishState state) {
    switch (state) {
    case PublishState::pending: return "PENDING";
    case PublishState::in_sync: return "IN_SYNC";
    case PublishState::drift: return "DRIFT";
    case PublishState::error: return "ERROR";
    }
    return "?";
}

struct Publication::State {
    struct Entry {
        PublishStatus status;
        Desired desired;
        SteadyTime decided{};
        bool dirty = true;       // the decision has not been compared with what stands
        bool leaving = false;    // withdrawn
        bool repair = false;     // once, by hand
        bool at_service = false; // the service has what is desired
        bool seen = false;       // and all name servers gave it once
        std::optional<RecordSets> published;
        RecordSets wanted;          // what is desired, as the service spells it
        std::string trouble;        // what the service says of it
        SteadyTime due{};           // of the next look at the service
        SteadyTime ask_due = never; // of the next question to the name servers
        SteadyTime written{};       // when the service took it
        Duration ask_wait = first_ask;
        int failures = 0;
    };

    State(Clock& clock_, Publisher& publisher_, NameServers* servers_, Options options_, OnChange on_change_)
        : clock(clock_),
          publisher(publisher_),
          servers(servers_),
          options(std::move(options_)),
          on_change(std::move(on_change_)),
          random(std::random_device{}()) {
        if (servers == nullptr) options.servers.clear();
    }

    Clock& clock;
    Publisher& publisher;
    NameServers* servers;
    Options options;
    OnChange on_change;
    std::mt19937 random;
    std::map<std::string, Entry, std::less<>> names;
    Counts counts;
    int failures = 0;        // of the path as a whole, in a row
    SteadyTime tried{};      // when it last was
    SteadyTime not_before{}; // after failures
    std::unique_ptr<Notifier> publish_more, ask_more;

    // --- saying how it stands ---

    /// Sets the state and tells whoever wants to know, where it says something new.
    void say(Entry& entry, PublishState state, std::string why) {
        auto& status = entry.status;
        const bool same = status.state == state && status.why == why;
        if (status.state != state) status.since = clock.wall();
        status.state = state;
        status.why = std::move(why);
        if (!same) tell(entry);
    }
    void tell(const Entry& entry) {
        if (!on_change) return;
        const auto copy = entry.status; // the one told may change what it is told of
        on_change(copy);
    }

    void wake() {
        if (publish_more) publish_more->notify_all();
    }
    void wake_asker() {
        if (ask_more) ask_more->notify_all();
    }

    // --- decisions ---

    void desire(const std::string& name, Desired desired) {
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

    void withdraw(const std::string& name) {
        const auto found = names.find(name);
        if (found == names.end() || found->second.leaving) return;
        auto& entry = found->second;
        entry.leaving = true;
        entry.desired = {.sets = {}, .empty_is_meant = true, .decision = entry.desired.decision, .reason = "the name is withdrawn"};
        decide_anew(entry, clock.steady());
    }

    void repair(const std::string& name) {
        const auto found = names.find(name);
        if (found == names.end()) return;
        found->second.repair = true;
        decide_anew(found->second, clock.steady());
    }

    void decide_anew(Entry& entry, SteadyTime now) {
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

    std::string last_failure;
    std::string path_trouble() const { return fmt::format("{}; the last answer stands", last_failure); }

    // --- the service ---

    Duration backoff(int failed, Duration longest) {
        auto wait = options.first_backoff;
        for (; failed > 1 && wait < longest; --failed) wait *= 2;
        return std::chrono::duration_cast<Duration>(std::min(wait, longest) * std::uniform_real_distribution<>(0.75, 1.0)(random));
    }

    /// Names whose time has come, at most as many as go into one call; those with a decision first.
    std::vector<std::string> due_names(SteadyTime now) const {
        std::vector<std::string> out, looks;
        const auto most = std::max<std::size_t>(1, publisher.most_at_once());
        for (const auto& [name, entry] : names)
            if (entry.due <= now && out.size() < most) (entry.dirty ? out : looks).push_back(name);
        looks.resize(std::min(looks.size(), most - out.size()));
        out.insert(out.end(), looks.begin(), looks.end());
        return out;
    }

    SteadyTime next_due() const {
        auto out = never;
        for (const auto& [name, entry] : names) out = std::min(out, entry.due);
        return out == never ? never : std::max(out, not_before);
    }

    void path_failed(const Context& ctx, const std::vector<std::string>& due, Error error) {
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

    Task<Unit> round(Context ctx) {
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

    void recovered(const Context& ctx) {
        log::info(ctx, "{} can be published to {} again after {} failures", options.zone, publisher.description(), failures);
        failures = 0;
        last_failure.clear();
    }

    /// What stands against what is wanted: the change to make, or none, with the status said.
    std::optional<Change> compare(const Context& ctx, const std::string& name, const Standing& standing, const RecordSets& wanted) {
        const auto found = names.find(name);
        if (found == names.end()) return std::nullopt;
        auto& entry = found->second;
        entry.wanted = wanted;
        entry.status.observed = standing.sets;
        entry.status.observed_at = clock.wall();
        entry.due = clock.steady() + options.look_every;
        auto by = options.ownerships;
        if (entry.repair) by.repair = by.adopt = true;
        auto plan =
            plan_for(wanted, entry.desired.empty_is_meant, standing.sets, entry.published ? &*entry.published : nullptr, by);
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
                entry.seen = false;
            }
            say(entry, PublishState::pending, "is put right: " + plan.why);
        }
        entry.dirty = true;
        return Change{name, standing.sets, std::move(plan.after), wanted.empty(), entry.desired.reason};
    }

    Task<Unit> write(Context ctx, std::vector<Change> changes) {
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
        if (done.ok() && done->size() != changed.size())
            done = Error{Code::internal, "the publisher did not answer for every change"};
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

    /// One change was not taken.
    void refused(const Context& ctx, Entry& entry, const Error& error) {
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
        if (entry.failures == 1)
            log::warn(ctx, "{} is not taken by {}: {}", entry.status.name, publisher.description(), error.text());
        say(entry, PublishState::error,
            fmt::format("{}: {}{}; the last answer stands", publisher.description(), error.message,
                        error.remedy.empty() ? "" : fmt::format(" (fix: {})", error.remedy)));
    }

    using Place = std::map<std::string, Entry, std::less<>>::iterator;

    /// The service has what is desired. Where name servers are asked, they have the last word.
    void at_service(Place place, bool settled, const std::string& trouble) {
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

    /// It is answered as decided.
    void served(Place place) {
        auto& entry = place->second;
        if (!entry.seen) entry.status.time_to_publish = clock.steady() - entry.decided;
        entry.seen = true;
        entry.ask_due = never;
        say(entry, PublishState::in_sync, {});
    }

    void forget(Place place, std::string why) {
        auto status = std::move(place->second.status);
        names.erase(place);
        status.gone = true;
        status.why = std::move(why);
        status.state = status.why.empty() ? PublishState::in_sync : PublishState::drift;
        status.since = clock.wall();
        if (on_change) on_change(status);
    }

    // --- the name servers ---

    std::vector<std::string> ask_names(SteadyTime now) const {
        std::vector<std::string> out;
        for (const auto& [name, entry] : names)
            if (entry.ask_due <= now && out.size() < names_a_question_round) out.push_back(name);
        return out;
    }
    SteadyTime next_ask() const {
        auto out = never;
        for (const auto& [name, entry] : names) out = std::min(out, entry.ask_due);
        return out;
    }

    using Replies = std::vector<Result<Answered>>;

    asio::awaitable<void> ask_one(Context ctx, std::string server, std::vector<std::string> asked, std::shared_ptr<Replies> into) {
        const auto limited = ctx.with_timeout(options.ask_timeout, clock);
        auto answers = co_await within_deadline(limited, servers->ask(limited, server, asked), clock);
        if (!answers.ok())
            into->assign(asked.size(), Result<Answered>(answers.error()));
        else
            *into = std::move(*answers);
        into->resize(asked.size());
    }

    asio::awaitable<void> ask_round(Context ctx) {
        const auto asked = ask_names(clock.steady());
        if (asked.empty()) co_return;
        std::vector<SteadyTime> written;
        for (const auto& name : asked) {
            auto& entry = names.find(name)->second;
            entry.ask_due = never; // set again below, unless a decision comes meanwhile
            written.push_back(entry.decided);
        }
        counts.questions += asked.size() * options.servers.size();
        std::vector<std::shared_ptr<Replies>> answers;
        TaskGroup group(co_await asio::this_coro::executor);
        for (const auto& server : options.servers) {
            answers.push_back(std::make_shared<Replies>());
            group.spawn(ask_one(ctx, server, asked, answers.back()));
        }
        bool cancelled = false;
        try {
            co_await group.join();
        } catch (const boost::system::system_error&) {
            cancelled = true;
        }
        if (cancelled) {
            co_await asio::this_coro::reset_cancellation_state();
            co_await group.stop();
            co_return;
        }
        for (std::size_t i = 0; i < asked.size(); ++i) {
            const auto found = names.find(asked[i]);
            // Answers to a question that nobody asks any more.
            if (found == names.end() || found->second.decided != written[i] || !found->second.at_service) continue;
            std::vector<PublishStatus::Server> seen;
            for (std::size_t s = 0; s < options.servers.size(); ++s) {
                const auto& answer = (*answers[s])[i];
                seen.push_back({options.servers[s], answer.ok() && agrees(found->second.wanted, *answer), answer.ok(),
                                answer.ok() ? text_of(answer->sets) : answer.error().message});
            }
            judge_servers(found, std::move(seen));
        }
    }

    void judge_servers(Place place, std::vector<PublishStatus::Server> seen) {
        auto& entry = place->second;
        const auto now = clock.steady();
        entry.status.servers = std::move(seen);
        const auto& all = entry.status.servers;
        const auto wrong = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.answered && !one.agrees; });
        const auto silent = std::find_if(all.begin(), all.end(), [](const auto& one) { return !one.answered; });
        if (wrong == all.end() && (silent == all.end() || entry.seen)) return served(place); // silence is no evidence
        entry.ask_wait = std::min<Duration>(entry.ask_wait * 2, longest_ask);
        entry.ask_due = now + entry.ask_wait;
        const auto& one = wrong != all.end() ? *wrong : *silent;
        auto what = one.answered ? fmt::format("{} answers {}", one.server, one.text)
                                 : fmt::format("{} does not answer: {}", one.server, one.text);
        if (!entry.trouble.empty()) what += fmt::format("; {} says: {}", publisher.description(), entry.trouble);
        if (entry.seen) return say(entry, PublishState::drift, what + ", though the service has what was written");
        if (now - entry.written <= options.settle_within) return say(entry, PublishState::pending, what);
        say(entry, PublishState::error,
            fmt::format("written {} ago, but {}", to_text(std::chrono::duration_cast<std::chrono::seconds>(now - entry.written)),
                        what));
    }
};

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
    } catch (const boost::system::system_error&) { // what a cancelled coroutine gets
    }
    co_await asio::this_coro::reset_cancellation_state();
    co_await group.stop();
}

} // namespace orrery::gslb
