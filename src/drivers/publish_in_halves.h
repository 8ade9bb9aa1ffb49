#pragma once

#include "gslb/publisher.h"

#include <span>
#include <utility>
#include <vector>

namespace orrery::drivers {

/// Publishes through a service that takes several changes at once, all or none. `send(span of changes)` gives a `Task<Unit>`. Where
/// it fails with an error for which `one_may_be_bad`, halves are tried, so that what is wrong holds up nothing else; with any other
/// error, or after `most` calls, all that is left ends with it. A change to nothing that does not say so is not sent at all.
template <class Send, class OneMayBeBad>
Task<std::vector<Result<gslb::Accepted>>> publish_in_halves(std::vector<gslb::Change> changes, Send send,
                                                            OneMayBeBad one_may_be_bad, std::size_t most = 200) {
    std::vector<Result<gslb::Accepted>> out(changes.size(), Result<gslb::Accepted>(gslb::Accepted{}));
    std::vector<gslb::Change> sent;
    std::vector<std::size_t> place; // of each that is sent, in `changes`
    for (std::size_t i = 0; i < changes.size(); ++i) {
        if (auto guarded = gslb::guard_against_emptying(changes[i]); !guarded.ok()) {
            out[i] = std::move(guarded).error();
            continue;
        }
        place.push_back(i);
        sent.push_back(std::move(changes[i]));
    }
    std::vector<std::pair<std::size_t, std::size_t>> parts; // still to be sent, from and to
    if (!sent.empty()) parts.emplace_back(0, sent.size());
    for (std::size_t calls = 0; !parts.empty(); ++calls) {
        const auto [from, to] = parts.back();
        auto done = co_await send(std::span<const gslb::Change>(sent).subspan(from, to - from));
        if (done.ok()) {
            parts.pop_back();
        } else if (calls == 0 && !one_may_be_bad(done.error())) {
            co_return std::move(done).error();
        } else if (calls >= most || !one_may_be_bad(done.error())) {
            for (const auto& [begin, end] : std::exchange(parts, {}))
                for (auto i = begin; i < end; ++i) out[place[i]] = done.error();
        } else {
            parts.pop_back();
            if (to - from == 1) {
                out[place[from]] = std::move(done).error();
                continue;
            }
            const auto middle = from + (to - from) / 2;
            parts.emplace_back(middle, to);
            parts.emplace_back(from, middle);
        }
    }
    co_return out;
}

} // namespace orrery::drivers
