#pragma once

#include "core/result.h"

#include <memory>
#include <string>
#include <string_view>

namespace orrery::health {

/// What a response must contain: a text, a regular expression (RE2, which takes linear time for any input), or both. An empty
/// pattern expects nothing.
class Pattern {
public:
    Pattern() = default;
    /// `invalid`: the regular expression is not valid.
    static Result<Pattern> make(std::string text, std::string expression);

    bool wants_nothing() const { return !parts_; }
    bool is_in(std::string_view bytes) const;
    /// For messages: "ok", /^[0-9]+/.
    std::string description() const;
    /// Equal for equal patterns.
    std::string identity() const;

private:
    struct Parts;
    std::shared_ptr<const Parts> parts_;
};

} // namespace orrery::health
