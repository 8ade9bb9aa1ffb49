#pragma once

#include "core/clock.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace orrery {

/// 16 random lower-case hexadecimal digits, for context ids.
std::string random_id();

/// `bytes` random bytes of the kernel, as text of a-z and 2-7, for passwords, tokens and other values that must be unguessable.
std::string random_secret(std::size_t bytes);

/// 26 characters (0-9a-z) that sort by time and, within one millisecond of one process, by order of calls; for names of events.
std::string time_ordered_id(WallTime now);
/// The smallest id of that time: all earlier ids sort before it.
std::string time_ordered_bound(WallTime moment);

} // namespace orrery
