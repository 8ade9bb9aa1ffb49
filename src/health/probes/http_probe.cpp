#include "health/probes/http_probe.h"

#include "health/probes/engine_probe.h"
#include "net/http_client.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::health {

namespace {

std::string lowered(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return out;
}

std::string http_request(const HttpProbeOptions& options, const net::Url& url, bool reuse) {
    auto out = fmt::format("{} {} HTTP/1.1\r\n", options.method, url.target);
    bool has_host = false, has_agent = false, has_accept = false;
    for (const auto& [name, value] : options.headers) {
        const auto low = lowered(name);
        if (low == "connection" || low == "content-length" || low == "transfer-encoding") continue;
        has_host = has_host || low == "host";
        has_agent = has_agent || low == "user-agent";
        has_accept = has_accept || low == "accept";
        out += fmt::format("{}: {}\r\n", name, value);
    }
    const auto origin = url.origin();
    if (!has_host) out += fmt::format("Host: {}\r\n", origin.substr(origin.find("://") + 3));
    if (!has_agent) out += "User-Agent: orrery-health\r\n";
    if (!has_accept) out += "Accept: */*\r\n";
    if (!reuse) out += "Connection: close\r\n";
    if (!options.body.empty()) out += fmt::format("Content-Length: {}\r\n", options.body.size());
    return out + "\r\n" + options.body;
}

std::string http_identity(const HttpProbeOptions& options, const net::Url& url, const ProbeProgram& program) {
    auto out = fmt::format("http {} {} {}\n{}\nexpect {}\ncodes", program.host, url.text(), program.verify, program.request,
                           program.expect.identity());
    for (const auto& [first, last] : options.codes) out += fmt::format(" {}-{}", first, last);
    if (program.secure) out += fmt::format(" {} {}", tls_identity(program.tls), to_text(program.min_certificate_lifetime));
    if (options.follow_redirects > 0) out += fmt::format(" redirects {}", options.follow_redirects);
    if (!options.secrets.empty()) out += " masked"; // a request without secrets is not shared: its observations are not masked
    return out;
}

ProbeProgram http_program(const HttpProbeOptions& options, const net::Url& url, std::shared_ptr<net::TlsContext> tls,
                          const Pattern& expect);

/// The program for the location that a response of `from` redirects to. Only locations on the same host are followed: another host
/// is no evidence of the health of this one, and no target may send the prober to a host of its choice.
Result<ProbeProgramPtr> redirect_program(HttpProbeOptions options, const net::Url& from, std::shared_ptr<net::TlsContext> tls,
                                         const Pattern& expect, std::string_view location) {
    const auto url = net::resolve_location(from, location);
    if (!url.ok()) return Error{Code::invalid, fmt::format("it redirects to what cannot be followed: {}", url.error().message)};
    if (from.scheme == "https" && url->scheme == "http")
        return Error{Code::invalid, fmt::format("it redirects to {}, which is not encrypted", url->origin())};
    if (url->host != from.host && url->host != options.address)
        return Error{Code::invalid, fmt::format("it redirects to a different host, {}", url->origin())};
    --options.follow_redirects;
    if (options.address.empty()) options.address = from.host;
    options.reuse = false;
    return std::make_shared<const ProbeProgram>(http_program(options, *url, std::move(tls), expect));
}

ProbeProgram http_program(const HttpProbeOptions& options, const net::Url& url, std::shared_ptr<net::TlsContext> tls,
                          const Pattern& expect) {
    ProbeProgram program;
    program.kind = ProbeProgram::Kind::http;
    program.what = fmt::format("HTTP {} {}", options.method, url.text());
    program.host = options.address.empty() ? url.host : options.address;
    program.port = url.port;
    program.secure = url.scheme == "https";
    program.verify = options.verify;
    program.server_name = options.address.empty() ? std::string() : url.host;
    program.min_certificate_lifetime = options.min_certificate_lifetime;
    program.reuse = options.reuse && (options.method == "GET" || options.method == "HEAD" || options.method == "OPTIONS");
    program.request = http_request(options, url, program.reuse);
    program.expect = expect;
    program.codes = options.codes;
    program.to_head = options.method == "HEAD";
    program.tls = tls;
    program.outbound = options.outbound;
    if (options.follow_redirects > 0)
        program.redirect = [options, url, tls = std::move(tls), expect](std::string_view location) {
            return redirect_program(options, url, tls, expect, location);
        };
    return program;
}

} // namespace

Result<ProbePtr> http_probe(HttpProbeOptions options, std::shared_ptr<net::TlsContext> tls) {
    TRY(auto url, net::parse_url(options.url));
    const auto is_token = [](std::string_view text) {
        return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f && c != ':'; });
    };
    for (const auto& [name, value] : options.headers)
        if (!is_token(name) || value.find_first_of("\r\n") != std::string::npos)
            return Error{Code::invalid, fmt::format("\"{}\" is not a valid header field", name)};
    if (!is_token(options.method)) return Error{Code::invalid, fmt::format("\"{}\" is not a valid HTTP method", options.method)};
    TRY(auto expect, Pattern::make(options.contains, options.matches));
    if (options.follow_redirects > 0 && options.method != "GET" && options.method != "HEAD")
        return Error{Code::invalid, fmt::format("redirects of {} are not followed", options.method), "use GET or HEAD"};
    auto program = http_program(options, url, std::move(tls), expect);
    return ProbePtr(
        std::make_shared<EngineProbe>(http_identity(options, url, program), std::move(program), masker_of(options.secrets)));
}

} // namespace orrery::health
