#include "health/probes/plugin_probe.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace orrery::health {

namespace {

constexpr std::size_t max_measures = 256, max_label = 256, max_unit = 16;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text;
}

/// Reads a label from the front; it may be quoted, with '' for a quote. False if there is none.
bool read_label(std::string_view& rest, std::string& label) {
    label.clear();
    if (rest.starts_with('\'')) {
        rest.remove_prefix(1);
        for (;;) {
            const auto quote = rest.find('\'');
            if (quote == std::string_view::npos) { // no closing quote: the rest cannot be parsed
                rest = {};
                return false;
            }
            label += rest.substr(0, quote);
            rest.remove_prefix(quote + 1);
            if (!rest.starts_with('\'')) break;
            label += '\'';
            rest.remove_prefix(1);
        }
    } else {
        const auto end = std::min(rest.find_first_of("= \t\r"), rest.size());
        label = rest.substr(0, end);
        rest.remove_prefix(end);
    }
    if (!rest.starts_with('=') || label.empty()) return false;
    rest.remove_prefix(1);
    return true;
}

void read_measures(std::string_view rest, std::vector<Measure>& into) {
    for (;;) {
        rest = trimmed(rest);
        if (rest.empty() || into.size() >= max_measures) return;
        std::string label;
        const bool labelled = read_label(rest, label);
        const auto field = rest.substr(0, std::min(rest.find_first_of(" \t\r"), rest.size()));
        rest.remove_prefix(field.size());
        if (!labelled) continue;
        const auto figure = field.substr(0, field.find(';'));
        double value = 0;
        const auto [stop, error] = std::from_chars(figure.data(), figure.data() + figure.size(), value);
        if (error != std::errc{} || !std::isfinite(value)) continue; // "U": the plugin does not know the value
        const auto unit = figure.substr(static_cast<std::size_t>(stop - figure.data()));
        into.push_back({label.substr(0, max_label), value, std::string(unit.substr(0, max_unit))});
    }
}

std::string readable(std::string_view text) {
    std::string out(text.substr(0, max_text));
    for (char& c : out)
        if ((static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == 0x7f) c = '?';
    return out;
}

Outcome exec_outcome(int exit_code) {
    if (exit_code == 0) return Outcome::ok;
    return exit_code < 0 || exit_code == 126 || exit_code == 127 ? Outcome::local_error : Outcome::failed;
}

class PluginProbe final : public Probe {
public:
    PluginProbe(Programs& programs, PluginProbeOptions options) : programs_(programs), options_(std::move(options)) {}
    std::string identity() const override {
        std::string out = options_.plain ? "exec" : "plugin";
        for (const auto& argument : options_.argv) out += fmt::format(" {}:{}", argument.size(), argument);
        for (const auto& [name, value] : options_.environment) out += fmt::format(" {}={}:{}", name, value.size(), value);
        return out;
    }
    asio::awaitable<Observation> run(Context ctx) const override {
        auto ended = co_await programs_.run(ctx, options_.argv, options_.environment);
        if (!ended.ok()) {
            // A program that hangs usually waits for its target; a program that cannot start is a fault of this host.
            const bool late = ended.error().code == Code::timeout;
            const auto& error = ended.error();
            co_return Observation{.outcome = late ? Outcome::timeout_read : Outcome::local_error,
                                  .text = fmt::format("{}: {}{}{}", options_.argv.front(), error.message,
                                                      error.remedy.empty() ? "" : "; ", error.remedy),
                                  .cannot_run = error.code == Code::denied};
        }
        Observation seen;
        auto output = read_plugin_output(ended->output);
        seen.outcome = plugin_outcome(ended->exit_code);
        if (options_.plain) seen.outcome = exec_outcome(ended->exit_code);
        const auto how = ended->exit_code < 0 ? std::string("ended by a signal") : fmt::format("exit code {}", ended->exit_code);
        seen.text = std::move(output.line);
        if (!output.more.empty()) seen.text += "\n" + output.more;
        if (seen.text.empty())
            seen.text = fmt::format("{}: {}", options_.argv.front(), how);
        else if (!is_evidence(seen.outcome))
            seen.text = fmt::format("{}: {}: {}", options_.argv.front(), how, seen.text);
        if (seen.text.size() > max_text) seen.text.resize(max_text);
        seen.measures = std::move(output.measures);
        co_return seen;
    }

private:
    Programs& programs_;
    PluginProbeOptions options_;
};

} // namespace

PluginOutput read_plugin_output(std::string_view output) {
    PluginOutput out;
    output = output.substr(0, 64 << 10);
    const auto end = std::min(output.find('\n'), output.size());
    const auto first = output.substr(0, end);
    output.remove_prefix(std::min(output.size(), end + 1));
    const auto bar = first.find('|');
    out.line = readable(trimmed(first.substr(0, bar)));
    if (bar != std::string_view::npos) read_measures(first.substr(bar + 1), out.measures);
    // Further lines are text up to the first bar; everything after it is data.
    const auto later_bar = output.find('|');
    out.more = readable(output.substr(0, later_bar));
    while (!out.more.empty() && (out.more.back() == '\n' || is_blank(out.more.back()))) out.more.pop_back();
    if (later_bar != std::string_view::npos) {
        auto data = output.substr(later_bar + 1);
        while (!data.empty()) {
            const auto line = data.substr(0, std::min(data.find('\n'), data.size()));
            data.remove_prefix(std::min(data.size(), line.size() + 1));
            read_measures(line, out.measures);
        }
    }
    return out;
}

Outcome plugin_outcome(int exit_code) {
    switch (exit_code) {
    case 0: return Outcome::ok;
    case 1: return Outcome::warning;
    case 2: return Outcome::failed;
    default: return Outcome::local_error;
    }
}

Result<ProbePtr> plugin_probe(Programs& programs, PluginProbeOptions options) {
    if (options.argv.empty() || options.argv.front().empty())
        return Error{Code::invalid, "argv names no program", R"(as in ["/usr/lib/nagios/plugins/check_tcp", "-H", "192.0.2.1"])"};
    for (const auto& argument : options.argv)
        if (argument.find('\0') != std::string::npos) return Error{Code::invalid, "argv has a NUL in it"};
    return ProbePtr(std::make_shared<PluginProbe>(programs, std::move(options)));
}

} // namespace orrery::health
