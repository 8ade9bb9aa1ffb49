#include "drivers/ansible/events.h"

#include "core/json_fields.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::drivers {

using jobs::Step;

namespace {

constexpr std::size_t max_text = 64u << 10; // of one message or output; the callback plugin has cut it already
constexpr std::size_t max_hosts = 100'000;
constexpr std::size_t max_differences = 1000;
constexpr std::size_t max_difference_bytes = 4u << 20;

std::string short_text(const json::object& from, std::string_view key, std::size_t max = 5000) {
    return text_at(from, key).substr(0, max);
}
std::int64_t event_count(const json::object& from, std::string_view key) {
    return std::max<std::int64_t>(integer_at(from, key), 0);
}
double event_seconds(const json::object& from) {
    const double seconds = number_at(from, "seconds");
    return seconds > 0 && seconds < 1e7 ? seconds : 0;
}

/// The text as one line, for a message.
std::string flat(std::string text, std::size_t max) {
    for (auto& c : text)
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    while (!text.empty() && text.back() == ' ') text.pop_back();
    if (text.size() > max) text = text.substr(0, max) + "...";
    return text;
}

/// Appends each line of `text`, indented below the line of its host.
void append_indented(std::string& out, std::string_view prefix, std::string_view text) {
    while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    while (!text.empty()) {
        const auto line = text.substr(0, text.find('\n'));
        out += fmt::format("\n    {}{}", prefix, line);
        text.remove_prefix(std::min(text.size(), line.size() + 1));
    }
}

/// The output of a module, except what `shown`, the line above, has already. Modules repeat themselves: the message may be the
/// output.
std::string printed(const json::object& from, std::string_view shown, std::string_view prefix = {}) {
    std::string out;
    const auto message = short_text(from, "msg", max_text), output = short_text(from, "stdout", max_text),
               errors = short_text(from, "stderr", max_text);
    const auto is_shown = [&](const std::string& text) { return text.empty() || shown.find(flat(text, max_text)) != shown.npos; };
    if (!is_shown(message) && message != output) append_indented(out, prefix, message);
    if (!is_shown(output)) append_indented(out, prefix, output);
    if (!is_shown(errors)) append_indented(out, fmt::format("{}stderr: ", prefix), errors);
    return out;
}

std::string message_of(const json::object& from) {
    if (flag_at(from, "censored")) return "(not shown: no_log)";
    auto message = short_text(from, "msg");
    for (const auto* key : {"stderr", "module_stderr", "stdout", "skip_reason"})
        if (message.empty() || message == "non-zero return code" || message.starts_with("MODULE FAILURE")) {
            auto more = short_text(from, key);
            if (!more.empty()) message = message.empty() ? more : fmt::format("{}: {}", message, more);
        }
    return message;
}

} // namespace

void AnsibleEvents::emit(std::string text) {
    if (!on_text) return;
    text += '\n';
    on_text(text);
}

