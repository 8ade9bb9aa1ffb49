#include "cli/commands.h"
#include "cli/job_render.h"
#include "cli/render.h"
#include "core/text.h"
#include "net/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

/// Jobs: submit, inspect, control.
namespace orrery::cli {

Result<FileDocument> job_document(Invocation& invocation) {
    if (!invocation.has("file")) return invocation.usage_error("the file is missing", "give -f FILE; - reads standard input");
    TRY(const auto* kinds, invocation.kinds());
    std::vector<Error> errors;
    auto documents = read_documents(invocation.streams, invocation.all("file"), *kinds, errors);
    if (!errors.empty()) return errors.front();
    std::erase_if(documents, [](const FileDocument& document) { return document.kind == nullptr || document.kind->kind != "Job"; });
    if (documents.size() != 1)
        return Error{Code::invalid, fmt::format("the files have {} documents of kind Job, not one", documents.size()),
                     "give one file with one document of kind Job; -f - reads standard input"};
    auto document = std::move(documents.front());
    if (invocation.has("name") && document.value.is_object()) {
        document.name = invocation.text("name");
        document.value.get_object()["name"] = document.name;
    }
    return document;
}

Result<int> run_job_submit(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(auto document, job_document(invocation));
    const auto& name = document.name;
    const auto sent = api->call("POST", "/v1/jobs" + write_query(invocation), document.value);
    if (!sent.ok()) return document.about(sent.error());
    const auto& answer = *sent;
    print_submission(invocation, name, answer.body);
    if (!invocation.has("wait") || invocation.has("dry-run")) return exit_code::ok;
    return follow_to_end(invocation, name);
}

Result<int> run_job_list(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    TRY(const auto* kind, kinds->find("Job"));
    TRY(auto jobs, list_all(*api, *kind, {}, 0));
    if (invocation.has("state"))
        std::erase_if(jobs, [&](const json::value& job) { return text_of(job, "status.state") != invocation.text("state"); });
    print_objects(invocation, *kind, jobs, invocation.text("output", "table"), false);
    return exit_code::ok;
}

Result<int> run_job_show(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto progress, api->get(job_route(invocation, "progress")));
    std::string query = "?limit=5000";
    if (invocation.has("state")) query += "&state=" + net::percent_encode(invocation.text("state"));
    if (invocation.has("task")) query += "&group=" + net::percent_encode(invocation.text("task"));
    if (invocation.has("node")) query += "&node=" + net::percent_encode(invocation.text("node"));
    TRY(const auto tasks, api->get(job_route(invocation, "tasks") + query));
    json::object all = progress.body.is_object() ? progress.body.get_object() : json::object{};
    for (const auto* part : {"running", "waiting", "failed"}) all.erase(part);
    all["tasks_shown"] = list_at(tasks.body, "tasks");
    if (print_structured(invocation, all)) return exit_code::ok;
    auto& out = invocation.streams.out;
    const auto state = text_of(progress.body, "state");
    out << fmt::format("job {} {}  {}  plan {}\n{}\n", printable(invocation.text("JOB")),
                       paint(state, style_of_state(state), invocation.streams.colour()), text_of(progress.body, "progress"),
                       text_of(progress.body, "digest"), counts_line(progress.body))
        << state_lines(progress.body);
    Table table({"TASK", "STATE", "ATTEMPT", "CHANGE", "MESSAGE"});
    for (const auto& task : list_at(tasks.body, "tasks")) {
        const auto of_task = text_of(task, "state");
        const auto* attempt = at_path(task, "attempt");
        table.add({{printable(text_of(task, "task"))},
                   {of_task, style_of_state(of_task)},
                   {attempt == nullptr ? "" : value_text(*attempt)},
                   {text_of(task, "change")},
                   {printable(task_message(task))}});
    }
    out << table.render(invocation.streams.width, invocation.streams.colour());
    if (at_path(tasks.body, "continue") != nullptr)
        invocation.streams.err << "only the first 5000 tasks are shown; select others with --state, --task and --node\n";
    return exit_code::ok;
}

Result<int> run_job_graph(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    const auto form = invocation.text("output", "dot");
    TRY(std::ignore,
        api->download("GET", job_route(invocation, "graph") + "?form=" + form, [&](std::string_view piece) -> Result<Unit> {
            invocation.streams.out << piece;
            return Unit{};
        }));
    return exit_code::ok;
}

