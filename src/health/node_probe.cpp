#include "health/lookout.h"

#include <fmt/format.h>

#include <charconv>

namespace orrery::health {

namespace {

std::string wanted_text(const json::object& look, std::string_view key) {
    const auto* value = look.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}

/// The last line that says something.
std::string last_line(std::string_view text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
    const auto line = text.rfind('\n');
    return std::string(line == std::string_view::npos ? text : text.substr(line + 1)).substr(0, 256);
}

constexpr int out_of_time = 124, no_program = 127, not_runnable = 126;

/// What the words of a system say, where a program only prints them.
Outcome outcome_by_words(std::string_view said) {
    const auto says = [&](std::string_view words) { return said.find(words) != std::string_view::npos; };
    if (says("Connection refused")) return Outcome::refused;
    if (says("timed out")) return Outcome::timeout_connect;
    if (says("Name or service not known") || says("No address associated")) return Outcome::dns_error;
    if (says("Temporary failure in name resolution") || says("Network is unreachable") || says("Cannot assign requested address"))
        return Outcome::local_error; // the node has no resolver, no route, no port
    if (says("No route to host") || says("unreachable")) return Outcome::unreachable;
    return Outcome::local_error; // what nobody understands is no evidence
}

Outcome tcp_outcome(int code, std::string_view said) {
    if (code == 0) return Outcome::ok;
    return code == out_of_time ? Outcome::timeout_connect : outcome_by_words(said);
}

Outcome ping_outcome(int code, std::string_view said) {
    if (code == 0) return Outcome::ok;
    if (code == out_of_time) return Outcome::timeout_read;
    if (code != 1) return outcome_by_words(said); // 2: it could not even ask
    return said.find("nreachable") != std::string_view::npos ? Outcome::unreachable : Outcome::timeout_read;
}

/// curl's exit codes (its manual).
Outcome curl_outcome(int code, std::string_view said) {
    switch (code) {
    case 0: return Outcome::ok;
    case 6: return said.find("Temporary") != std::string_view::npos ? Outcome::local_error : Outcome::dns_error;
    case 7: {
        const auto by_words = outcome_by_words(said);
        return by_words == Outcome::local_error && said.find("etwork is unreachable") == std::string_view::npos ? Outcome::refused
                                                                                                                : by_words;
    }
    case 28:
    case out_of_time: return Outcome::timeout_read;
    case 35:
    case 51:
    case 58: return Outcome::tls_error;
    case 60: return said.find("expired") != std::string_view::npos ? Outcome::tls_expired : Outcome::tls_error;
    case 1:
    case 8:
    case 18:
    case 52:
    case 55:
    case 56: return Outcome::protocol;
    default: return Outcome::local_error;
    }
}

class NodeProbe final : public Probe {
public:
    enum class How { tcp, http, ping };
    NodeProbe(CommandRunner& commands, std::string node, How how, std::vector<std::string> argv, std::string what,
              std::vector<std::pair<int, int>> codes)
        : commands_(commands),
          node_(std::move(node)),
          how_(how),
          argv_(std::move(argv)),
          what_(std::move(what)),
          codes_(std::move(codes)) {}
    std::string identity() const override {
        std::string out = "from node " + node_;
        for (const auto& word : argv_) out += fmt::format(" {}:{}", word.size(), word);
        for (const auto& [first, last] : codes_) out += fmt::format(" {}-{}", first, last);
        return out;
    }
    std::string host() const override { return node_; }
    asio::awaitable<Observation> look(Context ctx) const override {
        const auto ended = co_await within_deadline(ctx, commands_.run(ctx, node_, argv_));
        if (!ended.ok())
            co_return Observation{.outcome = Outcome::local_error,
                                  .text = fmt::format("{} cannot look: {}", node_, ended.error().message).substr(0, longest_text)};
        const int code = ended->exit_code;
        const auto said = last_line(ended->output);
        Observation seen;
        if (code == no_program || code == not_runnable || code < 0)
            seen.outcome = Outcome::local_error;
        else
            seen.outcome = how_ == How::tcp    ? tcp_outcome(code, ended->output)
                           : how_ == How::http ? curl_outcome(code, ended->output)
                                               : ping_outcome(code, ended->output);
        seen.text =
            fmt::format("{} from {}: {}", what_, node_, seen.outcome == Outcome::ok && how_ != How::http ? "Success" : said);
        if (how_ == How::http && code == 0) judge(said, seen);
        co_return seen;
    }

private:
    void judge(const std::string& said, Observation& seen) const {
        int status = 0;
        const auto [end, error] = std::from_chars(said.data(), said.data() + said.size(), status);
        if (error != std::errc{} || end != said.data() + said.size()) {
            seen.outcome = Outcome::local_error;
            return;
        }
        bool good = codes_.empty() && status >= 200 && status < 300;
        for (const auto& [first, last] : codes_) good = good || (status >= first && status <= last);
        seen.outcome = good ? Outcome::ok : codes_.empty() && status == 429 ? Outcome::warning : Outcome::bad_status;
    }

