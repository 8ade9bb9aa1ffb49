#pragma once

#include "gslb/publish/dns_provider.h"

#include <span>
#include <utility>
#include <vector>

namespace orrery::drivers {

/// Publishes through a service that applies several changes together, all or none. `send(span of changes)` returns a `Task<Unit>`.
/// Where it fails with an error for which `one_may_be_bad` holds, the changes are bisected, so that a bad change does not block the
/// others. After any other error, or after `max_calls` calls, all remaining changes end with that error. A change that would remove
/// the last records of a name without being marked as such is not sent.
template <class Send, class OneMayBeBad>
Task<std::vector<Result<gslb::Accepted>>> publish_bisecting(std::vector<gslb::Change> changes, Send send,
                                                            OneMayBeBad one_may_be_bad, std::size_t max_calls = 200) {
    std::vector<Result<gslb::Accepted>> out(changes.size(), Result<gslb::Accepted>(gslb::Accepted{}));
    std::vector<gslb::Change> sent;
    std::vector<std::size_t> index; // in `changes`, of each change that is sent
    for (std::size_t i = 0; i < changes.size(); ++i) {
        if (auto guarded = gslb::guard_against_emptying(changes[i]); !guarded.ok()) {
            out[i] = std::move(guarded).error();
            continue;
        }
        index.push_back(i);
        sent.push_back(std::move(changes[i]));
    }
    std::vector<std::pair<std::size_t, std::size_t>> parts; // ranges that are still to be sent
    if (!sent.empty()) parts.emplace_back(0, sent.size());
    for (std::size_t calls = 0; !parts.empty(); ++calls) {
        const auto [from, to] = parts.back();
        auto done = co_await send(std::span<const gslb::Change>(sent).subspan(from, to - from));
        if (done.ok()) {
            parts.pop_back();
        } else if (calls == 0 && !one_may_be_bad(done.error())) {
            co_return std::move(done).error();
        } else if (calls >= max_calls || !one_may_be_bad(done.error())) {
            for (const auto& [begin, end] : std::exchange(parts, {}))
                for (auto i = begin; i < end; ++i) out[index[i]] = done.error();
        } else {
            parts.pop_back();
            if (to - from == 1) {
                out[index[from]] = std::move(done).error();
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
