#include "jobs/templates/cron.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

namespace orrery::jobs {

namespace {

/// Leap years are up to eight years apart, and a zone's local time is at most a day from UTC.
constexpr auto max_search = std::chrono::days(9 * 366);

struct CronField {
    std::string_view name;
    int min, max;
    std::vector<std::string_view> names; ///< of the values from `min`, in three letters
};

Error wrong_field(const CronField& field, std::string_view text, std::string_view reason) {
    return Error{Code::invalid, fmt::format("{} \"{}\": {}", field.name, text.substr(0, 64), reason),
                 "write minute, hour, day of month, month and day of week, as in \"30 2 * * mon-fri\", or @daily"};
}

std::optional<int> value_in(const CronField& field, std::string_view text) {
    for (std::size_t i = 0; i < field.names.size(); ++i) {
        const bool same = text.size() == 3 && std::equal(text.begin(), text.end(), field.names[i].begin(),
                                                         [](char a, char b) { return (a | 0x20) == b; });
        if (same) return field.min + static_cast<int>(i);
    }
    int value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc{} || end != text.data() + text.size() || value < field.min || value > field.max) return {};
    return value;
}

/// One field: "*", "*/5", "1-5", "1-10/3", "7", "mon,wed". Sets bits from 0 to `max`.
Result<std::bitset<64>> read_cron_field(const CronField& field, std::string_view text) {
    std::bitset<64> out;
    for (auto rest = text;;) {
        const auto comma = rest.find(',');
        const auto part = rest.substr(0, comma);
        const auto slash = part.find('/');
        const auto range = part.substr(0, slash);
        int first = field.min, last = field.max, step = 1;
        if (range != "*") {
            const auto dash = range.find('-');
            const auto from = value_in(field, range.substr(0, dash));
            const auto to = dash == range.npos ? (slash == part.npos ? from : std::optional(field.max))
                                               : value_in(field, range.substr(dash + 1));
            if (!from || !to) return wrong_field(field, text, fmt::format("must be values from {} to {}", field.min, field.max));
            first = *from;
            last = *to;
            if (first > last) return wrong_field(field, text, "the end of a range is before its beginning");
        }
        if (slash != part.npos) {
            const auto digits = part.substr(slash + 1);
            const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
            if (failed != std::errc{} || end != digits.data() + digits.size() || step < 1 || step > 1000)
                return wrong_field(field, text, "a step must be a number from 1");
        }
        for (int value = first; value <= last; value += step) out.set(static_cast<std::size_t>(value));
        if (comma == rest.npos) return out;
        rest.remove_prefix(comma + 1);
    }
}

template <std::size_t size> std::bitset<size> bits_of(const std::bitset<64>& from) {
    std::bitset<size> out;
    for (std::size_t i = 0; i < size; ++i) out[i] = from[i];
    return out;
}

} // namespace

