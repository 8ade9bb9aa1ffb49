#include "core/clock.h"

#include "core/timer_wait.h"
#include "core/truncate.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

namespace orrery {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

class RealClock final : public Clock {
public:
    WallTime wall() const override { return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()); }
    SteadyTime steady() const override { return std::chrono::steady_clock::now(); }
    asio::awaitable<Result<Unit>> sleep_until(SteadyTime when) override {
        asio::steady_timer timer(co_await asio::this_coro::executor, when);
        const auto end = co_await detail::wait_for(timer);
        if (!end.expired || end.cancelled) co_return Error{Code::cancelled, "the wait was cancelled"};
        co_return Unit{};
    }
};

} // namespace

Clock& real_clock() {
    static RealClock clock;
    return clock;
}

struct VirtualClock::State {
    struct Sleeper {
        std::shared_ptr<asio::steady_timer> timer; // at the end of time; cancelling it is the alarm
        std::shared_ptr<bool> rang;
    };
    SteadyTime now{1h};
    WallTime wall{std::chrono::sys_days{std::chrono::year{2026} / 1 / 1}};
    std::multimap<SteadyTime, Sleeper> sleepers;

    void ring_all_due() {
        while (!sleepers.empty() && sleepers.begin()->first <= now) {
            auto sleeper = std::move(sleepers.begin()->second);
            sleepers.erase(sleepers.begin());
            *sleeper.rang = true;
            sleeper.timer->cancel();
        }
    }
};

VirtualClock::VirtualClock() : state_(std::make_unique<State>()) {}
VirtualClock::~VirtualClock() = default;
WallTime VirtualClock::wall() const { return state_->wall; }
SteadyTime VirtualClock::steady() const { return state_->now; }
std::size_t VirtualClock::sleepers() const { return state_->sleepers.size(); }

asio::awaitable<Result<Unit>> VirtualClock::sleep_until(SteadyTime when) {
    if (when <= state_->now) co_return Unit{};
    auto timer = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor, SteadyTime::max());
    auto rang = std::make_shared<bool>(false);
    auto place = state_->sleepers.emplace(when, State::Sleeper{timer, rang});
    const auto end = co_await detail::wait_for(*timer);
    if (*rang && !end.cancelled) co_return Unit{};
    if (!*rang) state_->sleepers.erase(place);
    co_return Error{Code::cancelled, "the wait was cancelled"};
}

void VirtualClock::advance(Duration by) {
    state_->now += by;
    state_->wall += std::chrono::floor<std::chrono::milliseconds>(by);
    state_->ring_all_due();
}

bool VirtualClock::advance_to_next() {
    if (state_->sleepers.empty()) return false;
    advance(std::max(state_->sleepers.begin()->first - state_->now, Duration::zero()));
    return true;
}

void VirtualClock::step_wall(Duration by) { state_->wall += std::chrono::floor<std::chrono::milliseconds>(by); }

std::string to_rfc3339(WallTime time) {
    const auto day = std::chrono::floor<std::chrono::days>(time);
    const std::chrono::year_month_day date{day};
    const std::chrono::hh_mm_ss clock{time - day};
    const auto year = static_cast<int>(date.year());
    if (year >= 0 && year <= 9999) {
        // By hand: every resource that is written, read or shown has its times, and a general formatter takes many times as long.
        std::string out = "0000-00-00T00:00:00.000Z";
        const auto put = [&out](std::size_t last, std::int64_t number) { // `last`: position of the last digit
            for (; number > 0; number /= 10) out[last--] = static_cast<char>('0' + number % 10);
        };
        put(3, year);
        put(6, static_cast<unsigned>(date.month()));
        put(9, static_cast<unsigned>(date.day()));
        put(12, clock.hours().count());
        put(15, clock.minutes().count());
        put(18, clock.seconds().count());
        put(22, clock.subseconds().count());
        return out;
    }
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", year, static_cast<unsigned>(date.month()),
                       static_cast<unsigned>(date.day()), clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                       clock.subseconds().count());
}