Result<int> run_job_why(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->get(job_route(invocation, "why") + "?task=" + net::percent_encode(invocation.text("TASK"))));
    if (print_structured(invocation, answer.body)) return exit_code::ok;
    auto& out = invocation.streams.out;
    out << printable(text_of(answer.body, "message")) << '\n';
    for (const auto& barrier : list_at(answer.body, "barriers")) {
        out << fmt::format("  barrier {}: {}\n", printable(text_of(barrier, "barrier")),
                           shown_at(barrier, "met") == "true" ? "met" : "not met");
        if (const auto evidence = text_of(barrier, "evidence"); !evidence.empty())
            out << fmt::format("    evidence: {}\n", printable(evidence));
        for (const auto& one : list_at(barrier, "instances"))
            out << fmt::format("    {} is {}{}{}{}{}\n", printable(text_of(one, "node")), text_of(one, "state"),
                               text_of(one, "message").empty() ? "" : ": ", printable(text_of(one, "message")),
                               text_of(one, "evidence").empty() ? "" : ", ", printable(text_of(one, "evidence")));
        if (const auto by = text_of(barrier, "provided_by"); !by.empty())
            out << fmt::format("    provided by: {}\n", printable(by));
    }
    for (const auto& one : list_at(answer.body, "blocked_by_chain"))
        out << fmt::format("  blocked by {} ({}){}{}\n", printable(text_of(one, "task")), text_of(one, "state"),
                           text_of(one, "message").empty() ? "" : ": ", printable(text_of(one, "message")));
    for (const auto& one : list_at(answer.body, "earlier"))
        out << fmt::format("  attempt {} {}: {}\n", shown_at(one, "attempt"), text_of(one, "ended"),
                           printable(text_of(one, "message")));
    if (const auto* inputs = at_path(answer.body, "inputs")) out << fmt::format("  values: {}\n", printable(to_json_text(*inputs)));
    return exit_code::ok;
}

namespace {

/// One sentence about what a command to a job did.
std::string command_outcome(std::string_view command, std::string_view job, std::string_view state) {
    if (command == "pause") return fmt::format("job {} is paused: no further task starts, running tasks continue", job);
    if (command == "resume") return fmt::format("job {} is resumed and {}", job, state);
    if (command == "approve") return fmt::format("approved; job {} is {}", job, state);
    if (command == "cancel" && state == "succeeded")
        return fmt::format("job {} succeeded and no longer runs again when its services change", job);
    if (state == "cancelling" || state == "undoing")
        return fmt::format("job {} is {}; orrery job wait {} returns when it is done", job, state, job);
    return fmt::format("job {} is {}", job, state);
}

Result<int> send_command(Invocation& invocation, std::string_view command, json::object body) {
    TRY(auto* api, invocation.api());
    if (invocation.has("reason")) body["reason"] = invocation.text("reason");
    TRY(const auto answer, api->call("POST", job_route(invocation, command), json::value(std::move(body))));
    if (!invocation.quiet())
        invocation.streams.out << command_outcome(command, printable(invocation.text("JOB")), text_of(answer.body, "state"))
                               << '\n';
    return exit_code::ok;
}

} // namespace

Result<int> run_job_approve(Invocation& invocation) {
    if (!invocation.has("digest"))
        return invocation.usage_error(
            "--digest is missing: the digest of the plan that you approve",
            fmt::format("orrery job show {} prints the digest of its plan", printable(invocation.text("JOB"))));
    json::object body{{"digest", invocation.text("digest")}};
    if (invocation.has("TASK")) body["task"] = invocation.text("TASK");
    return send_command(invocation, "approve", std::move(body));
}

Result<int> run_job_pause(Invocation& invocation) { return send_command(invocation, "pause", {}); }
Result<int> run_job_resume(Invocation& invocation) { return send_command(invocation, "resume", {}); }
Result<int> run_job_cancel(Invocation& invocation) {
    return send_command(invocation, "cancel", {{"undo", !invocation.has("no-undo")}});
}

Result<int> run_job_undo(Invocation& invocation) { return send_command(invocation, "undo", {}); }

Result<int> run_job_retry(Invocation& invocation) {
    json::object body;
    if (invocation.has("TASK")) body["task"] = invocation.text("TASK");
    return send_command(invocation, "retry", std::move(body));
}

} // namespace orrery::cli
