#include "health/probe.h"
#include "net/http_client.h"
#include "net/wire.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <mutex>

namespace orrery::health {

namespace {

using Tcp = asio::ip::tcp;
constexpr auto probe_token = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t body_looked_at = 64 << 10;

std::chrono::microseconds since(SteadyTime begin) {
    return std::chrono::duration_cast<std::chrono::microseconds>(real_clock().steady() - begin);
}

std::string cut(std::string text) {
    if (text.size() > longest_text) text.resize(longest_text);
    return text;
}

/// What a failed connection says about the target, and what about ourselves.
Outcome outcome_of(const boost::system::error_code& error) {
    if (error == asio::error::connection_refused) return Outcome::refused;
    switch (error.value()) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case EADDRNOTAVAIL: // no source port left
    case EACCES:
    case EPERM: return Outcome::local_error;
    case ETIMEDOUT: return Outcome::timeout_connect;
    default: return Outcome::unreachable;
    }
}

struct Connected {
    Observation seen; ///< outcome ok where there is a socket
    std::unique_ptr<Tcp::socket> socket;
};

/// To the first address of the name that takes it. Resolving runs on Asio's own thread and may outlive us.
asio::awaitable<Connected> connect_to(Context ctx, std::string host, std::uint16_t port, std::string what) {
    co_await asio::this_coro::throw_if_cancelled(false);
    Connected out;
    const auto begin = real_clock().steady();
    const auto executor = co_await asio::this_coro::executor;
    std::vector<Tcp::endpoint> endpoints;
    boost::system::error_code not_an_address;
    if (const auto address = asio::ip::make_address(host, not_an_address); !not_an_address) {
        endpoints.emplace_back(address, port);
    } else {
        Tcp::resolver resolver(executor);
        auto [error, results] =
            co_await resolver.async_resolve(host, std::to_string(port), Tcp::resolver::numeric_service, probe_token);
        if (error == asio::error::operation_aborted) {
            out.seen.outcome = Outcome::timeout_connect;
            out.seen.text = fmt::format("{}: the name was not resolved in time", what);
            co_return out;
        }
        for (const auto& result : results) endpoints.push_back(result.endpoint());
        if (error || endpoints.empty()) {
            out.seen.outcome = Outcome::dns_error;
            out.seen.text = fmt::format("{}: the name {} was not found", what, host);
            co_return out;
        }
    }
    for (const auto& endpoint : endpoints) {
        auto socket = std::make_unique<Tcp::socket>(executor);
        boost::system::error_code error;
        socket->open(endpoint.protocol(), error);
        if (!error) {
            auto [failed] = co_await socket->async_connect(endpoint, probe_token);
            error = failed;
        }
        if (!error) {
            out.seen.outcome = Outcome::ok;
            out.seen.connect = since(begin);
            out.socket = std::move(socket);
            co_return out;
        }
        if (error == asio::error::operation_aborted) {
            out.seen.outcome = Outcome::timeout_connect;
            out.seen.text = fmt::format("{}: no answer in time", what);
            co_return out;
        }
        out.seen.outcome = outcome_of(error);
        out.seen.text = fmt::format("{}: {}", what, net::in_words(error));
        if (out.seen.outcome == Outcome::local_error) break;
    }
    co_return out;
}

/// Runs a look within the deadline; `late` is what it says where the deadline came first.
Task<Observation> as_result(asio::awaitable<Observation> look) { co_return co_await std::move(look); }

class TcpProbe final : public Probe {
public:
    explicit TcpProbe(TcpLook look) : look_(std::move(look)) {}
    std::string identity() const override { return fmt::format("tcp {} {}", look_.host, look_.port); }
    asio::awaitable<Observation> look(Context ctx) const override {
        const auto what = fmt::format("TCP connect {}:{}", look_.host, look_.port);
        auto seen = co_await within_deadline(ctx, as_result(connect_only(ctx, look_, what)));
        if (!seen.ok()) co_return Observation{.outcome = Outcome::timeout_connect, .text = what + ": no answer in time"};
        co_return std::move(*seen);
    }

private:
    static asio::awaitable<Observation> connect_only(Context ctx, TcpLook look, std::string what) {
        auto connected = co_await connect_to(ctx, look.host, look.port, what);
        if (connected.socket) {
            connected.seen.text = what + ": Success";
            boost::system::error_code ignored;
            // A reset spares both sides the wait after a close; nothing was sent that could be lost.
            connected.socket->set_option(asio::socket_base::linger(true, 0), ignored);
        }
        co_return std::move(connected.seen);
    }
    TcpLook look_;
};

/// The head of an answer, as much as a look needs: the code, and where the body begins.
struct AnswerHead {
    int code = 0;
    std::string reason;
    std::size_t body_at = 0;
    std::optional<std::size_t> length;
};

/// nothing: not whole yet. `invalid`: no HTTP.
Result<std::optional<AnswerHead>> read_answer_head(std::string_view text) {
    constexpr std::string_view start = "HTTP/1.";
    if (!start.starts_with(text.substr(0, start.size()))) return Error{Code::invalid, "no HTTP answer"};
    const auto end = text.find("\r\n\r\n");
    if (end == std::string_view::npos) {
        if (text.size() > (32U << 10)) return Error{Code::invalid, "an HTTP head over 32 KiB"};
        return std::optional<AnswerHead>{};
    }
    AnswerHead head;
    head.body_at = end + 4;
    const auto line = text.substr(0, text.find("\r\n"));
    if (line.size() < 12 || line[8] != ' ') return Error{Code::invalid, "no HTTP status line"};
    const auto [stop, error] = std::from_chars(line.data() + 9, line.data() + 12, head.code);
    if (error != std::errc{} || stop != line.data() + 12 || head.code < 100) return Error{Code::invalid, "no HTTP status line"};
    if (line.size() > 13) head.reason = std::string(line.substr(13, 64));
    auto rest = text.substr(line.size() + 2, end - line.size());
    while (!rest.empty()) {
        const auto field = rest.substr(0, rest.find("\r\n"));
        rest.remove_prefix(std::min(rest.size(), field.size() + 2));
        const auto colon = field.find(':');
        if (colon == std::string_view::npos) continue;
        std::string name(field.substr(0, colon));
        for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
        if (name != "content-length") continue;
        auto value = field.substr(colon + 1);
        value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
        std::size_t length = 0;
        if (std::from_chars(value.data(), value.data() + value.size(), length).ec == std::errc{}) head.length = length;
    }
    return std::optional<AnswerHead>(std::move(head));
}

std::shared_ptr<net::TlsContext> system_tls() {
    static std::once_flag once;
    static std::shared_ptr<net::TlsContext> shared;
    std::call_once(once, [] {
        if (auto made = net::tls_client({}); made.ok()) shared = std::move(*made);
    });
    return shared;
}

class HttpProbe final : public Probe {
public:
    HttpProbe(HttpLook look, net::Url url, std::shared_ptr<net::TlsContext> tls)
        : look_(std::move(look)), url_(std::move(url)), tls_(std::move(tls)) {
        request_ = fmt::format("{} {} HTTP/1.1\r\n", look_.method, url_.target);
        bool has_host = false, has_agent = false;
        for (const auto& [name, value] : look_.headers) {
            std::string low(name);
            for (char& c : low) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
            if (low == "connection" || low == "content-length" || low == "transfer-encoding") continue;
            has_host = has_host || low == "host";
            has_agent = has_agent || low == "user-agent";
            request_ += fmt::format("{}: {}\r\n", name, value);
        }
        const auto origin = url_.origin();
        if (!has_host) request_ += fmt::format("Host: {}\r\n", origin.substr(origin.find("://") + 3));
        if (!has_agent) request_ += "User-Agent: orrery-health\r\n";
        request_ += "Accept: */*\r\nConnection: close\r\n";
        if (!look_.body.empty()) request_ += fmt::format("Content-Length: {}\r\n", look_.body.size());
        request_ += "\r\n" + look_.body;
    }

