#include "jobs/templates/time_zone.h"

#include <fmt/format.h>

#include <absl/time/civil_time.h>
#include <absl/time/time.h>
#include <algorithm>

namespace orrery::jobs {

struct TimeZone::Zone {
    absl::TimeZone zone;
};

Result<TimeZone> TimeZone::load(std::string_view name) {
    const auto is_right = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '+' ||
               c == '/';
    };
    // The library takes more than names of zones: paths, "localtime" and forms of its own.
    const bool plain = !name.empty() && name.size() <= 64 && name.front() != '/' && name != "localtime" &&
                       std::all_of(name.begin(), name.end(), is_right);
    auto zone = std::make_shared<Zone>();
    if (!plain || !absl::LoadTimeZone(std::string(name), &zone->zone))
        return Error{Code::invalid, fmt::format("there is no time zone \"{}\"", name.substr(0, 64)),
                     "write it as the IANA database does: Europe/Berlin, America/New_York, UTC"};
    TimeZone out;
    out.zone_ = std::move(zone);
    return out;
}

TimeZone::Span TimeZone::span_at(std::chrono::sys_seconds at) const {
    const auto time = absl::FromChrono(std::chrono::time_point_cast<std::chrono::system_clock::duration>(at));
    Span span{at, std::chrono::sys_seconds::max(), std::chrono::seconds(zone_->zone.At(time).offset)};
    absl::TimeZone::CivilTransition next;
    if (zone_->zone.NextTransition(time, &next)) {
        const auto info = zone_->zone.At(next.to);
        // After a gap the new local time is unique; in an overlap it is there twice, and `trans` is where it begins to repeat.
        const auto moment = info.kind == absl::TimeZone::TimeInfo::UNIQUE ? info.pre : info.trans;
        span.end = std::chrono::floor<std::chrono::seconds>(absl::ToChronoTime(moment));
    }
    return span;
}

} // namespace orrery::jobs
