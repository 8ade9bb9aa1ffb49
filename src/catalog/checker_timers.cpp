#include "catalog/checker_state.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::catalog {

namespace {

asio::awaitable<void> sleep_towards(Clock& clock, Notifier& changed, SteadyTime until, std::shared_ptr<SteadyTime> sleeping_until) {
    const auto slept = co_await clock.sleep_until(until);
    if (!slept.ok()) co_return;
    if (*sleeping_until == until) *sleeping_until = SteadyTime::max();
    changed.notify_all();
}

std::string expired_message(const std::string& last) {
    constexpr std::string_view expired_text = "TTL expired";
    if (last.empty() || last.starts_with(expired_text)) return std::string(expired_text);
    return fmt::format("{} (last output before timeout follows): {}", expired_text, last);
}

} // namespace

SteadyTime Checker::State::expiry(const std::string& key, const Check& check, const CheckResult& result) const {
    auto when = term_began + check.ttl;
    if (const auto at = last_report.find(probe_key(key, check.id)); at != last_report.end())
        when = std::max(when, at->second + check.ttl);
    else if (result.renewed != WallTime{})
        when = std::max(when, clock.steady() + (result.renewed - clock.wall()) + check.ttl * 5 / 4);
    return when;
}

void Checker::State::set_timer(const std::string& key, const std::string& check, Timer type, std::optional<SteadyTime> when) {
    const TimerKey timer{key, check, type};
    const auto known = timers.find(timer);
    if (known != timers.end()) {
        if (when && known->second == *when) return;
        due.erase({known->second, timer});
        timers.erase(known);
    }
    if (!when) return;
    timers.emplace(timer, *when);
    due.emplace(*when, timer);
    if (due.begin()->first == *when) timers_changed.notify_all();
}

asio::awaitable<void> Checker::State::run_timers(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    TaskGroup sleepers(co_await asio::this_coro::executor);
    auto sleeping_until = std::make_shared<SteadyTime>(SteadyTime::max());
    for (;;) {
        const auto now = clock.steady();
        while (!due.empty() && due.begin()->first <= now) {
            const auto timer = due.begin()->second;
            due.erase(due.begin());
            timers.erase(timer);
            const auto& [key, check, what] = timer;
            if (what == Timer::expiry) {
                const auto* known = known_result(key, check);
                pending[key][check] = CheckResult{
                    CheckStatus::critical, expired_message(known == nullptr ? "" : known->output), clock.wall(), {}, {}};
            }
            controller.enqueue(key);
        }
        const auto next = due.empty() ? SteadyTime::max() : due.begin()->first;
        if (next < *sleeping_until) {
            *sleeping_until = next;
            sleepers.spawn(sleep_towards(clock, timers_changed, next, sleeping_until));
        }
        const auto woken = co_await timers_changed.wait(ctx);
        if (!woken.ok()) break;
    }
    co_await sleepers.stop();
}

void Checker::State::drop_timers(const std::string& key, const std::function<bool(const std::string&)>& is_removed) {
    for (auto at = timers.lower_bound({key, "", Timer::expiry}); at != timers.end() && std::get<0>(at->first) == key;) {
        if (!is_removed(std::get<1>(at->first))) {
            ++at;
            continue;
        }
        due.erase({at->second, at->first});
        at = timers.erase(at);
    }
}

} // namespace orrery::catalog
