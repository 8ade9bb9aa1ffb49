#pragma once

#include "core/clock.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace orrery {

/// 16 lower-case hexadecimal digits of randomness: context ids.
std::string random_id();

/// `bytes` of randomness from the kernel, as text of a-z and 2-7: passwords, tokens, keys of things nobody may guess.
std::string random_secret(std::size_t bytes);

/// 26 characters (0-9a-z) that sort by time and, within a millisecond of one process, by order of the calls: names of events.
std::string time_ordered_id(WallTime now);
/// The least id of that moment: ids made earlier sort before it.
std::string time_ordered_bound(WallTime moment);

/// The candidate nearest to `word` by edit distance, or nothing where none is near: "did you mean".
std::string_view nearest(std::string_view word, const std::string_view* begin, const std::string_view* end);

} // namespace orrery
