#pragma once

#include "core/result.h"

#include <memory>
#include <string>
#include <string_view>

namespace orrery::health {

/// What must be found in what came back: a text, a regular expression (RE2: linear in time whatever the bytes are), or both. Empty:
/// nothing is wanted.
class Pattern {
public:
    Pattern() = default;
    /// `invalid` for an expression that is none.
    static Result<Pattern> make(std::string text, std::string expression);

    bool wants_nothing() const { return !parts_; }
    bool is_in(std::string_view bytes) const;
    /// For people: the text "ok", the expression "^[0-9]+".
    std::string words() const;
    /// The same for the same pattern.
    std::string identity() const;

private:
    struct Parts;
    std::shared_ptr<const Parts> parts_;
};

} // namespace orrery::health
