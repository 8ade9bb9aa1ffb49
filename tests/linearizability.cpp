#include "linearizability.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::testing {

namespace {

constexpr auto never = std::numeric_limits<std::int64_t>::max();

/// The state after the call, or nothing where the call cannot have had this outcome in this state.
std::optional<std::int64_t> step(const RegisterCall& call, std::int64_t state) {
    using Type = RegisterCall::Type;
    using Outcome = RegisterCall::Outcome;
    switch (call.type) {
    case Type::read: return call.value == state ? std::optional(state) : std::nullopt;
    case Type::write: return call.value;
    case Type::compare_and_set:
        if (call.outcome == Outcome::refused) return call.expected != state ? std::optional(state) : std::nullopt;
        if (call.expected == state) return call.value;
        // With an unknown outcome it may have been refused.
        return call.outcome == Outcome::unknown ? std::optional(state) : std::nullopt;
    }
    return std::nullopt;
}

struct Configuration {
    std::vector<std::uint64_t> placed;
    std::int64_t state;
    bool operator==(const Configuration&) const = default;
};
struct ConfigurationHash {
    std::size_t operator()(const Configuration& configuration) const {
        std::uint64_t sum = static_cast<std::uint64_t>(configuration.state) * 0x9e3779b97f4a7c15ULL;
        for (const auto word : configuration.placed) sum = (sum ^ word) * 0xff51afd7ed558ccdULL, sum ^= sum >> 32;
        return sum;
    }
};

/// One register's calls, as a list of calls and returns in their order that calls are lifted out of as they are placed, and put
/// back.
class Search {
public:
    explicit Search(std::vector<RegisterCall> calls) : calls_(std::move(calls)), placed_((calls_.size() + 63) / 64) {
        std::vector<std::pair<std::int64_t, std::size_t>> order; // time, entry
        entries_.resize(2 * calls_.size() + 1);
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            if (calls_[i].outcome == RegisterCall::Outcome::unknown) calls_[i].returned = never;
            order.emplace_back(calls_[i].called, 2 * i);
            order.emplace_back(calls_[i].returned, 2 * i + 1);
        }
        std::sort(order.begin(), order.end());
        std::size_t last = head();
        for (const auto& [time, entry] : order) {
            entries_[last].next = entry;
            entries_[entry].previous = last;
            last = entry;
        }
        entries_[last].next = end;
    }

    /// The furthest call that nothing could be put before; nothing if all calls found a place.
    std::optional<std::size_t> first_misfit() {
        std::size_t sure = static_cast<std::size_t>(
            std::count_if(calls_.begin(), calls_.end(), [](const auto& call) { return call.returned != never; }));
        std::int64_t state = 0;
        auto at = entries_[head()].next;
        while (sure > 0) {
            if (at == end) return furthest_;
            const auto call = at / 2;
            if (at % 2 == 1) {
                // A return: this call must have been placed by now. Take back the last decision.
                if (trail_.size() >= depth_) depth_ = trail_.size(), furthest_ = call;
                if (trail_.empty()) return furthest_;
                const auto [undone, before] = trail_.back();
                trail_.pop_back();
                state = before;
                placed_[undone / 64] &= ~(1ULL << undone % 64);
                if (calls_[undone].returned != never) ++sure;
                put_back(undone);
                at = entries_[2 * undone].next;
                continue;
            }
            if (const auto after = step(calls_[call], state)) {
                placed_[call / 64] |= 1ULL << call % 64;
                if (tried_.insert({placed_, *after}).second) {
                    trail_.emplace_back(call, state);
                    state = *after;
                    if (calls_[call].returned != never) --sure;
                    lift(call);
                    at = entries_[head()].next;
                    continue;
                }
                placed_[call / 64] &= ~(1ULL << call % 64);
            }
            at = entries_[at].next;
        }
        return std::nullopt;
    }

    const std::vector<RegisterCall>& calls() const { return calls_; }

private:
    static constexpr std::size_t end = std::numeric_limits<std::size_t>::max();
    struct Entry {
        std::size_t previous = end, next = end;
    };
    std::size_t head() const { return entries_.size() - 1; }
    void take_out(std::size_t entry) {
        entries_[entries_[entry].previous].next = entries_[entry].next;
        if (entries_[entry].next != end) entries_[entries_[entry].next].previous = entries_[entry].previous;
    }
    void put_in(std::size_t entry) {
        entries_[entries_[entry].previous].next = entry;
        if (entries_[entry].next != end) entries_[entries_[entry].next].previous = entry;
    }
    void lift(std::size_t call) {
        take_out(2 * call);
        take_out(2 * call + 1);
    }
    void put_back(std::size_t call) {
        put_in(2 * call + 1);
        put_in(2 * call);
    }

    std::vector<RegisterCall> calls_;
    std::vector<Entry> entries_;
    std::vector<std::uint64_t> placed_;
    std::vector<std::pair<std::size_t, std::int64_t>> trail_; // what was placed, and the state before it
    std::unordered_set<Configuration, ConfigurationHash> tried_;
    std::size_t depth_ = 0;
    std::optional<std::size_t> furthest_ = 0;
};

std::string in_words(const RegisterCall& call) {
    using Type = RegisterCall::Type;
    const auto* outcome = call.outcome == RegisterCall::Outcome::done      ? ""
                          : call.outcome == RegisterCall::Outcome::refused ? " refused"
                                                                           : " unknown";
    const auto times =
        call.returned == never ? fmt::format("[{}..]", call.called) : fmt::format("[{}..{}]", call.called, call.returned);
    if (call.type == Type::read) return fmt::format("read {} {}", call.value, times);
    if (call.type == Type::write) return fmt::format("write {}{} {}", call.value, outcome, times);
    return fmt::format("set {} to {}{} {}", call.expected, call.value, outcome, times);
}

} // namespace

std::optional<std::string> anomaly_in(const std::vector<RegisterCall>& history) {
    std::map<std::string, std::vector<RegisterCall>> by_key;
    for (const auto& call : history) by_key[call.key].push_back(call);
    for (auto& [key, calls] : by_key) {
        Search search(std::move(calls));
        const auto misfit = search.first_misfit();
        if (!misfit) continue;
        const auto& found = search.calls();
        std::string words = fmt::format("\"{}\": no place for {} among", key, in_words(found[*misfit]));
        for (const auto& other : found)
            if (other.called <= found[*misfit].returned && other.returned >= found[*misfit].called - 20 &&
                &other != &found[*misfit])
                words += fmt::format("; {}", in_words(other));
        return words;
    }
    return std::nullopt;
}

} // namespace orrery::testing
