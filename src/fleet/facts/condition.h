#pragma once

#include "core/result.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace re2 {
class RE2;
}

namespace orrery::fleet {

/// A test of one text, as match specs write it: gt(4), in(a, b), and(ge(10), not(regexp(^x))), or a plain text for equality.
/// Numbers may be decimal and may carry a unit: 4G, 1.5TB, 512MiB. A value of another type fails the test; it is not an error.
class Condition {
public:
    enum class Op { equals, gt, ge, lt, le, in, regexp, network, all_of, any_of, none_of };

    /// Equality with this text.
    static Condition literal(std::string text);
    /// A call such as "gt(4)". `invalid` where the function is unknown or its arguments are wrong.
    static Result<Condition> parse_call(std::string_view text);
    /// Has it the form of a call: a lower-case name and parentheses to the end?
    static bool is_call(std::string_view text);

    bool holds(std::string_view value) const;
    Op op() const { return op_; }

    static constexpr std::size_t max_depth = 16;

private:
    static Result<Condition> parse(std::string_view text, std::size_t depth);
    Result<Unit> set_arguments(std::string_view name, std::string_view arguments, std::size_t depth);

    Op op_ = Op::equals;
    double number_ = 0;
    std::vector<std::string> texts_;
    std::vector<Condition> children_;
    std::shared_ptr<const re2::RE2> expression_;
};

} // namespace orrery::fleet
