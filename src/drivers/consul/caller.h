#pragma once

#include "core/text.h"
#include "core/truncate.h"
#include "drivers/consul/consul.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

/// Requests to Consul, shared by ConsulMembership and ConsulMirror. Private to this folder.
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

/// Checks that an answer is evidence. It is not where Consul refused, has no leader, or left out entries that the token must not
/// see; then `unavailable` with the reason.
inline Result<Unit> check_evidence(const net::ClientResponse& answer, const ConsulOptions& options) {
    if (answer.status != 200)
        return Error{Code::unavailable, fmt::format("Consul answered {}: {}", answer.status, truncate(answer.body, 200)),
                     answer.status == 403 ? "give the token read access to all nodes and services" : ""};
    if (answer.headers.get("X-Consul-Results-Filtered-By-ACLs") == "true")
        return Error{Code::unavailable, "Consul left out entries that the token must not see",
                     "give the token read access to all nodes and services"};
    // Consul does not report to a client without a token that entries were left out.
    if (options.token.empty() && answer.headers.get("X-Consul-Default-ACL-Policy") == "deny")
        return Error{Code::unavailable, "Consul denies by default, and hides entries from clients without a token",
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
