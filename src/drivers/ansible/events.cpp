#include "drivers/ansible/events.h"

#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::drivers {

namespace json = boost::json;
using jobs::ErrorClass;
using jobs::Outcome;
using jobs::Step;

namespace {

constexpr std::size_t most_hosts = 100'000;
constexpr std::size_t most_differences = 1000;
constexpr std::size_t most_difference_bytes = 4u << 20;

std::string event_text(const json::object& from, std::string_view key, std::size_t most = 5000) {
    const auto* value = from.if_contains(key);
    if (value == nullptr || !value->is_string()) return {};
    return std::string(std::string_view(value->get_string()).substr(0, most));
}
bool event_flag(const json::object& from, std::string_view key) {
    const auto* value = from.if_contains(key);
    return value != nullptr && value->is_bool() && value->get_bool();
}
std::int64_t event_number(const json::object& from, std::string_view key) {
    const auto* value = from.if_contains(key);
    if (value == nullptr) return 0;
    if (value->is_int64()) return std::max<std::int64_t>(value->get_int64(), 0);
    return 0;
}
double event_seconds(const json::object& from) {
    const auto* value = from.if_contains("seconds");
    if (value == nullptr || !value->is_number()) return 0;
    const double seconds = value->to_number<double>();
    return seconds > 0 && seconds < 1e7 ? seconds : 0;
}

/// One line, for a sentence.
std::string flat(std::string text, std::size_t most) {
    for (auto& c : text)
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    while (!text.empty() && text.back() == ' ') text.pop_back();
    if (text.size() > most) text = text.substr(0, most) + "...";
    return text;
}

std::string why_of(const json::object& from) {
    if (event_flag(from, "censored")) return "(not shown: no_log)";
    auto why = event_text(from, "msg");
    for (const auto* key : {"stderr", "module_stderr", "stdout", "skip_reason"})
        if (why.empty() || why == "non-zero return code" || why.starts_with("MODULE FAILURE")) {
            auto more = event_text(from, key);
            if (!more.empty()) why = why.empty() ? more : fmt::format("{}: {}", why, more);
        }
    return why;
}

} // namespace

void AnsibleEvents::say(std::string text) {
    if (!on_text) return;
    text += '\n';
    on_text(text);
}

void AnsibleEvents::line(std::string_view text) {
    auto parsed = text.starts_with('{') ? parse_json(text, 16) : Result<json::value>(Error{Code::invalid, "no event"});
    const auto* event = parsed.ok() && parsed->is_object() ? parsed->get_object().if_contains("event") : nullptr;
    if (event == nullptr || !event->is_string()) {
        if (!text.empty()) say(std::string(text)); // something printed it: a person may want to see it
        return;
    }
    const auto& from = parsed->get_object();
    const std::string_view kind = event->get_string();
    if (kind == "play") {
        say(fmt::format("PLAY {}", flat(event_text(from, "name"), 200)));
    } else if (kind == "task") {
        say(fmt::format("{} {}", event_flag(from, "handler") ? "HANDLER" : "TASK", flat(event_text(from, "name"), 200)));
    } else if (kind == "start") {
        if (!on_step) return;
        Step step;
        step.host = event_text(from, "host", 253);
        step.name = flat(event_text(from, "name"), 200);
        step.key = event_text(from, "id", 64);
        step.result = Step::Result::running;
        on_step(std::move(step));
    } else if (kind == "ok" || kind == "failed" || kind == "unreachable" || kind == "skipped") {
        result(kind, from);
    } else if (kind == "retry") {
        say(fmt::format("  {}: tried {} of {} times", event_text(from, "host", 253), event_number(from, "attempts"),
                        event_number(from, "retries")));
    } else if (kind == "no_hosts") {
        say("no host matched the play");
    } else if (kind == "no_hosts_remaining") {
        say("no host is left that has not failed");
    } else if (kind == "diff") {
        if (differences_.size() >= most_differences) return;
        jobs::Preview::Difference difference{
            fmt::format("{}: {}", event_text(from, "host", 253), flat(event_text(from, "what"), 300)),
            event_text(from, "before", 40'000), event_text(from, "after", 40'000)};
        difference_bytes_ += difference.before.size() + difference.after.size();
        if (difference_bytes_ > most_difference_bytes) difference.before = difference.after = "(too much to show)";
        differences_.push_back(std::move(difference));
    } else if (kind == "stats") {
        const auto* hosts = from.if_contains("hosts");
        if (hosts == nullptr || !hosts->is_object()) return;
        has_stats_ = true;
        for (const auto& [host, counts] : hosts->get_object()) {
            if (!counts.is_object() || stats_.size() >= most_hosts) continue;
            const auto& numbers = counts.get_object();
            auto& stats = stats_[std::string(host)];
            stats.ok = event_number(numbers, "ok");
            stats.changed = event_number(numbers, "changed");
            stats.failures = event_number(numbers, "failures");
            stats.unreachable = event_number(numbers, "unreachable");
            stats.skipped = event_number(numbers, "skipped");
            stats.rescued = event_number(numbers, "rescued");
            stats.ignored = event_number(numbers, "ignored");
            say(fmt::format("{}: ok {}, changed {}, failed {}, unreachable {}, skipped {}", std::string_view(host), stats.ok,
                            stats.changed, stats.failures, stats.unreachable, stats.skipped));
        }
    }
}

