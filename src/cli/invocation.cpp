#include "cli/command.h"
#include "cli/session.h"
#include "net/http_client.h"

#include <fmt/format.h>

#include <charconv>
#include <ostream>
#include <sys/stat.h>

namespace orrery::cli {

namespace {
constexpr std::string_view default_server = "http://127.0.0.1:8421";
} // namespace

std::string Invocation::text(std::string_view key, std::string_view default_value) const {
    const auto found = values.find(key);
    return found == values.end() || found->second.empty() ? std::string(default_value) : found->second.back();
}

std::vector<std::string> Invocation::all(std::string_view key) const {
    const auto found = values.find(key);
    return found == values.end() ? std::vector<std::string>{} : found->second;
}

Result<std::int64_t> Invocation::number(std::string_view key, std::int64_t default_value) const {
    if (!has(key)) return default_value;
    const auto given = text(key);
    std::int64_t out = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), out);
    if (error != std::errc{} || end != given.data() + given.size() || out < 1)
        return usage_error(fmt::format("--{} must be a positive number, not \"{}\"", key, given));
    return out;
}

Result<std::string> Invocation::time(std::string_view key) const {
    const auto given = text(key);
    if (const auto ago = parse_duration(given); ago.ok())
        return to_rfc3339(streams.clock->wall() - std::chrono::duration_cast<std::chrono::milliseconds>(*ago));
    if (const auto moment = from_rfc3339(given); moment.ok()) return to_rfc3339(*moment);
    return usage_error(fmt::format("--{} \"{}\" is neither an age nor a time", key, given),
                       "give an age such as 10m or 7d, or a time such as 2026-11-16T04:42:52Z");
}

Error Invocation::usage_error(std::string message, std::string remedy) const {
    usage_error_ = true;
    return {Code::invalid, std::move(message), std::move(remedy)};
}

Result<Api*> Invocation::api() { return connect(true); }
Result<Api*> Invocation::api_without_token() { return connect(false); }

Result<Api*> Invocation::connect(bool with_token) {
    if (api_) return api_.get();
    Api::Options options;
    TRY(auto sessions, load_sessions(streams));
    const auto or_variable = [&](std::string_view flag, std::string_view variable) {
        return has(flag) ? text(flag) : streams.variable(variable);
    };
    options.server = or_variable("server", "ORRERY_SERVER");
    while (options.server.ends_with('/')) options.server.pop_back();
    // A token is sent only to the server that issued it.
    const auto* saved = sessions.for_server(options.server);
    if (options.server.empty()) options.server = saved && !saved->server.empty() ? saved->server : std::string(default_server);
    options.ca = or_variable("ca", "ORRERY_CA");
    if (options.ca.empty() && saved) options.ca = saved->ca;
    options.anonymous = !with_token;
    if (with_token) {
        if (const auto file = or_variable("token-file", "ORRERY_TOKEN_FILE"); !file.empty()) {
            TRY(options.token, read_secret_file(streams, file));
            struct stat about{};
            if (!quiet() && ::stat(file.c_str(), &about) == 0 && (about.st_mode & S_IROTH) != 0)
                streams.err << fmt::format("warning: the token in {} is readable by every user: chmod 600 {}\n", file, file);
        } else if (auto given = streams.variable("ORRERY_TOKEN"); !given.empty()) {
            options.token = std::move(given);
        } else if (saved && saved->server == options.server) {
            options.token = saved->token;
        }
        for (const char c : options.token)
            if (c < 0x21 || c > 0x7E)
                return Error{Code::invalid, "the token has characters that are not valid in a token",
                             "the file must contain only the token"};
    }
    if (has("timeout")) {
        auto parsed = parse_duration(text("timeout"));
        if (!parsed.ok()) return usage_error("--timeout: " + parsed.error().message, parsed.error().remedy);
        if (*parsed <= Duration::zero()) return usage_error("--timeout must be greater than zero");
        options.timeout = *parsed;
    }
    const auto server = options.server;
    auto made = Api::make(std::move(options));
    if (!made.ok() && !net::parse_url(server).ok()) return usage_error(made.error().message, made.error().remedy);
    if (!made.ok()) return std::move(made).error();
    api_ = std::move(*made);
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
