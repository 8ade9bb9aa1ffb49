#include "health/sources/status_source.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery::health {

struct SourceReader::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor, std::shared_ptr<StatusSource> source_, Clock& clock_, Duration fresh_, Duration timeout_)
        : source(std::move(source_)), clock(clock_), fresh(fresh_), timeout(timeout_), group(executor), came(executor) {}

    /// One call for all requested ids. Ids that are requested while it runs wait for the next call.
    static asio::awaitable<void> read(std::shared_ptr<State> self, Context ctx) {
        co_await asio::this_coro::throw_if_cancelled(false);
        struct Over { // also if the source throws: the next caller starts another call
            State& state;
            ~Over() { state.reading = false; }
        } const over{*self};
        while (!self->wanted.empty()) {
            const auto ids = std::exchange(self->wanted, {});
            const auto round = ++self->rounds_begun;
            auto read = co_await self->source->read(ctx.with_timeout(self->timeout), {ids.begin(), ids.end()});
            self->error = read.ok() ? std::string() : read.error().message;
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
    }

    struct Known {
        std::optional<StatusSource::Reading> reading;
        SteadyTime at{};
        std::uint64_t round = 0;
        bool answered = false;
        bool unused = false; ///< no probe has used it yet: the one that requested it timed out
    };
    bool is_good(const Known& entry) const {
        return entry.answered && clock.steady() - entry.at <= (entry.unused ? std::max(fresh, timeout) : fresh);
    }
    std::shared_ptr<StatusSource> source;
    Clock& clock;
    Duration fresh, timeout;
    TaskGroup group;
    Notifier came;
    std::set<std::string> wanted;
    std::map<std::string, Known> known;
    std::string error;
    std::uint64_t rounds_begun = 0;
    bool reading = false;
};

SourceReader::SourceReader(asio::any_io_executor executor, std::shared_ptr<StatusSource> source, Clock& clock, Duration fresh,
                           Duration timeout)
    : state_(std::make_shared<State>(std::move(executor), std::move(source), clock, fresh, timeout)) {}
SourceReader::~SourceReader() = default;
const StatusSource& SourceReader::source() const { return *state_->source; }
asio::awaitable<void> SourceReader::stop() { return state_->group.stop(); }

std::optional<StatusSource::Reading> SourceReader::last(const std::string& id) const {
    const auto at = state_->known.find(id);
    return at == state_->known.end() ? std::nullopt : at->second.reading;
}

std::string SourceReader::error(const std::string& id) const {
    const auto at = state_->known.find(id);
    return at == state_->known.end() || at->second.round == 0 || at->second.answered ? std::string() : state_->error;
}

asio::awaitable<Observation> SourceReader::observe(Context ctx, std::string id) {
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
    if (!known.answered) co_return Observation{.outcome = Outcome::local_error, .text = fmt::format("{}: {}", what, state->error)};
    if (!known.reading) co_return Observation{.outcome = Outcome::local_error, .text = what + ": the source does not know it"};
    Observation seen{.outcome = known.reading->outcome, .text = fmt::format("{}: {}", what, known.reading->text)};
    if (known.reading->share) seen.measures.push_back({"share", *known.reading->share, ""});
    if (seen.text.size() > max_text) seen.text.resize(max_text);
    co_return seen;
}

} // namespace orrery::health
