#include "health/probe.h"
#include "net/http_client.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::health {

namespace {

std::string cut(std::string text) {
    if (text.size() > longest_text) text.resize(longest_text);
    return text;
}

std::string lowered(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return out;
}

/// What the engine looks at.
class PlannedProbe final : public Probe {
public:
    PlannedProbe(std::string identity, Plan plan)
        : identity_(std::move(identity)), plan_(std::make_shared<const Plan>(std::move(plan))) {}
    std::string identity() const override { return identity_; }
    std::string host() const override { return plan_->host; }
    PlanPtr plan() const override { return plan_; }

private:
    std::string identity_;
    PlanPtr plan_;
};

/// Contexts are few and live long: one is told from another by where it is.
std::string identity_of(const std::shared_ptr<net::TlsContext>& tls) {
    return tls ? fmt::format("tls {}", static_cast<const void*>(tls.get())) : std::string("tls");
}

std::string http_request(const HttpLook& look, const net::Url& url, bool reuse) {
    auto out = fmt::format("{} {} HTTP/1.1\r\n", look.method, url.target);
    bool has_host = false, has_agent = false, has_accept = false;
    for (const auto& [name, value] : look.headers) {
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
    if (!look.body.empty()) out += fmt::format("Content-Length: {}\r\n", look.body.size());
    return out + "\r\n" + look.body;
}

std::string identity_of(const HttpLook& look, const net::Url& url, const Plan& plan) {
    auto out = fmt::format("http {} {} {}\n{}\nexpect {}\ncodes", plan.host, url.text(), plan.verify, plan.request,
                           plan.expect.identity());
    for (const auto& [first, last] : look.codes) out += fmt::format(" {}-{}", first, last);
    if (plan.secure) out += fmt::format(" {} {}", identity_of(plan.tls), to_text(plan.least_left));
    if (look.follow_redirects > 0) out += fmt::format(" redirects {}", look.follow_redirects);
    return out;
}

Plan plan_of(const HttpLook& look, const net::Url& url, std::shared_ptr<net::TlsContext> tls, const Pattern& expect);

/// The look at where an answer of `from` redirects to. Only where the same target answers: what another host says is nothing about
/// this one, and nobody who is looked at may send us to places of its choice.
Result<PlanPtr> plan_elsewhere(HttpLook look, const net::Url& from, std::shared_ptr<net::TlsContext> tls, const Pattern& expect,
                               std::string_view location) {
    const auto url = net::resolve_location(from, location);
    if (!url.ok()) return Error{Code::invalid, fmt::format("it redirects to what cannot be followed: {}", url.error().message)};
    if (from.scheme == "https" && url->scheme == "http")
        return Error{Code::invalid, fmt::format("it redirects to {}, which is not encrypted", url->origin())};
    if (url->host != from.host && url->host != look.address)
        return Error{Code::invalid, fmt::format("it redirects to {}, which is another host", url->origin())};
    --look.follow_redirects;
    if (look.address.empty()) look.address = from.host;
    look.reuse = false;
    return std::make_shared<const Plan>(plan_of(look, *url, std::move(tls), expect));
}

Plan plan_of(const HttpLook& look, const net::Url& url, std::shared_ptr<net::TlsContext> tls, const Pattern& expect) {
    Plan plan;
    plan.kind = Plan::Kind::http;
    plan.what = fmt::format("HTTP {} {}", look.method, url.text());
    plan.host = look.address.empty() ? url.host : look.address;
    plan.port = url.port;
    plan.secure = url.scheme == "https";
    plan.verify = look.verify;
    plan.server_name = look.address.empty() ? std::string() : url.host;
    plan.least_left = look.least_left;
    plan.reuse = look.reuse && (look.method == "GET" || look.method == "HEAD" || look.method == "OPTIONS");
    plan.request = http_request(look, url, plan.reuse);
    plan.expect = expect;
    plan.codes = look.codes;
    plan.to_head = look.method == "HEAD";
    plan.tls = tls;
    if (look.follow_redirects > 0)
        plan.redirected = [look, url, tls = std::move(tls), expect](std::string_view location) {
            return plan_elsewhere(look, url, tls, expect, location);
        };
    return plan;
}

class CommandProbe final : public Probe {
public:
    CommandProbe(CommandRunner& runner, std::string node, std::vector<std::string> argv)
        : runner_(runner), node_(std::move(node)), argv_(std::move(argv)) {}
    std::string identity() const override {
        std::string out = "command " + node_;
        for (const auto& word : argv_) out += fmt::format(" {}:{}", word.size(), word);
        return out;
    }
    std::string host() const override { return node_; }
    asio::awaitable<Observation> look(Context ctx) const override {
        auto ended = co_await within_deadline(ctx, runner_.run(ctx, node_, argv_));
        if (!ended.ok())
            co_return Observation{.outcome = Outcome::local_error,
                                  .text = cut(fmt::format("{} on {}: {}", argv_.front(), node_, ended.error().message))};
        Observation seen;
        seen.outcome = ended->exit_code == 0 ? Outcome::ok : ended->exit_code == 1 ? Outcome::warning : Outcome::failed;
        seen.text = cut(ended->output);
        if (seen.text.empty() && ended->exit_code != 0) seen.text = fmt::format("exit code {}", ended->exit_code);
        co_return seen;
    }

private:
    CommandRunner& runner_;
    std::string node_;
    std::vector<std::string> argv_;
};

} // namespace

asio::awaitable<Observation> Probe::look(Context) const {
    co_return Observation{.outcome = Outcome::local_error, .text = "this look needs the engine"};
}

asio::awaitable<Observation> look_once(Engine& engine, ProbePtr probe, Context ctx) {
    if (auto plan = probe->plan()) co_return co_await look_once(engine, std::move(plan), ctx);
    co_return co_await probe->look(ctx);
}

ProbePtr tcp_probe(TcpLook look) {
    auto identity = fmt::format("tcp {} {}", look.host, look.port);
    if (!look.send.empty() || !look.expect.wants_nothing())
        identity += fmt::format(" send {}:{} expect {}", look.send.size(), look.send, look.expect.identity());
    Plan plan;
    plan.what = fmt::format("TCP connect {}:{}", look.host, look.port);
    plan.host = std::move(look.host);
    plan.port = look.port;
    plan.request = std::move(look.send);
    plan.expect = std::move(look.expect);
    return std::make_shared<PlannedProbe>(std::move(identity), std::move(plan));
}

ProbePtr tls_probe(TlsLook look, std::shared_ptr<net::TlsContext> tls) {
    auto identity = fmt::format("tls {} {} {} {} {} {}", look.host, look.port, look.server_name, look.verify,
                                to_text(look.least_left), identity_of(tls));
    Plan plan;
    plan.kind = Plan::Kind::tls;
    plan.what = fmt::format("TLS {}:{}", look.host, look.port);
    plan.host = std::move(look.host);
    plan.port = look.port;
    plan.secure = true;
    plan.verify = look.verify;
    plan.tls = std::move(tls);
    plan.server_name = std::move(look.server_name);
    plan.least_left = look.least_left;
    return std::make_shared<PlannedProbe>(std::move(identity), std::move(plan));
}

Result<ProbePtr> http_probe(HttpLook look, std::shared_ptr<net::TlsContext> tls) {
    TRY(auto url, net::parse_url(look.url));
    const auto is_token = [](std::string_view text) {
        return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f && c != ':'; });
    };
    for (const auto& [name, value] : look.headers)
        if (!is_token(name) || value.find_first_of("\r\n") != std::string::npos)
            return Error{Code::invalid, fmt::format("\"{}\" is no header field that can be sent", name)};
    if (!is_token(look.method)) return Error{Code::invalid, fmt::format("\"{}\" is no HTTP method", look.method)};
    TRY(auto expect, Pattern::make(look.contains, look.matches));
    if (look.follow_redirects > 0 && look.method != "GET" && look.method != "HEAD")
        return Error{Code::invalid, fmt::format("redirects of {} are not followed", look.method), "use GET or HEAD"};
    auto plan = plan_of(look, url, std::move(tls), expect);
    return ProbePtr(std::make_shared<PlannedProbe>(identity_of(look, url, plan), std::move(plan)));
}

ProbePtr command_probe(CommandRunner& runner, std::string node, std::vector<std::string> argv) {
    return std::make_shared<CommandProbe>(runner, std::move(node), std::move(argv));
}

} // namespace orrery::health
