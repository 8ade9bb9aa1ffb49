#include "cli/commands.h"
#include "cli/documents.h"
#include "cli/render.h"
#include "cli/whole_file.h"
#include "core/text.h"
#include "net/http.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

/// Jobs: submit, look, steer.
namespace orrery::cli {

namespace {

Style style_of_state(std::string_view state) {
    if (state == "succeeded" || state == "converged") return Style::green;
    if (state == "failed" || state == "lost" || state == "refused") return Style::red;
    if (state == "running") return Style::cyan;
    if (state == "waiting" || state == "planned" || state == "ready" || state == "cancelling") return Style::yellow;
    return Style::dim;
}

std::string job_route(const Invocation& invocation, std::string_view what) {
    return fmt::format("/v1/jobs/{}/{}", net::percent_encode(invocation.text("JOB")), what);
}

bool prints_json(Invocation& invocation, const json::value& value) {
    const auto form = invocation.text("output", "table");
    if (form == "json") invocation.streams.out << to_pretty_json(value) << '\n';
    if (form == "yaml") invocation.streams.out << to_yaml(value);
    return form == "json" || form == "yaml";
}

/// What stands there, on one line; nothing where there is nothing.
std::string shown_at(const json::value& value, std::string_view path) {
    const auto* found = at_path(value, path);
    return found == nullptr ? std::string() : printable(value_text(*found));
}

std::string span_text(const json::value& value, std::string_view key) {
    const auto* number = at_path(value, key);
    if (number == nullptr || !number->is_number()) return "";
    return to_text(std::chrono::milliseconds(number->to_number<std::int64_t>()));
}

const json::array& list_at(const json::value& value, std::string_view path) {
    static const json::array none;
    const auto* found = at_path(value, path);
    return found != nullptr && found->is_array() ? found->get_array() : none;
}

/// The one Job in the given files.
Result<json::value> job_document(Invocation& invocation) {
    TRY(const auto* kinds, invocation.kinds());
    std::vector<Error> errors;
    auto documents = read_documents(invocation.streams, invocation.all("file"), *kinds, errors);
    if (!errors.empty()) return errors.front();
    std::erase_if(documents, [](const FileDocument& document) { return document.kind == nullptr || document.kind->kind != "Job"; });
    if (documents.size() != 1)
        return Error{Code::invalid, fmt::format("{} jobs were given", documents.size()),
                     "give one file with one document of kind Job; -f - reads standard input"};
    auto value = std::move(documents.front().value);
    if (invocation.has("name") && value.is_object()) value.get_object()["name"] = invocation.text("name");
    return value;
}

std::string counts_line(const json::value& progress) {
    std::string out;
    if (const auto* tasks = at_path(progress, "tasks"); tasks != nullptr && tasks->is_object())
        for (const auto& [state, count] : tasks->get_object())
            if (state != "total")
                out += fmt::format("{}{} {}", out.empty() ? "" : ", ", value_text(count), std::string_view(state));
    return out;
}

void print_task_line(const Streams& streams, std::string& out, const json::value& task) {
    const auto state = text_of(task, "state");
    out += fmt::format("  {} {}", paint(fit(state + "          ", 9), style_of_state(state), streams.colour()),
                       printable(text_of(task, "task")));
    if (const auto waits = text_of(task, "waits_for"); !waits.empty())
        out += fmt::format("  waits for {}", printable(waits));
    else if (const auto words = text_of(task, "words"); !words.empty())
        out += fmt::format("  {}", printable(words));
    out += '\n';
}

std::string progress_text(const Streams& streams, const json::value& progress) {
    const auto state = text_of(progress, "state");
    std::string out =
        fmt::format("job {} {}  {}  {}\n", printable(text_of(progress, "name")),
                    paint(state, style_of_state(state), streams.colour()), text_of(progress, "progress"), counts_line(progress));
    if (const auto* paused = at_path(progress, "paused"); paused != nullptr && paused->is_bool() && paused->get_bool())
        out += "  paused ";
    if (const auto words = text_of(progress, "words"); !words.empty()) out += fmt::format("  {}\n", printable(words));
    for (const auto* part : {"failed", "running", "waiting"})
        for (const auto& task : list_at(progress, part)) print_task_line(streams, out, task);
    if (const auto& path = list_at(progress, "critical_path"); !path.empty()) {
        std::string chain;
        for (const auto& name : path) chain += fmt::format("{}{}", chain.empty() ? "" : " → ", printable(value_text(name)));
        out += fmt::format("  critical path: {}\n", chain);
    }
    return out;
}

/// Drawn in its place on a terminal, printed anew elsewhere, where only what differs from the last time is worth a line.
class LiveText {
public:
    explicit LiveText(Streams& streams) : streams_(streams) {}
    void show(const std::string& text) {
        if (text == last_) return;
        last_ = text;
        if (!streams_.out_is_terminal) {
            streams_.out << text << std::flush;
            return;
        }
        std::string fitted;
        std::size_t lines = 0, most = streams_.height > 4 ? static_cast<std::size_t>(streams_.height - 2) : 40;
        for (std::size_t at = 0; at < text.size() && lines < most; ++lines) {
            const auto end = std::min(text.find('\n', at), text.size());
            const auto line = text.substr(at, end - at);
            fitted += (streams_.width > 0 && !streams_.colour() ? fit(line, streams_.width) : line) + "\n";
            at = end + 1;
        }
        if (drawn_ > 0) streams_.out << fmt::format("\x1b[{}A\x1b[J", drawn_);
        streams_.out << fitted << std::flush;
        drawn_ = lines;
    }

private:
    Streams& streams_;
    std::string last_;
    std::size_t drawn_ = 0;
};

int exit_for(std::string_view state) { return state == "succeeded" || state == "converged" ? exit_code::ok : exit_code::other; }

/// Follows a job until it is over or converged; its last state.
Result<std::string> follow_job(Invocation& invocation, bool shown) {
    TRY(auto* api, invocation.api());
    LiveText live(invocation.streams);
    std::string state;
    for (int broken = 0;;) {
        auto opened = api->stream("GET", job_route(invocation, "progress") + "?watch=true");
        if (!opened.ok() && (opened.error().code != Code::unavailable || ++broken > 60)) return std::move(opened).error();
        while (opened.ok()) {
            auto event = (*opened)->next();
            if (!event.ok() || !*event) break;
            broken = 0;
            boost::system::error_code failed;
            const auto progress = json::parse((*event)->data, failed);
            if (failed || (*event)->event != "progress") continue;
            state = text_of(progress, "state");
            if (shown) live.show(progress_text(invocation.streams, progress));
            if (state == "succeeded" || state == "failed" || state == "cancelled" || state == "converged") return state;
        }
        if (api->interrupted()) return Error{Code::cancelled, "interrupted; the job goes on"};
        TRY(std::ignore, api->pause(std::chrono::seconds(1)));
    }
}

Result<int> give_order(Invocation& invocation, std::string_view what, json::object body) {
    TRY(auto* api, invocation.api());
    if (invocation.has("because")) body["because"] = invocation.text("because");
    TRY(const auto answer, api->call("POST", job_route(invocation, what), json::value(std::move(body))));
    if (!invocation.quiet())
        invocation.streams.out << fmt::format("job {} is {}\n", invocation.text("JOB"), text_of(answer.body, "state"));
    return exit_code::ok;
}

} // namespace

Result<int> run_job_submit(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(auto document, job_document(invocation));
    const auto name = text_of(document, "name");
    TRY(const auto answer, api->call("POST", "/v1/jobs" + write_query(invocation), std::move(document)));
    if (!invocation.quiet())
        invocation.streams.out << fmt::format(
            "job {} {}: {} tasks on {} machines, plan {}\n", printable(name),
            invocation.has("dry-run") ? "would be accepted" : "submitted", shown_at(answer.body, "object.status.tasks.total"),
            shown_at(answer.body, "object.status.machines"), text_of(answer.body, "object.status.digest"));
    if (!invocation.has("wait") || invocation.has("dry-run")) return exit_code::ok;
    invocation.values["JOB"] = {name};
    TRY(const auto state, follow_job(invocation, !invocation.quiet()));
    return exit_for(state);
}

Result<int> run_job_plan(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(auto document, job_document(invocation));
    std::string query;
    const auto add = [&](std::string_view name, std::string_view value) {
        query += fmt::format("{}{}={}", query.empty() ? "?" : "&", name, net::percent_encode(value));
    };
    if (invocation.has("preview")) add("preview", "true");
    if (invocation.has("latency")) add("latency", invocation.text("latency"));
    if (invocation.has("unknown")) add("unknown", invocation.text("unknown"));
    TRY(const auto answer, api->call("POST", "/v1/job-plans" + query, std::move(document)));
    const auto& plan = answer.body;
    if (prints_json(invocation, plan)) return exit_code::ok;
    auto& out = invocation.streams.out;
    const bool colour = invocation.streams.colour();
    out << fmt::format("plan {} of job {}: {} tasks on {} machines\n", text_of(plan, "digest"), printable(text_of(plan, "name")),
                       shown_at(plan, "total"), shown_at(plan, "machines"));
    for (const auto& warning : list_at(plan, "warnings"))
        out << paint("warning: ", Style::yellow, colour) << printable(value_text(warning)) << '\n';
    Table table({"TASK", "ON", "AFTER", "WAITS FOR", "RUNS"});
    for (const auto& task : list_at(plan, "tasks")) {
        std::string after, waits, nodes;
        for (const auto& edge : list_at(task, "after")) after += (after.empty() ? "" : ",") + text_of(edge, "task");
        for (const auto& barrier : list_at(task, "wait")) waits += (waits.empty() ? "" : ", ") + text_of(barrier, "text");
        const auto& names = list_at(task, "nodes");
        for (std::size_t i = 0; i < names.size() && i < 3; ++i) nodes += (nodes.empty() ? "" : ",") + value_text(names[i]);
        if (names.size() > 3) nodes += fmt::format(" and {} more", names.size() - 3);
        table.add({{printable(text_of(task, "name"))},
                   {printable(nodes.empty() ? "(server)" : nodes)},
                   {printable(after)},
                   {printable(waits)},
                   {printable(text_of(task, "executor"))}});
    }
    out << table.render(invocation.streams.width, colour);
    if (const auto* values = at_path(plan, "values"); values != nullptr && values->is_object() && !values->get_object().empty()) {
        out << "values as of now:\n";
        for (const auto& [task, value] : values->get_object())
            out << fmt::format("  {}: {}\n", printable(std::string_view(task)), printable(to_json_text(value)));
    }
    const auto* simulation = at_path(plan, "simulation");
    if (simulation != nullptr) {
        if (invocation.has("simulate")) {
            Table times({"TASK", "BEGINS", "ENDS"});
            for (const auto& task : list_at(*simulation, "tasks"))
                times.add({{printable(text_of(task, "name"))}, {span_text(task, "start_ms")}, {span_text(task, "end_ms")}});
            out << times.render(invocation.streams.width, colour);
        }
        out << fmt::format("predicted: {} in {}, at most {} at once\n", text_of(*simulation, "end"),
                           span_text(*simulation, "makespan_ms"), shown_at(*simulation, "most_running"));
        if (const auto& never = list_at(plan, "never_ran"); !never.empty())
            out << fmt::format("  {} of its tasks never ran before, and are taken to need {}\n", never.size(),
                               invocation.text("unknown", "10s"));
        out << "critical path:\n";
        for (const auto& step : list_at(*simulation, "critical_path"))
            out << fmt::format("  {:>8} – {:<8} {}{}{}\n", span_text(step, "start_ms"), span_text(step, "end_ms"),
                               printable(text_of(step, "task")),
                               text_of(step, "because").empty() ? "" : "  because: ", printable(text_of(step, "because")));
        for (const auto& stuck : list_at(*simulation, "stuck"))
            out << paint("  never ends: ", Style::red, colour) << printable(value_text(stuck)) << '\n';
    }
    for (const auto& preview : list_at(plan, "previews")) {
        out << fmt::format("{}: {} {}\n", printable(text_of(preview, "task")), text_of(preview, "change"),
                           printable(text_of(preview, "words")));
        for (const auto& difference : list_at(preview, "differences"))
            out << fmt::format("  {}\n", printable(text_of(difference, "what")))
                << paint("  - " + printable(text_of(difference, "before")), Style::red, colour) << '\n'
                << paint("  + " + printable(text_of(difference, "after")), Style::green, colour) << '\n';
    }
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
    if (prints_json(invocation, all)) return exit_code::ok;
    auto& out = invocation.streams.out;
    const auto state = text_of(progress.body, "state");
    out << fmt::format("job {} {}  {}  plan {}\n{}\n", printable(invocation.text("JOB")),
                       paint(state, style_of_state(state), invocation.streams.colour()), text_of(progress.body, "progress"),
                       text_of(progress.body, "digest"), counts_line(progress.body));
    Table table({"TASK", "STATE", "ATTEMPT", "CHANGE", "WORDS"});
    for (const auto& task : list_at(tasks.body, "tasks")) {
        const auto of_task = text_of(task, "state");
        const auto* attempt = at_path(task, "attempt");
        auto words = text_of(task, "waits_for");
        words = words.empty() ? text_of(task, "words") : "waits for " + words;
        table.add({{printable(text_of(task, "task"))},
                   {of_task, style_of_state(of_task)},
                   {attempt == nullptr ? "" : value_text(*attempt)},
                   {text_of(task, "change")},
                   {printable(words)}});
    }
    out << table.render(invocation.streams.width, invocation.streams.colour());
    if (at_path(tasks.body, "continue") != nullptr)
        invocation.streams.err << "the first 5000 tasks are shown: --state, --task and --node choose\n";
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

Result<int> run_job_watch(Invocation& invocation) {
    TRY(const auto state, follow_job(invocation, true));
    return exit_for(state);
}

Result<int> run_job_wait(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    const auto missing = [&]() -> Result<int> {
        TRY(const auto answer, api->get(job_route(invocation, "missing")));
        if (prints_json(invocation, answer.body)) return exit_code::ok;
        for (const auto& one : list_at(answer.body, "missing"))
            invocation.streams.out << fmt::format("missing: {}: {}\n", printable(text_of(one, "what")),
                                                  printable(text_of(one, "why")));
        return exit_code::ok;
    };
    if (invocation.has("now")) {
        TRY(const auto answer, api->get(job_route(invocation, "missing")));
        TRY(std::ignore, missing());
        const auto* done = at_path(answer.body, "done");
        return done != nullptr && done->is_bool() && done->get_bool() ? exit_code::ok : exit_code::other;
    }
    TRY(const auto state, follow_job(invocation, false));
    TRY(std::ignore, missing());
    if (!invocation.quiet() && invocation.text("output", "table") == "table")
        invocation.streams.out << fmt::format("job {} {}\n", printable(invocation.text("JOB")), state);
    return exit_for(state);
}

Result<int> run_job_logs(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    auto target = job_route(invocation, "output") + "?task=" + net::percent_encode(invocation.text("TASK"));
    if (invocation.has("attempt")) target += "&attempt=" + net::percent_encode(invocation.text("attempt"));
    if (invocation.has("phase")) target += "&phase=" + net::percent_encode(invocation.text("phase"));
    auto& out = invocation.streams.out;
    const auto print = [&](const json::value& page) {
        for (const auto& piece : list_at(page, "pieces")) {
            const auto stream = text_of(piece, "stream");
            auto text = text_of(piece, "text");
            if (stream == "step") {
                boost::system::error_code failed;
                const auto step = json::parse(text, failed);
                if (failed) continue;
                out << fmt::format("[{}] {}: {} {}\n", printable(text_of(step, "host")), printable(text_of(step, "name")),
                                   text_of(step, "result"), printable(text_of(step, "words")));
                continue;
            }
            if (stream == "note") text = "(" + text + ")\n";
            // Line by line, so that what the task says cannot steer the terminal.
            for (std::size_t at = 0; at < text.size();) {
                const auto end = std::min(text.find('\n', at), text.size());
                const auto line = printable(std::string_view(text).substr(at, end - at));
                (stream == "err" ? invocation.streams.err : out) << line << (end < text.size() ? "\n" : "");
                at = end + 1;
            }
        }
        out << std::flush;
    };
    if (invocation.has("follow")) {
        TRY(auto stream, api->stream("GET", target + "&follow=true"));
        for (;;) {
            TRY(const auto event, stream->next());
            if (!event) return exit_code::ok;
            boost::system::error_code failed;
            const auto page = json::parse(event->data, failed);
            if (!failed) print(page);
        }
    }
    for (std::string from = "0";;) {
        TRY(const auto page, api->get(target + "&from=" + from));
        print(page.body);
        const auto* next = at_path(page.body, "next");
        if (next == nullptr || value_text(*next) == from) return exit_code::ok;
        from = value_text(*next);
    }
}

namespace {

/// Where an artefact goes below a folder: FOLDER/NODE/PATH. Neither comes from this machine: nothing may lead out.
Result<std::filesystem::path> place_of(const std::filesystem::path& folder, const std::string& node, const std::string& path) {
    auto out = folder / node;
    for (const auto& part : std::filesystem::path(path).relative_path()) {
        if (part == ".." || part == ".") return Error{Code::invalid, fmt::format("{} leads out of the folder", printable(path))};
        out /= part;
    }
    if (node.empty() || node.find('/') != node.npos || node.starts_with('.') || out == folder / node)
        return Error{Code::invalid, fmt::format("{} of {} is no file's path", printable(path), printable(node))};
    return out;
}

Result<Unit> save_artefact(Api& api, const std::string& target, const std::filesystem::path& place) {
    std::error_code error;
    std::filesystem::create_directories(place.parent_path(), error);
    TRY(const auto file, WholeFile::make(place.string()));
    TRY(std::ignore, api.download("GET", target, [&](std::string_view piece) -> Result<Unit> { return file->write(piece); }));
    return file->finish();
}

} // namespace

Result<int> run_job_artefacts(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    auto query = "?task=" + net::percent_encode(invocation.text("TASK"));
    if (invocation.has("attempt")) query += "&attempt=" + net::percent_encode(invocation.text("attempt"));
    TRY(const auto answer, api->get(job_route(invocation, "artefacts") + query));
    const auto& all = list_at(answer.body, "artefacts");
    if (!invocation.has("save")) {
        if (prints_json(invocation, answer.body)) return exit_code::ok;
        Table table({"NODE", "PATH", "SIZE", "SHA256"});
        for (const auto& one : all) {
            const auto words = text_of(one, "words");
            const auto* size = at_path(one, "size");
            table.add({{printable(text_of(one, "node"))},
                       {printable(text_of(one, "path"))},
                       {size != nullptr && size->is_number() ? readable_size(size->to_number<std::uint64_t>()) : ""},
                       {words.empty() ? text_of(one, "sha256") : printable(words), words.empty() ? Style::plain : Style::yellow}});
        }
        invocation.streams.out << table.render(invocation.streams.width, invocation.streams.colour());
        return exit_code::ok;
    }
    // What was listed belongs to one attempt; a later one may have come since.
    query = "?task=" + net::percent_encode(invocation.text("TASK")) + "&attempt=" + shown_at(answer.body, "attempt");
    bool missing = false;
    for (const auto& one : all) {
        const auto node = text_of(one, "node"), path = text_of(one, "path");
        if (const auto words = text_of(one, "words"); !words.empty()) {
            invocation.streams.err << fmt::format("{}:{} {}\n", printable(node), printable(path), printable(words));
            missing = true;
            continue;
        }
        TRY(const auto place, place_of(invocation.text("save"), node, path));
        TRY(std::ignore,
            save_artefact(*api, job_route(invocation, "artefact") + query + "&number=" + shown_at(one, "number"), place));
        if (!invocation.quiet()) invocation.streams.out << printable(place.string()) << '\n';
    }
    return missing ? exit_code::other : exit_code::ok;
}

Result<int> run_job_why(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->get(job_route(invocation, "why") + "?task=" + net::percent_encode(invocation.text("TASK"))));
    if (prints_json(invocation, answer.body)) return exit_code::ok;
    auto& out = invocation.streams.out;
    out << printable(text_of(answer.body, "why")) << '\n';
    for (const auto& barrier : list_at(answer.body, "barriers")) {
        out << fmt::format("  barrier {}: {}\n", printable(text_of(barrier, "barrier")),
                           shown_at(barrier, "met") == "true" ? "met" : "not met");
        if (const auto evidence = text_of(barrier, "evidence"); !evidence.empty())
            out << fmt::format("    evidence: {}\n", printable(evidence));
        for (const auto& one : list_at(barrier, "instances"))
            out << fmt::format("    {} is {}{}{}\n", printable(text_of(one, "node")), text_of(one, "state"),
                               text_of(one, "why").empty() ? "" : ": ", printable(text_of(one, "why")));
    }
    for (const auto& one : list_at(answer.body, "blocked_by_chain"))
        out << fmt::format("  blocked by {} ({}){}{}\n", printable(text_of(one, "task")), text_of(one, "state"),
                           text_of(one, "words").empty() ? "" : ": ", printable(text_of(one, "words")));
    for (const auto& one : list_at(answer.body, "earlier"))
        out << fmt::format("  attempt {} {}: {}\n", shown_at(one, "attempt"), text_of(one, "ended"),
                           printable(text_of(one, "words")));
    if (const auto* inputs = at_path(answer.body, "inputs")) out << fmt::format("  values: {}\n", printable(to_json_text(*inputs)));
    return exit_code::ok;
}

Result<int> run_job_approve(Invocation& invocation) {
    json::object body{{"digest", invocation.text("digest")}};
    if (invocation.has("TASK")) body["task"] = invocation.text("TASK");
    return give_order(invocation, "approve", std::move(body));
}

Result<int> run_job_pause(Invocation& invocation) { return give_order(invocation, "pause", {}); }
Result<int> run_job_resume(Invocation& invocation) { return give_order(invocation, "resume", {}); }
Result<int> run_job_cancel(Invocation& invocation) {
    return give_order(invocation, "cancel", {{"undo", !invocation.has("no-undo")}});
}

Result<int> run_job_retry(Invocation& invocation) {
    json::object body;
    if (invocation.has("TASK")) body["task"] = invocation.text("TASK");
    return give_order(invocation, "retry", std::move(body));
}

} // namespace orrery::cli
