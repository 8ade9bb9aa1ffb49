#pragma once

#include "core/result.h"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::jobs {

/// A time zone of the IANA database (package tzdata), as spans of constant offset from UTC. Cheap to copy.
class TimeZone {
public:
    /// "Europe/Berlin", "UTC". `invalid` where the database has no zone of that name. Reads a small file at the first use of a
    /// name.
    static Result<TimeZone> load(std::string_view name);

    struct Span {
        std::chrono::sys_seconds begin, end; ///< [begin, end); `end` may lie far in the future
        std::chrono::seconds offset;         ///< local time less UTC
    };
    /// The span that contains `at`. Its `begin` may be `at` itself where the real one is earlier.
    Span span_at(std::chrono::sys_seconds at) const;

private:
    struct Zone;
    std::shared_ptr<const Zone> zone_;
};

} // namespace orrery::jobs
