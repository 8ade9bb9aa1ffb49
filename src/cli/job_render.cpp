#include "cli/job_render.h"

#include "cli/render.h"
#include "net/http.h"

#include <fmt/format.h>

#include <ostream>

namespace orrery::cli {

Style style_of_state(std::string_view state) {
    if (state == "succeeded" || state == "converged") return Style::green;
    if (state == "failed" || state == "lost" || state == "refused" || state == "undo_failed") return Style::red;
    if (state == "running") return Style::cyan;
    if (state == "waiting" || state == "planned" || state == "ready" || state == "cancelling" || state == "undoing")
        return Style::yellow;
    return Style::dim;
}

std::string job_route(const Invocation& invocation, std::string_view part) {
    return fmt::format("/v1/jobs/{}/{}", net::percent_encode(invocation.text("JOB")), part);
}

std::string milliseconds_text(const json::value& value, std::string_view key) {
    const auto* number = at_path(value, key);
    if (number == nullptr || !number->is_number()) return "";
    return to_text(std::chrono::milliseconds(number->to_number<std::int64_t>()));
}

std::string counts_line(const json::value& progress) {
    std::string out;
    if (const auto* tasks = at_path(progress, "tasks"); tasks != nullptr && tasks->is_object())
        for (const auto& [state, count] : tasks->get_object())
            if (state != "total")
                out += fmt::format("{}{} {}", out.empty() ? "" : ", ", value_text(count), std::string_view(state));
    return out;
}

std::string task_message(const json::value& task) {
    const auto waits = text_of(task, "waits_for");
    if (waits.empty()) return text_of(task, "message");
    return text_of(task, "state") == "ready" ? waits : "waits for " + waits; // for a ready task it is a sentence
}

namespace {

void print_task_line(const Streams& streams, std::string& out, const json::value& task) {
    const auto state = text_of(task, "state");
    out += fmt::format("  {} {}", paint(fmt::format("{:<11}", state), style_of_state(state), streams.colour()),
                       printable(text_of(task, "task")));
    if (const auto message = task_message(task); !message.empty()) out += fmt::format("  {}", printable(message));
    out += '\n';
}

} // namespace

std::string state_lines(const json::value& progress) {
    const auto message = text_of(progress, "message");
    return message.empty() ? std::string() : fmt::format("  {}\n", printable(message));
}

std::string extent_text(std::string_view tasks, std::string_view nodes) {
    return fmt::format("{} task{} on {} node{}", tasks, tasks == "1" ? "" : "s", nodes, nodes == "1" ? "" : "s");
}

void print_submission(Invocation& invocation, std::string_view job, const json::value& answer) {
    if (!invocation.quiet())
        invocation.streams.out << fmt::format(
            "job {} {}: {}, plan {}\n", printable(job), invocation.has("dry-run") ? "would be accepted" : "submitted",
            extent_text(shown_at(answer, "object.status.tasks.total"), shown_at(answer, "object.status.nodes")),
            text_of(answer, "object.status.digest"));
    for (const auto& warning : list_at(answer, "once.warnings"))
        invocation.streams.err << fmt::format("warning: {}\n", printable(value_text(warning)));
}

std::string progress_text(const Streams& streams, const json::value& progress) {
    const auto state = text_of(progress, "state");
    std::string out =
        fmt::format("job {} {}  {}  {}\n", printable(text_of(progress, "name")),
                    paint(state, style_of_state(state), streams.colour()), text_of(progress, "progress"), counts_line(progress));
    out += state_lines(progress);
    for (const auto* part : {"failed", "running", "waiting"})
        for (const auto& task : list_at(progress, part)) print_task_line(streams, out, task);
    if (const auto& path = list_at(progress, "critical_path"); !path.empty()) {
        std::string chain;
        for (const auto& name : path) chain += fmt::format("{}{}", chain.empty() ? "" : " → ", printable(value_text(name)));
        out += fmt::format("  critical path: {}\n", chain);
    }
    return out;
}

} // namespace orrery::cli
