#include "core/result.h"

#include <fmt/format.h>

#include <array>

namespace orrery {

namespace {
constexpr std::array<std::string_view, 14> code_names = {"invalid",   "unauthenticated", "denied",      "not_found", "conflict",
                                                         "compacted", "too_large",       "unsupported", "throttled", "cancelled",
                                                         "timeout",   "unavailable",     "no_space",    "internal"};
static_assert(code_names.size() == static_cast<std::size_t>(Code::internal) + 1);
} // namespace

std::string_view name_of(Code code) { return code_names[static_cast<std::size_t>(code)]; }

Code code_named(std::string_view name) {
    for (std::size_t i = 0; i < code_names.size(); ++i)
        if (code_names[i] == name) return static_cast<Code>(i);
    return Code::internal;
}

std::string Error::text() const {
    std::string out = fmt::format("{}: {}", name_of(code), message);
    for (const auto& field : fields) out += fmt::format("; {}: {}", field.path, field.message);
    if (!remedy.empty()) out += fmt::format(" (remedy: {})", remedy);
    return out;
}

Error Error::within(std::string_view where) && {
    message = fmt::format("{}: {}", where, message);
    return std::move(*this);
}

} // namespace orrery