void AnsibleEvents::line(std::string_view text) {
    auto parsed = text.starts_with('{') ? parse_json(text, 16) : Result<json::value>(Error{Code::invalid, "no event"});
    const auto* event = parsed.ok() && parsed->is_object() ? parsed->get_object().if_contains("event") : nullptr;
    if (event == nullptr || !event->is_string()) {
        if (!text.empty()) emit(std::string(text)); // not an event: another program printed it, and it belongs into the log
        return;
    }
    const auto& from = parsed->get_object();
    const std::string_view kind = event->get_string();
    if (kind == "play") {
        emit(fmt::format("PLAY {}", flat(short_text(from, "name"), 200)));
    } else if (kind == "task") {
        emit(fmt::format("{} {}", flag_at(from, "handler") ? "HANDLER" : "TASK", flat(short_text(from, "name"), 200)));
    } else if (kind == "start") {
        if (!on_step) return;
        Step step;
        step.host = short_text(from, "host", 253);
        step.name = flat(short_text(from, "name"), 200);
        step.key = short_text(from, "id", 64);
        step.result = Step::Result::running;
        on_step(std::move(step));
    } else if (kind == "ok" || kind == "failed" || kind == "unreachable" || kind == "skipped") {
        result(kind, from);
    } else if (kind == "retry") {
        emit(fmt::format("  {}: attempt {} of {}", short_text(from, "host", 253), event_count(from, "attempts"),
                         event_count(from, "retries")));
    } else if (kind == "no_hosts") {
        emit("no hosts matched the play");
    } else if (kind == "no_hosts_remaining") {
        emit("no hosts remain: all have failed");
    } else if (kind == "diff") {
        if (differences_.size() >= max_differences) return;
        jobs::Preview::Difference difference{
            fmt::format("{}: {}", short_text(from, "host", 253), flat(short_text(from, "subject"), 300)),
            short_text(from, "before", 40'000), short_text(from, "after", 40'000)};
        difference_bytes_ += difference.before.size() + difference.after.size();
        if (difference_bytes_ > max_difference_bytes) difference.before = difference.after = "(too much to show)";
        differences_.push_back(std::move(difference));
    } else if (kind == "stats") {
        const auto* hosts = from.if_contains("hosts");
        if (hosts == nullptr || !hosts->is_object()) return;
        has_stats_ = true;
        for (const auto& [host, counts] : hosts->get_object()) {
            if (!counts.is_object() || stats_.size() >= max_hosts) continue;
            const auto& numbers = counts.get_object();
            auto& stats = stats_[std::string(host)];
            stats.ok = event_count(numbers, "ok");
            stats.changed = event_count(numbers, "changed");
            stats.failures = event_count(numbers, "failures");
            stats.unreachable = event_count(numbers, "unreachable");
            stats.skipped = event_count(numbers, "skipped");
            stats.rescued = event_count(numbers, "rescued");
            stats.ignored = event_count(numbers, "ignored");
            emit(fmt::format("{}: ok {}, changed {}, failed {}, unreachable {}, skipped {}", std::string_view(host), stats.ok,
                             stats.changed, stats.failures, stats.unreachable, stats.skipped));
        }
    }
}

void AnsibleEvents::result(std::string_view event, const json::object& from) {
    Step step;
    step.host = short_text(from, "host", 253);
    step.name = flat(short_text(from, "name"), 200);
    step.key = short_text(from, "id", 64);
    step.took = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(event_seconds(from)));
    const bool ignored = flag_at(from, "ignored");
    step.result = event == "ok"            ? (flag_at(from, "changed") ? Step::Result::changed : Step::Result::ok)
                  : event == "failed"      ? (ignored ? Step::Result::ok : Step::Result::failed)
                  : event == "unreachable" ? Step::Result::unreachable
                                           : Step::Result::skipped;
    const auto message = message_of(from);
    if (event != "ok") step.message = flat(message, 1000);
    if (ignored) step.message = "failed (ignored): " + step.message;
    auto line = fmt::format("  {}: {}{}{}", step.host, ignored ? "failed (ignored)" : jobs::name_of(step.result),
                            step.message.empty() ? "" : ": ", flat(step.message, 400));
    if (event != "skipped" && !flag_at(from, "censored")) {
        line += printed(from, line);
        for (const auto& item : array_at(from, "items"))
            if (const auto* object = item.if_object())
                line += printed(
                    *object, {},
                    fmt::format("{}{}: ", flat(short_text(*object, "item"), 100), flag_at(*object, "failed") ? " (failed)" : ""));
    }
    emit(std::move(line));
    if ((step.result == Step::Result::failed || step.result == Step::Result::unreachable) && first_failure_.empty())
        first_failure_ = fmt::format("{}: {}: {}", step.host, step.name, flat(message, 300));
    if (on_step) on_step(std::move(step));
}

} // namespace orrery::drivers
