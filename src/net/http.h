#pragma once

#include "core/task.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::net {

/// Header fields in order. Names are case-insensitive.
class Headers {
public:
    Headers() = default;
    Headers(std::initializer_list<std::pair<std::string, std::string>> fields) : fields_(fields) {}
    /// The first field of that name, or "".
    std::string_view get(std::string_view name) const;
    bool has(std::string_view name) const;
    /// Replaces all fields of that name.
    void set(std::string_view name, std::string value);
    void remove(std::string_view name);
    void add(std::string name, std::string value) { fields_.emplace_back(std::move(name), std::move(value)); }
    auto begin() const { return fields_.begin(); }
    auto end() const { return fields_.end(); }

private:
    std::vector<std::pair<std::string, std::string>> fields_;
};

/// A request target such as "/v1/nodes?limit=2", parsed and percent-decoded.
struct Target {
    std::string path;                                       ///< decoded, begins with '/', without "." and ".." segments
    std::vector<std::pair<std::string, std::string>> query; ///< decoded, in order
    /// The first value of that name; nullopt when it is absent. The value of "?x" is "".
    std::optional<std::string> param(std::string_view name) const;
};
/// Errors: `invalid` for a target that is not in origin form, is not UTF-8, contains NUL or leaves the root. Dot segments are
/// resolved after decoding ("%2e%2e" is ".."); in the query '+' is a space.
Result<Target> parse_target(std::string_view text);
/// Encodes all characters except unreserved ones.
std::string percent_encode(std::string_view text);

/// Reads the body of a message incrementally.
class BodyReader {
public:
    virtual ~BodyReader() = default;
    /// The next bytes; empty at the end. Errors: `too_large` beyond the limit of the message.
    virtual Task<std::string> read_some(Context ctx) = 0;
};
/// Reads the complete body. Errors: `too_large` beyond `limit`.
Task<std::string> read_all(Context ctx, BodyReader& body, std::size_t limit);

std::string_view reason_phrase(int status);
/// The status of a response that reports an error of this code.
int http_status(Code code);

} // namespace orrery::net