namespace {

/// Takes exactly `digits` digits from the front of `text`.
bool take_number(std::string_view& text, std::size_t digits, int& out) {
    if (text.size() < digits) return false;
    for (std::size_t i = 0; i < digits; ++i)
        if (text[i] < '0' || text[i] > '9') return false;
    std::from_chars(text.data(), text.data() + digits, out);
    text.remove_prefix(digits);
    return true;
}

bool take_char(std::string_view& text, std::string_view any_of) {
    if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
    text.remove_prefix(1);
    return true;
}

} // namespace

Result<WallTime> from_rfc3339(std::string_view text) {
    // Made only when it is wanted: times are read with every resource.
    const auto bad = [whole = text] {
        return Error{Code::invalid, fmt::format("\"{}\" is not a time", truncate(whole, 40)), "write it as 2026-11-16T04:42:52Z"};
    };
    int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, milliseconds = 0;
    if (!take_number(text, 4, year) || !take_char(text, "-") || !take_number(text, 2, month) || !take_char(text, "-") ||
        !take_number(text, 2, day) || !take_char(text, "Tt ") || !take_number(text, 2, hour) || !take_char(text, ":") ||
        !take_number(text, 2, minute) || !take_char(text, ":") || !take_number(text, 2, second))
        return bad();
    if (take_char(text, ".")) {
        int scale = 100;
        int digit = 0;
        if (!take_number(text, 1, digit)) return bad();
        do {
            milliseconds += digit * scale;
            scale /= 10;
        } while (take_number(text, 1, digit));
    }
    int offset = 0;
    if (!take_char(text, "Zz")) {
        const bool west = !text.empty() && text.front() == '-';
        int hours = 0, minutes = 0;
        if (!take_char(text, "+-") || !take_number(text, 2, hours) || !take_char(text, ":") || !take_number(text, 2, minutes))
            return bad();
        if (hours > 23 || minutes > 59) return bad();
        offset = (hours * 60 + minutes) * (west ? -1 : 1);
    }
    const std::chrono::year_month_day date{std::chrono::year{year}, std::chrono::month{static_cast<unsigned>(month)},
                                           std::chrono::day{static_cast<unsigned>(day)}};
    if (!text.empty() || !date.ok() || hour > 23 || minute > 59 || second > 60) return bad();
    return WallTime{std::chrono::sys_days{date}} + std::chrono::hours{hour} + std::chrono::minutes{minute - offset} +
           std::chrono::seconds{second} + std::chrono::milliseconds{milliseconds};
}

std::string to_text(Duration duration) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(duration);
    if (left == 0ms) return "0s";
    std::string out;
    if (left < 0ms) {
        out = "-";
        left = -left;
    }
    auto take = [&](auto unit, std::string_view name) {
        if (left < unit) return;
        out += fmt::format("{}{}", left / unit, name);
        left %= unit;
    };
    take(std::chrono::milliseconds{24h}, "d");
    take(std::chrono::milliseconds{1h}, "h");
    take(std::chrono::milliseconds{1min}, "m");
    take(std::chrono::milliseconds{1s}, "s");
    take(1ms, "ms");
    return out;
}

Result<Duration> parse_duration(std::string_view text) {
    const Error bad{Code::invalid, fmt::format("\"{}\" is not a duration", truncate(text, 40)),
                    "write it with units, as in 250ms, 30s, 15m, 2h30m or 7d"};
    constexpr std::int64_t longest = 1000LL * 60 * 60 * 24 * 36500;
    std::int64_t total = 0;
    if (text.empty()) return bad;
    if (text == "0") return Duration::zero();
    while (!text.empty()) {
        std::int64_t number = 0;
        auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error != std::errc{} || number < 0) return bad;
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
        std::int64_t unit = 0;
        if (text.starts_with("ms"))
            unit = 1;
        else if (text.starts_with("s"))
            unit = 1000;
        else if (text.starts_with("m"))
            unit = 60'000;
        else if (text.starts_with("h"))
            unit = 3'600'000;
        else if (text.starts_with("d"))
            unit = 86'400'000;
        else
            return bad;
        text.remove_prefix(unit == 1 ? 2 : 1);
        if (number > longest / unit) return bad;
        total += number * unit;
        if (total > longest) return bad;
    }
    return std::chrono::milliseconds{total};
}

} // namespace orrery
