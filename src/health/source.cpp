#include "health/source.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery::health {

// --- Systems that know ----------------------------------------------------------------------------------------------

struct SourceReader::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor, std::shared_ptr<StatusSource> source_, Clock& clock_, Duration fresh_, Duration patience_)
        : source(std::move(source_)), clock(clock_), fresh(fresh_), patience(patience_), group(executor), came(executor) {}

    /// One call for all that are wanted; what is wanted while it runs waits for the next.
    static asio::awaitable<void> read(std::shared_ptr<State> self, Context ctx) {
        co_await asio::this_coro::throw_if_cancelled(false);
        while (!self->wanted.empty()) {
            const auto ids = std::exchange(self->wanted, {});
            const auto round = ++self->rounds_begun;
            auto read = co_await self->source->read(ctx.with_timeout(self->patience), {ids.begin(), ids.end()});
            self->trouble = read.ok() ? std::string() : read.error().message;
            for (const auto& id : ids) {
                auto& entry = self->known[id];
                entry.round = round;
                entry.at = self->clock.steady();
                entry.answered = entry.unused = read.ok();
                if (!read.ok()) continue;
                const auto at = read->find(id);
                if (at != read->end())
                    entry.reading = at->second;
                else
                    entry.reading.reset();
            }
            self->came.notify_all();
        }
        self->reading = false;
    }

    struct Known {
        std::optional<StatusSource::Reading> reading;
        SteadyTime at{};
        std::uint64_t round = 0;
        bool answered = false;
        bool unused = false; ///< no look has seen it yet: whoever wanted it had gone
    };
    bool is_good(const Known& entry) const {
        return entry.answered && clock.steady() - entry.at <= (entry.unused ? std::max(fresh, patience) : fresh);
    }
    std::shared_ptr<StatusSource> source;
    Clock& clock;
    Duration fresh, patience;
    TaskGroup group;
    Notifier came;
    std::set<std::string> wanted;
    std::map<std::string, Known> known;
    std::string trouble;
    std::uint64_t rounds_begun = 0;
    bool reading = false;
};

SourceReader::SourceReader(asio::any_io_executor executor, std::shared_ptr<StatusSource> source, Clock& clock, Duration fresh,
                           Duration patience)
    : state_(std::make_shared<State>(std::move(executor), std::move(source), clock, fresh, patience)) {}
SourceReader::~SourceReader() = default;
const StatusSource& SourceReader::source() const { return *state_->source; }
asio::awaitable<void> SourceReader::stop() { return state_->group.stop(); }

std::optional<StatusSource::Reading> SourceReader::last(const std::string& id) const {
    const auto at = state_->known.find(id);
    return at == state_->known.end() ? std::nullopt : at->second.reading;
}

std::string SourceReader::trouble(const std::string& id) const {
    const auto at = state_->known.find(id);
    return at == state_->known.end() || at->second.round == 0 || at->second.answered ? std::string() : state_->trouble;
}

asio::awaitable<Observation> SourceReader::look(Context ctx, std::string id) {
    const auto state = state_;
    const auto what = fmt::format("{} {}", state->source->name(), id);
    auto& known = state->known[id];
    if (!state->is_good(known)) {
        const auto before = state->rounds_begun;
        state->wanted.insert(id);
        if (!state->reading) {
            state->reading = true;
            state->group.spawn(State::read(state, ctx.without_deadline()));
        }
        while (known.round <= before) {
            auto woken = co_await state->came.wait(ctx);
            if (!woken.ok()) co_return Observation{.outcome = Outcome::local_error, .text = what + ": no answer in time"};
        }
    }
    known.unused = false;
    if (!known.answered)
        co_return Observation{.outcome = Outcome::local_error, .text = fmt::format("{}: {}", what, state->trouble)};
    if (!known.reading) co_return Observation{.outcome = Outcome::local_error, .text = what + ": it is not known there"};
    Observation seen{.outcome = known.reading->outcome, .text = fmt::format("{}: {}", what, known.reading->text)};
    if (known.reading->share) seen.measures.push_back({"share", *known.reading->share, ""});
    if (seen.text.size() > longest_text) seen.text.resize(longest_text);
    co_return seen;
}

namespace {

class PushProbe final : public Probe {
public:
    PushProbe(const PushBoard& board, std::string key) : board_(board), key_(std::move(key)) {}
    std::string identity() const override { return "push " + key_; }
    asio::awaitable<Observation> look(Context) const override { co_return board_.standing_now(key_); }

private:
    const PushBoard& board_;
    std::string key_;
};

} // namespace

// --- Systems that tell ----------------------------------------------------------------------------------------------

void PushBoard::told(const std::string& key, Outcome outcome, std::string text, Duration ttl) {
    if (text.size() > longest_text) text.resize(longest_text);
    said_[key] = {outcome, std::move(text), clock_.steady(), ttl};
}

Observation PushBoard::standing_now(const std::string& key) const {
    const auto at = said_.find(key);
    if (at == said_.end()) return {.outcome = Outcome::local_error, .text = "nobody has said anything yet"};
    const auto& said = at->second;
    if (clock_.steady() - said.at > said.ttl)
        return {.outcome = Outcome::failed, .text = fmt::format("no word within {}", to_text(said.ttl))};
    return {.outcome = said.outcome, .text = said.text};
}

ProbePtr push_probe(const PushBoard& board, std::string key) { return std::make_shared<PushProbe>(board, std::move(key)); }

// --- What follows from others ---------------------------------------------------------------------------------------

Observation calculate(const Formula& formula, std::span<const Standing> parts) {
    const auto count = [&](Standing standing) {
        return static_cast<std::size_t>(std::count(parts.begin(), parts.end(), standing));
    };
    const auto up = count(Standing::up), degraded = count(Standing::degraded), unknown = count(Standing::unknown);
    const auto all = parts.size();
    std::size_t need = formula.count;
    if (formula.kind == Formula::Kind::all) need = all;
    if (formula.kind == Formula::Kind::any) need = 1;
    Observation out;
    if (formula.kind == Formula::Kind::none) {
        out.text = fmt::format("{} of {} up, none may be", up + degraded, all);
        out.outcome = up + degraded > 0 ? Outcome::failed : unknown > 0 ? Outcome::local_error : Outcome::ok;
        return out;
    }
    out.text = fmt::format("{} of {} up, need {}", up + degraded, all, need);
    if (all == 0)
        out.outcome = Outcome::local_error;
    else if (up >= need)
        out.outcome = Outcome::ok;
    else if (up + degraded >= need)
        out.outcome = Outcome::warning;
    else if (up + degraded + unknown >= need)
        out.outcome = Outcome::local_error;
    else
        out.outcome = Outcome::failed;
    return out;
}

} // namespace orrery::health
