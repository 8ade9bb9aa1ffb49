#include "health/probes/node_probe.h"

#include "core/json_fields.h"
#include "core/truncate.h"
#include "health/check_spec.h"
#include "health/probe_spec.h"
#include "health/probes/command_probe.h"
#include "health/probes/http_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::health {

namespace {

/// The last line that is not empty.
std::string last_line(std::string_view text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
    const auto line = text.rfind('\n');
    return truncate(std::string(line == std::string_view::npos ? text : text.substr(line + 1)), 256);
}

constexpr int out_of_time = 124, no_program = 127, not_runnable = 126;

/// The outcome that an error message of the system means, for programs that only print it.
Outcome outcome_from_text(std::string_view output) {
    const auto has = [&](std::string_view text) { return output.find(text) != std::string_view::npos; };
    if (has("Connection refused")) return Outcome::refused;
    if (has("timed out")) return Outcome::timeout_connect;
    if (has("Name or service not known") || has("No address associated")) return Outcome::dns_error;
    if (has("Temporary failure in name resolution") || has("Network is unreachable") || has("Cannot assign requested address"))
        return Outcome::local_error; // the node has no name server, no route or no port
    if (has("No route to host") || has("unreachable")) return Outcome::unreachable;
    return Outcome::local_error; // an unknown message is no evidence
}

Outcome tcp_outcome(int code, std::string_view output) {
    if (code == 0) return Outcome::ok;
    return code == out_of_time ? Outcome::timeout_connect : outcome_from_text(output);
}

Outcome ping_outcome(int code, std::string_view output) {
    if (code == 0) return Outcome::ok;
    if (code == out_of_time) return Outcome::timeout_read;
    if (code != 1) return outcome_from_text(output); // 2: ping could not send
    return output.find("nreachable") != std::string_view::npos ? Outcome::unreachable : Outcome::timeout_read;
}

/// curl's exit codes (its manual).
Outcome curl_outcome(int code, std::string_view output) {
    switch (code) {
    case 0: return Outcome::ok;
    case 6: return output.find("Temporary") != std::string_view::npos ? Outcome::local_error : Outcome::dns_error;
    case 7: {
        const auto from_text = outcome_from_text(output);
        return from_text == Outcome::local_error && output.find("etwork is unreachable") == std::string_view::npos
                   ? Outcome::refused
                   : from_text;
    }
    case 28:
    case out_of_time: return Outcome::timeout_read;
    case 35:
    case 51:
    case 58: return Outcome::tls_error;
    case 60: return output.find("expired") != std::string_view::npos ? Outcome::tls_expired : Outcome::tls_error;
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
    struct Work {
        std::vector<std::string> argv;
        std::string what, input = {};
        std::vector<std::pair<int, int>> codes = {};
        std::vector<std::string> secrets = {};
    };
    NodeProbe(CommandRunner& commands, std::string node, How how, Work work)
        : commands_(commands),
          node_(std::move(node)),
          how_(how),
          argv_(std::move(work.argv)),
          what_(std::move(work.what)),
          input_(std::move(work.input)),
          codes_(std::move(work.codes)),
          masker_(masker_of(work.secrets)) {}
    std::string identity() const override {
        std::string out = "from node " + node_;
        for (const auto& argument : argv_) out += fmt::format(" {}:{}", argument.size(), argument);
        out += fmt::format(" input {}:{}", input_.size(), input_);
        for (const auto& [first, last] : codes_) out += fmt::format(" {}-{}", first, last);
        if (masker_) out += " masked";
        return out;
    }
    std::string host() const override { return node_; }
    const Masker* masker() const override { return masker_.get(); }
    asio::awaitable<Observation> run(Context ctx) const override {
        const auto ended = co_await within_deadline(ctx, commands_.run(ctx, node_, argv_, input_));
        if (!ended.ok())
            co_return Observation{.outcome = Outcome::local_error,
                                  .text = fmt::format("{} cannot probe: {}", node_, ended.error().message).substr(0, max_text)};
        const int code = ended->exit_code;
        const auto output = last_line(ended->output);
        Observation seen;
        if (code == no_program || code == not_runnable || code < 0)
            seen.outcome = Outcome::local_error;
        else
            seen.outcome = how_ == How::tcp    ? tcp_outcome(code, ended->output)
                           : how_ == How::http ? curl_outcome(code, ended->output)
                                               : ping_outcome(code, ended->output);
        seen.text =
            fmt::format("{} from {}: {}", what_, node_, seen.outcome == Outcome::ok && how_ != How::http ? "Success" : output);
        if (how_ == How::http && code == 0) judge(output, seen);
        co_return seen;
    }

private:
    void judge(const std::string& output, Observation& seen) const {
        int status = 0;
        const auto [end, error] = std::from_chars(output.data(), output.data() + output.size(), status);
        if (error != std::errc{} || end != output.data() + output.size()) {
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
    const std::string what_, input_;
    const std::vector<std::pair<int, int>> codes_;
    const std::shared_ptr<const Masker> masker_;
};

/// Adds an option to curl's configuration (`-K`). Within quotes only a quote or a backslash needs escaping.
void add_option(std::string& config, std::string_view option, std::string_view value) {
    config += fmt::format("{} = \"", option);
    for (const char c : value) switch (c) {
        case '"': config += "\\\""; break;
        case '\\': config += "\\\\"; break;
        case '\n': config += "\\n"; break;
        case '\r': config += "\\r"; break;
        case '\t': config += "\\t"; break;
        case '\v': config += "\\v"; break;
        default: config += c;
        }
    config += "\"\n";
}

/// The limit of curl for lines of configuration.
constexpr std::size_t max_config_line = 100'000;

bool is_content_type(std::string_view name) {
    constexpr std::string_view known = "content-type";
    return std::equal(name.begin(), name.end(), known.begin(), known.end(), [](char a, char b) { return (a | 0x20) == b; });
}

/// The request as configuration of curl: command-line arguments are visible to every user of the node.
Result<std::string> curl_config(const HttpProbeOptions& options, const Error& unsupported) {
    std::string config;
    add_option(config, "url", options.url);
    if (options.method == "HEAD")
        config += "head\n";
    else if (options.method != "GET" || !options.body.empty())
        add_option(config, "request", options.method);
    bool has_type = false;
    for (const auto& [name, value] : options.headers) {
        if (name.starts_with('@')) return unsupported; // curl would read a file
        has_type = has_type || is_content_type(name);
        // curl removes a header without a value, unless it is written like this.
        const bool blank = value.find_first_not_of(" \t") == std::string::npos;
        add_option(config, "header", blank ? name + ";" : fmt::format("{}: {}", name, value));
    }
    if (!options.body.empty()) {
        if (options.body.find('\0') != std::string::npos) return unsupported;
        if (!has_type) add_option(config, "header", "Content-Type:");
        add_option(config, "header", "Expect:");
        add_option(config, "data-raw", options.body);
    }
    if (config.size() > max_config_line) return unsupported;
    return config;
}

} // namespace

Result<ProbePtr> node_probe(CommandRunner& commands, const std::string& node, const CheckSpec& spec) {
    // Rejects invalid specs, and values that could act as further arguments.
    TRY(std::ignore, probe_from(spec.probe, spec.address, spec.port, {}));
    const auto kind = probe_kind_of(spec.probe);
    const Error unsupported{Code::unsupported,
                            fmt::format("nodes do not support this probe of kind {}", text_at(spec.probe, "kind"))};
    if (spec.address.starts_with('-')) return unsupported;
    const auto* own_port = spec.probe.if_contains("port");
    const auto port = own_port != nullptr && own_port->is_number() ? own_port->to_number<int>() : spec.port;
    for (const auto* field : {"send", "contains", "matches", "min_certificate_lifetime"})
        if (spec.probe.contains(field)) return unsupported;
    if (kind == ProbeKind::icmp)
        return ProbePtr(std::make_shared<NodeProbe>(
            commands, node, NodeProbe::How::ping,
            NodeProbe::Work{{"ping", "-n", "-c", "1", "--", spec.address}, fmt::format("ICMP echo {}", spec.address)}));
    if (kind == ProbeKind::tcp)
        return ProbePtr(std::make_shared<NodeProbe>(
            commands, node, NodeProbe::How::tcp,
            NodeProbe::Work{{"env", "LC_ALL=C", "bash", "-c", "exec 3<>/dev/tcp/\"$0\"/\"$1\"", spec.address, std::to_string(port)},
                            fmt::format("TCP connect {}:{}", spec.address, port)}));
    if (kind != ProbeKind::http && kind != ProbeKind::https) return unsupported;
    const auto real_port = static_cast<std::uint16_t>(port != 0 ? port : kind == ProbeKind::http ? 80 : 443);
    TRY(auto options, http_probe_options(spec.probe, spec.address, real_port));
    NodeProbe::Work work{
        {"env", "LC_ALL=C", "curl", "-q", "-sS", "-g", "-o", "/dev/null", "-w", "%{http_code}\\n", "--noproxy", "*"},
        fmt::format("HTTP {} {}", options.method, options.url)};
    if (!options.verify) work.argv.emplace_back("-k");
    if (spec.probe.contains("host")) {
        const bool v6 = spec.address.find(':') != std::string::npos;
        work.argv.insert(work.argv.end(),
                         {"--connect-to", fmt::format("::{}{}{}:{}", v6 ? "[" : "", spec.address, v6 ? "]" : "", real_port)});
    }
    work.argv.insert(work.argv.end(), {"-K", "-"});
    TRY(work.input, curl_config(options, unsupported));
    work.codes = std::move(options.codes);
    work.secrets = std::move(options.secrets);
    return ProbePtr(std::make_shared<NodeProbe>(commands, node, NodeProbe::How::http, std::move(work)));
}

} // namespace orrery::health