Result<CronExpression> CronExpression::parse(std::string_view text) {
    using namespace std::chrono;
    static const std::array<std::pair<std::string_view, std::string_view>, 7> named{{{"@hourly", "0 * * * *"},
                                                                                     {"@daily", "0 0 * * *"},
                                                                                     {"@midnight", "0 0 * * *"},
                                                                                     {"@weekly", "0 0 * * 0"},
                                                                                     {"@monthly", "0 0 1 * *"},
                                                                                     {"@yearly", "0 0 1 1 *"},
                                                                                     {"@annually", "0 0 1 1 *"}}};
    static const std::array<CronField, 5> fields{
        {{"minute", 0, 59, {}},
         {"hour", 0, 23, {}},
         {"day of month", 1, 31, {}},
         {"month", 1, 12, {"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
         {"day of week", 0, 7, {"sun", "mon", "tue", "wed", "thu", "fri", "sat"}}}};
    for (const auto& [name, meaning] : named)
        if (text == name) return parse(meaning);
    std::vector<std::string_view> parts;
    for (auto rest = text; !rest.empty();) {
        const auto begin = rest.find_first_not_of(" \t");
        if (begin == rest.npos) break;
        const auto end = std::min(rest.find_first_of(" \t", begin), rest.size());
        parts.push_back(rest.substr(begin, end - begin));
        rest.remove_prefix(end);
    }
    if (parts.size() != fields.size())
        return Error{Code::invalid,
                     fmt::format("\"{}\" has {} fields; a calendar expression has 5", text.substr(0, 128), parts.size()),
                     "write minute, hour, day of month, month and day of week, as in \"30 2 * * mon-fri\", or one of @hourly, "
                     "@daily, @weekly, @monthly, @yearly"};
    std::array<std::bitset<64>, 5> bits;
    for (std::size_t i = 0; i < fields.size(); ++i) {
        TRY(bits[i], read_cron_field(fields[i], parts[i]));
    }
    if (bits[4][7]) bits[4].set(0); // Sunday is 0 and 7
    CronExpression out;
    out.minutes_ = bits_of<60>(bits[0]);
    out.hours_ = bits_of<24>(bits[1]);
    out.days_ = bits_of<32>(bits[2]);
    out.months_ = bits_of<13>(bits[3]);
    out.weekdays_ = bits_of<7>(bits[4]);
    out.any_day_ = parts[2].starts_with('*');
    out.any_weekday_ = parts[4].starts_with('*');
    out.every_hour_ = parts[1].starts_with('*');
    const auto begin = local_days(year(2001) / January / 1);
    if (!out.first_in(begin, begin + max_search))
        return Error{Code::invalid, fmt::format("no date is \"{}\"", text.substr(0, 128)),
                     "the month has no such day; for the last day of each month use a day up to 28"};
    return out;
}

bool CronExpression::matches_day(std::chrono::local_days day) const {
    using namespace std::chrono;
    const year_month_day date(day);
    if (!months_[static_cast<unsigned>(date.month())]) return false;
    const bool by_day = days_[static_cast<unsigned>(date.day())];
    const bool by_weekday = weekdays_[weekday(day).c_encoding()];
    // As cron: a restriction of one kind of day is the only one; of two restrictions either is enough.
    return any_day_ || any_weekday_ ? by_day && by_weekday : by_day || by_weekday;
}

std::optional<CronExpression::LocalMinute> CronExpression::first_in(LocalMinute from, LocalMinute until) const {
    using namespace std::chrono;
    for (auto day = floor<days>(from); day < until; day += days(1)) {
        if (!matches_day(day)) continue;
        for (unsigned hour = 0; hour < 24; ++hour) {
            if (!hours_[hour]) continue;
            for (unsigned minute = 0; minute < 60; ++minute) {
                const LocalMinute at = day + hours(hour) + std::chrono::minutes(minute);
                if (!minutes_[minute] || at < from) continue;
                return at < until ? std::optional(at) : std::nullopt;
            }
        }
    }
    return {};
}

std::optional<WallTime> CronExpression::next_after(WallTime after, const TimeZone& zone) const {
    using namespace std::chrono;
    auto from = floor<std::chrono::minutes>(after) + std::chrono::minutes(1); // the first minute that may be due
    const auto give_up = from + max_search;
    const auto local_of = [](sys_seconds at, seconds offset) { return local_seconds((at + offset).time_since_epoch()); };
    const auto start = floor<seconds>(after);
    auto span = zone.span_at(start);
    auto repeated_until = LocalMinute::min(); // local times before this were due before the clocks were set back
    if (const auto before = zone.span_at(start - days(1)); before.end <= start && before.offset > span.offset && !every_hour_)
        repeated_until = ceil<std::chrono::minutes>(local_of(before.end, before.offset));
    while (from < give_up) {
        const auto begin = std::max(ceil<std::chrono::minutes>(local_of(from, span.offset)), repeated_until);
        const auto end = std::min<sys_seconds>(span.end, give_up);
        if (const auto found = first_in(begin, ceil<std::chrono::minutes>(local_of(end, span.offset))))
            return WallTime(found->time_since_epoch() - span.offset);
        if (span.end >= give_up) return {};
        const auto next = zone.span_at(span.end);
        const auto old_end = ceil<std::chrono::minutes>(local_of(span.end, span.offset));
        const auto new_begin = ceil<std::chrono::minutes>(local_of(span.end, next.offset));
        repeated_until = LocalMinute::min();
        if (!every_hour_ && new_begin > old_end && first_in(old_end, new_begin)) return WallTime(span.end);
        if (!every_hour_ && new_begin < old_end) repeated_until = old_end;
        from = ceil<std::chrono::minutes>(span.end);
        span = next;
    }
    return {};
}

} // namespace orrery::jobs