    std::string identity() const override {
        std::string out = fmt::format("http {}\n{}\ncontains {}\ncodes", url_.text(), request_, look_.contains);
        for (const auto& [first, last] : look_.codes) out += fmt::format(" {}-{}", first, last);
        return out;
    }

    asio::awaitable<Observation> look(Context ctx) const override {
        auto phase = std::make_shared<Outcome>(Outcome::timeout_connect);
        auto seen = co_await within_deadline(ctx, as_result(ask(ctx, *this, phase)));
        if (seen.ok()) co_return std::move(*seen);
        co_return Observation{
            .outcome = *phase,
            .text = fmt::format("{}: {}", what(),
                                *phase == Outcome::timeout_read ? "no whole answer in time" : "no connection in time")};
    }

private:
    std::string what() const { return fmt::format("HTTP {} {}", look_.method, url_.text()); }

    static asio::awaitable<Observation> ask(Context ctx, const HttpProbe& probe, std::shared_ptr<Outcome> phase) {
        co_await asio::this_coro::throw_if_cancelled(false);
        const auto begin = real_clock().steady();
        auto connected = co_await connect_to(ctx, probe.url_.host, probe.url_.port, probe.what());
        if (!connected.socket) co_return std::move(connected.seen);
        Observation seen = std::move(connected.seen);
        std::unique_ptr<net::Wire> wire;
        if (probe.url_.scheme == "https") {
            auto tls = probe.tls_ ? probe.tls_ : system_tls();
            if (!tls) {
                seen.outcome = Outcome::local_error;
                seen.text = probe.what() + ": this machine's certificate authorities cannot be read";
                co_return seen;
            }
            auto shaken = co_await net::tls_client_wire(ctx, probe.url_, std::move(tls), std::move(*connected.socket));
            if (!shaken.ok()) {
                const bool expired = shaken.error().message.find("expired") != std::string::npos;
                seen.outcome = expired ? Outcome::tls_expired : Outcome::tls_error;
                if (shaken.error().code == Code::timeout || shaken.error().code == Code::cancelled)
                    seen.outcome = Outcome::timeout_connect;
                seen.text = cut(fmt::format("{}: {}", probe.what(), shaken.error().message));
                co_return seen;
            }
            wire = std::move(*shaken);
            seen.tls = since(begin) - seen.connect;
        } else {
            wire = net::plain_wire(std::move(*connected.socket));
        }
        *phase = Outcome::timeout_read;
        std::string_view rest = probe.request_;
        while (!rest.empty()) {
            const auto io = co_await wire->write_some(rest, {});
            if (io.error) {
                seen.outcome = io.error == asio::error::operation_aborted ? Outcome::timeout_read : Outcome::protocol;
                seen.text = fmt::format("{}: {}", probe.what(), net::in_words(io.error));
                co_return seen;
            }
            rest.remove_prefix(io.bytes);
        }
        std::string answer;
        std::optional<AnswerHead> head;
        bool ended = false;
        for (;;) {
            auto read = read_answer_head(answer);
            if (!read.ok()) {
                seen.outcome = Outcome::protocol;
                seen.text = fmt::format("{}: {}", probe.what(), read.error().message);
                co_return seen;
            }
            head = std::move(*read);
            if (head && head->code < 200) { // an interim answer: the real one follows
                answer.erase(0, head->body_at);
                head.reset();
                continue;
            }
            if (head && (ended || probe.has_enough(*head, answer))) break;
            if (ended) {
                seen.outcome = Outcome::protocol;
                seen.text = probe.what() + ": the connection was closed without an answer";
                co_return seen;
            }
            std::array<char, 8192> buffer;
            const auto io = co_await wire->read_some(buffer.data(), buffer.size());
            if (answer.empty() && io.bytes > 0) seen.first_byte = since(begin);
            answer.append(buffer.data(), io.bytes);
            if (io.error == asio::error::operation_aborted) {
                seen.outcome = Outcome::timeout_read;
                seen.text = probe.what() + ": no whole answer in time";
                co_return seen;
            }
            if (io.error) ended = true;
        }
        wire->close();
        probe.judge(*head, std::string_view(answer).substr(head->body_at), seen);
        co_return seen;
    }

