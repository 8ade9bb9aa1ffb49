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

/// Header fields in order. Names compare without regard to case.
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

/// A request's target, taken apart and percent-decoded: "/v1/nodes?limit=2".
struct Target {
    std::string path;                                       ///< decoded, begins with '/', without "." and ".." segments
    std::vector<std::pair<std::string, std::string>> query; ///< decoded, in order
    /// The first value of that name; nothing where it is absent ("?x" gives "").
    std::optional<std::string> param(std::string_view name) const;
};
/// `invalid` for anything that is not a well-formed origin-form target, is not UTF-8, has a NUL in it or climbs above the root.
/// Dots count after decoding ("%2e%2e" is ".."); in the query '+' is a space.
Result<Target> parse_target(std::string_view text);
/// For building targets: encodes everything but unreserved characters.
std::string percent_encode(std::string_view text);

/// The body of a message, read as it comes.
class BodyReader {
public:
    virtual ~BodyReader() = default;
    /// Some bytes; empty at the end. `too_large` over the limit the message was accepted with.
    virtual Task<std::string> read_some(Context ctx) = 0;
};
/// All of it; `too_large` if it is more than `limit`.
Task<std::string> read_all(Context ctx, BodyReader& body, std::size_t limit);

std::string_view reason_phrase(int status);

} // namespace orrery::net
