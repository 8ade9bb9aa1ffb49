#include "api/continue_token.h"

#include <fmt/format.h>

#include <cstdint>

namespace orrery::api {

namespace {

/// FNV-1a, so that all servers accept the token. It detects mistakes; it is no access check.
std::uint64_t checksum(std::string_view list, std::string_view name) {
    std::uint64_t sum = 14695981039346656037U;
    const auto add = [&](std::string_view text) {
        for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211U;
    };
    add(list);
    add("\n");
    add(name);
    return sum;
}

} // namespace

std::string continue_token(std::string_view list, std::string_view name) {
    return fmt::format("{:016x}.{}", checksum(list, name), name);
}

Result<std::string> read_continue_token(std::string_view list, std::string_view token) {
    constexpr std::size_t digits = 16;
    if (token.size() > digits && continue_token(list, token.substr(digits + 1)) == token)
        return std::string(token.substr(digits + 1));
    return Error{Code::invalid, "must be the \"continue\" value of the previous page of this list", "list again without ?continue"};
}

} // namespace orrery::api