void AnsibleEvents::result(std::string_view event, const json::object& from) {
    Step step;
    step.host = event_text(from, "host", 253);
    step.name = flat(event_text(from, "name"), 200);
    step.key = event_text(from, "id", 64);
    step.took = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(event_seconds(from)));
    const bool ignored = event_flag(from, "ignored");
    step.result = event == "ok"            ? (event_flag(from, "changed") ? Step::Result::changed : Step::Result::ok)
                  : event == "failed"      ? (ignored ? Step::Result::ok : Step::Result::failed)
                  : event == "unreachable" ? Step::Result::unreachable
                                           : Step::Result::skipped;
    auto why = why_of(from);
    if (event != "ok") step.words = flat(why, 1000);
    if (ignored) step.words = "failed, and that is ignored: " + step.words;
    say(fmt::format("  {}: {}{}{}", step.host, ignored ? "failed (ignored)" : jobs::name_of(step.result),
                    step.words.empty() ? "" : ": ", flat(step.words, 400)));
    if ((step.result == Step::Result::failed || step.result == Step::Result::unreachable) && first_failure_.empty())
        first_failure_ = fmt::format("{}: {}: {}", step.host, step.name, flat(why, 300));
    if (on_step) on_step(std::move(step));
}

jobs::Outcome ansible_outcome(const AnsibleEvents& events, int exit_code, std::size_t hosts, std::string_view last_error) {
    if (!events.has_stats()) {
        // Exit 0 without stats proves nothing; else the playbook never got going (1, 2, 4: not found, not read, wrong usage) or
        // broke off.
        const auto kind =
            exit_code == 1 || exit_code == 2 || exit_code == 4 || exit_code == 5 ? ErrorClass::refused : ErrorClass::failed;
        return Outcome::failure(kind,
                                fmt::format("ansible-playbook ended with exit code {} and without its statistics{}{}", exit_code,
                                            last_error.empty() ? "" : ": ", last_error),
                                exit_code);
    }
    std::vector<std::string> failed, unreachable;
    bool changed = false, did_something = false;
    for (const auto& [host, stats] : events.stats()) {
        if (stats.failures > 0) failed.push_back(host);
        if (stats.unreachable > 0) unreachable.push_back(host);
        changed = changed || stats.changed > 0;
        did_something = did_something || stats.ok > 0 || stats.failures > 0;
    }
    const auto change = changed ? Outcome::Change::changed : Outcome::Change::unchanged;
    Outcome outcome;
    if (!failed.empty() || !unreachable.empty()) {
        std::string words;
        const auto list = [](const std::vector<std::string>& names) {
            const auto shown = std::min<std::size_t>(names.size(), 10);
            auto text = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
            return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
        };
        if (!failed.empty()) words = fmt::format("failed on {}", list(failed));
        if (!unreachable.empty()) words += fmt::format("{}could not reach {}", words.empty() ? "" : ", ", list(unreachable));
        if (!events.first_failure().empty()) words += fmt::format(" ({})", events.first_failure());
        // Only where nothing was begun anywhere is it a matter of connections alone.
        outcome = Outcome::failure(failed.empty() && !did_something ? ErrorClass::connect : ErrorClass::failed, std::move(words),
                                   exit_code);
    } else if (events.stats().empty() && hosts > 0) {
        outcome = Outcome::failure(ErrorClass::refused, "the playbook touched none of the task's machines: look at its `hosts`",
                                   exit_code);
    } else if (exit_code != 0) {
        outcome = Outcome::failure(ErrorClass::failed,
                                   fmt::format("no host failed, and yet ansible-playbook ended with exit code {}{}{}", exit_code,
                                               last_error.empty() ? "" : ": ", last_error),
                                   exit_code);
    } else {
        outcome = Outcome::success();
    }
    outcome.change = change;
    return outcome;
}

} // namespace orrery::drivers
