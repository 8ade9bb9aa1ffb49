#include "cli/command.h"
#include "cli/session.h"

#include <fmt/format.h>

#include <charconv>

namespace orrery::cli {

namespace {
constexpr std::string_view default_server = "http://127.0.0.1:8421";
} // namespace

std::string Invocation::text(std::string_view key, std::string_view otherwise) const {
    const auto found = values.find(key);
    return found == values.end() || found->second.empty() ? std::string(otherwise) : found->second.back();
}

std::vector<std::string> Invocation::all(std::string_view key) const {
    const auto found = values.find(key);
    return found == values.end() ? std::vector<std::string>{} : found->second;
}

Result<std::int64_t> Invocation::number(std::string_view key, std::int64_t otherwise) const {
    if (!has(key)) return otherwise;
    const auto given = text(key);
    std::int64_t out = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), out);
    if (error != std::errc{} || end != given.data() + given.size() || out < 1)
        return Error{Code::invalid, fmt::format("--{} must be a number from 1 on, not \"{}\"", key, given)};
    return out;
}

Result<Api*> Invocation::api() { return connect(true); }
Result<Api*> Invocation::api_without_token() { return connect(false); }

Result<Api*> Invocation::connect(bool with_token) {
    if (api_) return api_.get();
    Api::Options options;
    TRY(const auto saved, load_session(streams));
    const auto or_variable = [&](std::string_view flag, std::string_view variable) {
        return has(flag) ? text(flag) : streams.variable(variable);
    };
    options.server = or_variable("server", "ORRERY_SERVER");
    if (options.server.empty()) options.server = saved && !saved->server.empty() ? saved->server : std::string(default_server);
    while (options.server.ends_with('/')) options.server.pop_back();
    // A token goes to the server that gave it, and to no other.
    const bool same_server = saved && saved->server == options.server;
    options.ca = or_variable("ca", "ORRERY_CA");
    if (options.ca.empty() && same_server) options.ca = saved->ca;
    options.anonymous = !with_token;
    if (with_token) {
        if (const auto file = or_variable("token-file", "ORRERY_TOKEN_FILE"); !file.empty()) {
            TRY(options.token, read_secret_file(streams, file));
        } else if (same_server) {
            options.token = saved->token;
        }
        for (const char c : options.token)
            if (c < 0x21 || c > 0x7E)
                return Error{Code::invalid, "the token has characters in it that no token has",
                             "give the file that holds only the token"};
    }
    if (has("timeout")) {
        auto parsed = parse_duration(text("timeout"));
        if (!parsed.ok()) return std::move(parsed).error().within("--timeout");
        if (*parsed <= Duration::zero()) return Error{Code::invalid, "--timeout must be longer than nothing"};
        options.timeout = *parsed;
    }
    TRY(api_, Api::make(std::move(options)));
    return api_.get();
}

Result<const KindCatalog*> Invocation::kinds() {
    if (kinds_) return &*kinds_;
    TRY(auto* connection, api());
    TRY(auto answer, connection->get("/v1/kinds"));
    TRY(kinds_, KindCatalog::read(answer.body));
    return &*kinds_;
}

} // namespace orrery::cli
