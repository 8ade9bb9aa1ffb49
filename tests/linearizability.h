#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

/// A small checker of histories: could what concurrent clients saw of registers have come from one copy that does one thing at a
/// time, each at some instant between its call and its return? After Wing and Gong, with Lowe's memory of configurations already
/// tried.
namespace orrery::testing {

/// One call on one register. Values other than 0 are written once only; 0 is "not there".
struct RegisterCall {
    enum class What { read, write, compare_and_set };
    /// unknown: the answer was lost; it may have happened, at any time after the call, or never.
    enum class Outcome { done, refused, unknown };
    What what = What::read;
    std::string key;
    std::int64_t expected = 0; ///< compare_and_set
    std::int64_t value = 0;    ///< written, or read
    Outcome outcome = Outcome::done;
    std::int64_t called = 0, returned = 0; ///< in one order for the whole history
};

/// Nothing if it is linearizable; else a sentence with the key and the calls around the first that cannot be placed.
std::optional<std::string> anomaly_in(const std::vector<RegisterCall>& history);

} // namespace orrery::testing