    CommandRunner& commands_;
    const std::string node_;
    const How how_;
    const std::vector<std::string> argv_;
    const std::string what_;
    const std::vector<std::pair<int, int>> codes_;
};

} // namespace

Result<ProbePtr> node_probe(CommandRunner& commands, const std::string& node, const Wanted& wanted) {
    // What cannot be a look from here can be none from there; it also sees to it that no argument is more than it seems.
    TRY(std::ignore, probe_from(wanted.look, wanted.address, wanted.port, {}));
    const auto kind = wanted_text(wanted.look, "kind");
    const Error unsupported{Code::unsupported, fmt::format("nodes cannot make this look of kind {}", kind)};
    if (wanted.address.starts_with('-')) return unsupported;
    const auto* own_port = wanted.look.if_contains("port");
    const auto port = own_port != nullptr && own_port->is_number() ? own_port->to_number<int>() : wanted.port;
    for (const auto* field : {"send", "contains", "matches", "body", "least_left"})
        if (wanted.look.contains(field)) return unsupported;
    if (kind == "icmp")
        return ProbePtr(std::make_shared<NodeProbe>(
            commands, node, NodeProbe::How::ping, std::vector<std::string>{"ping", "-n", "-c", "1", "--", wanted.address},
            fmt::format("ICMP echo {}", wanted.address), std::vector<std::pair<int, int>>{}));
    if (kind == "tcp")
        return ProbePtr(std::make_shared<NodeProbe>(
            commands, node, NodeProbe::How::tcp,
            std::vector<std::string>{"env", "LC_ALL=C", "bash", "-c", "exec 3<>/dev/tcp/\"$0\"/\"$1\"", wanted.address,
                                     std::to_string(port)},
            fmt::format("TCP connect {}:{}", wanted.address, port), std::vector<std::pair<int, int>>{}));
    if (kind != "http" && kind != "https") return unsupported;
    const auto asked = wanted_text(wanted.look, "host");
    const auto path = wanted_text(wanted.look, "path"), method = wanted_text(wanted.look, "method");
    const int real_port = port != 0 ? port : kind == "http" ? 80 : 443;
    const auto bracketed = [](const std::string& name) { return name.find(':') == std::string::npos ? name : "[" + name + "]"; };
    const auto url =
        fmt::format("{}://{}:{}{}", kind, bracketed(asked.empty() ? wanted.address : asked), real_port, path.empty() ? "/" : path);
    std::vector<std::string> argv{"env", "LC_ALL=C",        "curl",      "-q", "-sS", "-g", "-o", "/dev/null",
                                  "-w",  "%{http_code}\\n", "--noproxy", "*"};
    if (method == "HEAD")
        argv.emplace_back("-I");
    else if (!method.empty() && method != "GET")
        argv.insert(argv.end(), {"-X", method});
    if (const auto* headers = wanted.look.if_contains("headers"); headers != nullptr && headers->is_object())
        for (const auto& [name, value] : headers->get_object()) {
            if (std::string_view(name).starts_with('@') || !value.is_string()) return unsupported; // to curl, a file to read
            argv.insert(argv.end(), {"-H", fmt::format("{}: {}", std::string_view(name), std::string_view(value.get_string()))});
        }
    if (const auto* verify = wanted.look.if_contains("verify"); verify != nullptr && verify->is_bool() && !verify->get_bool())
        argv.emplace_back("-k");
    if (!asked.empty()) argv.insert(argv.end(), {"--connect-to", fmt::format("::{}:{}", bracketed(wanted.address), real_port)});
    argv.insert(argv.end(), {"--", url});
    std::vector<std::pair<int, int>> codes;
    if (const auto expect = wanted_text(wanted.look, "expect"); !expect.empty()) {
        TRY(codes, parse_status_codes(expect));
    }
    return ProbePtr(std::make_shared<NodeProbe>(commands, node, NodeProbe::How::http, std::move(argv),
                                                fmt::format("HTTP {} {}", method.empty() ? "GET" : method, url), std::move(codes)));
}

} // namespace orrery::health
