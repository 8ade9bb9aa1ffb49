#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

/// A small linearizability checker: could the results that concurrent clients saw of registers have come from one copy that
/// executes one call at a time, each between its call and its return? The algorithm of Wing and Gong, with Lowe's cache of
/// configurations.
namespace orrery::testing {

/// One call on one register. A value other than 0 is written only once; 0 means that the key does not exist.
struct RegisterCall {
    enum class Type { read, write, compare_and_set };
    /// unknown: the answer was lost; the call may have been executed at any time after it was made, or never.
    enum class Outcome { done, refused, unknown };
    Type type = Type::read;
    std::string key;
    std::int64_t expected = 0; ///< compare_and_set
    std::int64_t value = 0;    ///< written, or read
    Outcome outcome = Outcome::done;
    std::int64_t called = 0, returned = 0; ///< in one total order for the whole history
};

/// Nothing if the history is linearizable; otherwise a message with the key and the calls around the first one that cannot be
/// ordered.
std::optional<std::string> anomaly_in(const std::vector<RegisterCall>& history);

} // namespace orrery::testing