    bool has_enough(const AnswerHead& head, std::string_view answer) const {
        const auto body = answer.substr(head.body_at);
        if (look_.method == "HEAD" || head.code == 204 || head.code == 304) return true;
        if (head.length && body.size() >= *head.length) return true;
        if (body.size() >= body_looked_at) return true;
        // Without something to search, the first piece of the body is there for people only.
        return look_.contains.empty() ? body.size() >= 1024 : body.find(look_.contains) != std::string_view::npos;
    }

    void judge(const AnswerHead& head, std::string_view body, Observation& seen) const {
        body = body.substr(0, body_looked_at);
        bool good = false;
        if (look_.codes.empty()) good = head.code >= 200 && head.code < 300;
        for (const auto& [first, last] : look_.codes) good = good || (head.code >= first && head.code <= last);
        seen.outcome = good ? Outcome::ok : look_.codes.empty() && head.code == 429 ? Outcome::warning : Outcome::bad_status;
        std::string extra;
        if (good && !look_.contains.empty() && body.find(look_.contains) == std::string_view::npos) {
            seen.outcome = Outcome::bad_body;
            extra = fmt::format(" (the answer does not contain \"{}\")", look_.contains);
        }
        std::string shown;
        for (const char c : body.substr(0, 2048))
            shown += (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == 0x7f ? '?' : c;
        seen.text = cut(fmt::format("{}: {} {}{} Output: {}", what(), head.code, head.reason, extra, shown));
    }

    HttpLook look_;
    net::Url url_;
    std::shared_ptr<net::TlsContext> tls_;
    std::string request_;
};

class CommandProbe final : public Probe {
public:
    CommandProbe(CommandRunner& runner, std::string node, std::vector<std::string> argv)
        : runner_(runner), node_(std::move(node)), argv_(std::move(argv)) {}
    std::string identity() const override {
        std::string out = "command " + node_;
        for (const auto& word : argv_) out += fmt::format(" {}:{}", word.size(), word);
        return out;
    }
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

ProbePtr tcp_probe(TcpLook look) { return std::make_shared<TcpProbe>(std::move(look)); }

Result<ProbePtr> http_probe(HttpLook look, std::shared_ptr<net::TlsContext> tls) {
    TRY(auto url, net::parse_url(look.url));
    const auto is_token = [](std::string_view text) {
        return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f && c != ':'; });
    };
    for (const auto& [name, value] : look.headers)
        if (!is_token(name) || value.find_first_of("\r\n") != std::string::npos)
            return Error{Code::invalid, fmt::format("\"{}\" is no header field that can be sent", name)};
    if (!is_token(look.method)) return Error{Code::invalid, fmt::format("\"{}\" is no HTTP method", look.method)};
    return ProbePtr(std::make_shared<HttpProbe>(std::move(look), std::move(url), std::move(tls)));
}

ProbePtr command_probe(CommandRunner& runner, std::string node, std::vector<std::string> argv) {
    return std::make_shared<CommandProbe>(runner, std::move(node), std::move(argv));
}

} // namespace orrery::health
