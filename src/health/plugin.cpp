#include "health/plugin.h"

#include "net/process.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace orrery::health {

namespace {

constexpr std::size_t most_measures = 256, longest_label = 256, longest_unit = 16;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text;
}

/// Takes a label off the front; it may be quoted, with '' for a quote. False where there is none.
bool take_label(std::string_view& rest, std::string& label) {
    label.clear();
    if (rest.starts_with('\'')) {
        rest.remove_prefix(1);
        for (;;) {
            const auto quote = rest.find('\'');
            if (quote == std::string_view::npos) { // it never ends: nothing after it can be told apart
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
        if (rest.empty() || into.size() >= most_measures) return;
        std::string label;
        const bool labelled = take_label(rest, label);
        const auto word = rest.substr(0, std::min(rest.find_first_of(" \t\r"), rest.size()));
        rest.remove_prefix(word.size());
        if (!labelled) continue;
        const auto figure = word.substr(0, word.find(';'));
        double value = 0;
        const auto [stop, error] = std::from_chars(figure.data(), figure.data() + figure.size(), value);
        if (error != std::errc{} || !std::isfinite(value)) continue; // "U": the plugin could not tell
        const auto unit = figure.substr(static_cast<std::size_t>(stop - figure.data()));
        into.push_back({label.substr(0, longest_label), value, std::string(unit.substr(0, longest_unit))});
    }
}

std::string readable(std::string_view text) {
    std::string out(text.substr(0, longest_text));
    for (char& c : out)
        if ((static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == 0x7f) c = '?';
    return out;
}

class PluginProbe final : public Probe {
public:
    PluginProbe(Programs& programs, PluginLook look) : programs_(programs), look_(std::move(look)) {}
    std::string identity() const override {
        std::string out = look_.plain ? "exec" : "plugin";
        for (const auto& word : look_.argv) out += fmt::format(" {}:{}", word.size(), word);
        for (const auto& [name, value] : look_.environment) out += fmt::format(" {}={}:{}", name, value.size(), value);
        return out;
    }
    asio::awaitable<Observation> look(Context ctx) const override {
        auto ended = co_await programs_.run(ctx, look_.argv, look_.environment);
        if (!ended.ok()) {
            // One that hangs mostly waits for what it looks at; one that cannot be started tells of this machine.
            const bool late = ended.error().code == Code::timeout;
            co_return Observation{.outcome = late ? Outcome::timeout_read : Outcome::local_error,
                                  .text = fmt::format("{}: {}", look_.argv.front(), ended.error().message)};
        }
        Observation seen;
        auto said = read_plugin_output(ended->output);
        seen.outcome = plugin_outcome(ended->exit_code);
        if (look_.plain) seen.outcome = ended->exit_code == 0 ? Outcome::ok : Outcome::failed;
        seen.text = std::move(said.line);
        if (!said.more.empty()) seen.text += "\n" + said.more;
        if (seen.text.empty())
            seen.text = ended->exit_code < 0 ? fmt::format("{} was ended by a signal", look_.argv.front())
                                             : fmt::format("{}: exit code {}", look_.argv.front(), ended->exit_code);
        if (seen.text.size() > longest_text) seen.text.resize(longest_text);
        seen.measures = std::move(said.measures);
        co_return seen;
    }

private:
    Programs& programs_;
    PluginLook look_;
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
    // Later lines are text up to the first bar; everything after it is data, over as many lines as there are.
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

struct Programs::State {
    State(asio::any_io_executor executor, std::size_t at_once_)
        : changed(std::move(executor)), at_once(std::max<std::size_t>(1, at_once_)) {}
    Notifier changed;
    std::size_t at_once, running = 0;
};

Programs::Programs(asio::any_io_executor executor, std::size_t at_once)
    : state_(std::make_shared<State>(std::move(executor), at_once)) {}
Programs::~Programs() = default;
std::size_t Programs::running() const { return state_->running; }

Task<Programs::Ended> Programs::run(Context ctx, std::vector<std::string> argv, std::map<std::string, std::string> environment) {
    const auto state = state_;
    while (state->running >= state->at_once) {
        auto woken = co_await state->changed.wait(ctx);
        if (woken.ok()) continue;
        if (woken.error().code != Code::timeout) co_return std::move(woken).error();
        co_return Error{Code::throttled, fmt::format("{} programs run already, and none ended in time", state->at_once)};
    }
    struct Place {
        std::shared_ptr<State> of;
        ~Place() {
            --of->running;
            of->changed.notify_all();
        }
    };
    ++state->running;
    const Place place{state};
    net::ProcessSpec spec;
    spec.argv = std::move(argv);
    spec.environment = std::move(environment);
    spec.environment.try_emplace("LC_ALL", "C.UTF-8");
    spec.max_output = 64 << 10;
    spec.term_grace = std::chrono::milliseconds(500);
    CO_TRY(auto ended, co_await net::run_process(ctx, std::move(spec)));
    co_return Ended{ended.exit_code, ended.output.empty() ? std::move(ended.errors) : std::move(ended.output)};
}

Result<ProbePtr> plugin_probe(Programs& programs, PluginLook look) {
    if (look.argv.empty() || look.argv.front().empty())
        return Error{Code::invalid, "argv names no program", R"(as in ["/usr/lib/nagios/plugins/check_tcp", "-H", "192.0.2.1"])"};
    for (const auto& word : look.argv)
        if (word.find('\0') != std::string::npos) return Error{Code::invalid, "argv has a NUL in it"};
    return ProbePtr(std::make_shared<PluginProbe>(programs, std::move(look)));
}

} // namespace orrery::health
