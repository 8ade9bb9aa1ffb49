#pragma once

#include "core/text.h"
#include "drivers/consul/consul.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

/// What both sides of this driver need to speak to Consul. Nobody else includes it.
namespace orrery::drivers {

struct Caller {
    net::HttpClient& client;
    ConsulOptions options;

    Task<net::ClientResponse> call(Context ctx, std::string method, std::string path, std::string body = {}) const {
        net::ClientRequest request;
        request.method = std::move(method);
        if (!options.datacenter.empty())
            path +=
                fmt::format("{}dc={}", path.find('?') == std::string::npos ? '?' : '&', net::percent_encode(options.datacenter));
        CO_TRY(request.url, net::parse_url(options.url + path));
        if (!options.token.empty()) request.headers.set("X-Consul-Token", options.token);
        if (!body.empty()) request.headers.set("Content-Type", "application/json");
        request.body = std::move(body);
        co_return co_await client.send(std::move(ctx), std::move(request));
    }
};

/// Whether an answer says how things are: it does not when Consul refused, has no leader, or left out what the token may not see.
/// `unavailable` with the reason then.
inline Result<Unit> as_evidence(const net::ClientResponse& answer, const ConsulOptions& options) {
    if (answer.status != 200)
        return Error{Code::unavailable, fmt::format("Consul answered {}: {}", answer.status, answer.body.substr(0, 200)),
                     answer.status == 403 ? "give the token the right to read all nodes and services" : ""};
    if (answer.headers.get("X-Consul-Results-Filtered-By-ACLs") == "true")
        return Error{Code::unavailable, "Consul left something out that the token may not see",
                     "give the token the right to read all nodes and services"};
    // To those without a token it does not even say that it left something out.
    if (options.token.empty() && answer.headers.get("X-Consul-Default-ACL-Policy") == "deny")
        return Error{Code::unavailable, "Consul denies by default, and does not say what it leaves out without a token",
                     "set catalog.consul.token_file"};
    if (answer.headers.get("X-Consul-KnownLeader") == "false") return Error{Code::unavailable, "Consul has no leader"};
    return Unit{};
}

inline std::uint64_t index_of(const net::ClientResponse& answer) {
    const auto text = answer.headers.get("X-Consul-Index");
    std::uint64_t out = 0;
    std::from_chars(text.data(), text.data() + text.size(), out);
    return out;
}

} // namespace orrery::drivers
