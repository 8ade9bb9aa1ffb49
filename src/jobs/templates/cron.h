#pragma once

#include "core/clock.h"
#include "core/result.h"
#include "jobs/templates/time_zone.h"

#include <bitset>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::jobs {

/// A cron expression: minute, hour, day of month, month, day of week. Lists, ranges, steps and names (jan, mon) as in crontab(5);
/// @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually. Where both day fields are restricted, either match is enough.
/// Pure: no clock.
class CronExpression {
public:
    /// `invalid` names the field and the error. An expression that no date matches ("0 0 31 2 *") is invalid.
    static Result<CronExpression> parse(std::string_view text);

    /// The first match after `after` in that zone. Where the hour is not `*`, a local time that the clock skips is due at the
    /// moment of the change, and a local time that occurs twice is due the first time only; with `*` it is due each time.
    std::optional<WallTime> next_after(WallTime after, const TimeZone& zone) const;

private:
    using LocalMinute = std::chrono::local_time<std::chrono::minutes>;
    bool matches_day(std::chrono::local_days day) const;
    /// The first match in [from, until).
    std::optional<LocalMinute> first_in(LocalMinute from, LocalMinute until) const;

    std::bitset<60> minutes_;
    std::bitset<24> hours_;
    std::bitset<32> days_;
    std::bitset<13> months_;
    std::bitset<7> weekdays_;
    bool any_day_ = false, any_weekday_ = false;
    bool every_hour_ = false;
};

} // namespace orrery::jobs
