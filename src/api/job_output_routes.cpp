#include "api/job_routes.h"
#include "api/problem.h"
#include "core/text.h"
#include "core/truncate.h"
#include "jobs/view.h"
#include "jobs/waiting_reason.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

/// Output and artefacts of tasks.
namespace orrery::api {

using jobs::Engine;

Error job_query_error(std::string_view parameter, std::string message) {
    Error error{Code::invalid, "invalid query"};
    error.fields.push_back({fmt::format("?{}", parameter), std::move(message)});
    return error;
}

Result<std::uint64_t> number_in(const Call& call, std::string_view parameter, std::uint64_t default_value, std::uint64_t max) {
    const auto text = call.query(parameter);
    if (!text) return default_value;
    std::uint64_t value = 0;
    const auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (failed != std::errc{} || end != text->data() + text->size() || value > max)
        return job_query_error(parameter, fmt::format("must be a number up to {}", max));
    return value;
}

Result<std::uint32_t> task_in(const Call& call, const jobs::JobRun& run) {
    const auto text = call.query("task");
    if (!text) return job_query_error("task", "must name a task, for example mysql@db-1");
    if (const auto task = run.plan.find(*text)) return *task;
    return Error{Code::not_found, fmt::format("job {} has no task {}", run.name, truncate(*text, 256)),
                 "orrery job show lists the tasks; a task is written as task@node"};
}

Parameter task_parameter() { return {"task", "the task, for example mysql@db-1"}; }

namespace {

json::object page_json(const jobs::OutputLog::Page& page) {
    json::array pieces;
    for (const auto& piece : page.pieces) {
        const std::string_view stream = piece.kind == 'o' ? "out" : piece.kind == 'e' ? "err" : piece.kind == 's' ? "step" : "note";
        json::object one{{"stream", stream}, {"text", jobs::valid_utf8(piece.bytes)}};
        if (piece.time) one["time"] = to_rfc3339(*piece.time);
        pieces.push_back(std::move(one));
    }
    return {{"pieces", std::move(pieces)}, {"next", page.next}};
}

/// The phase of ?phase; by default the current phase, with `run` in place of check and verify.
Result<jobs::Phase> phase_in(const Call& call, jobs::Phase current) {
    const auto text = call.query("phase");
    if (!text) return current == jobs::Phase::verify || current == jobs::Phase::check ? jobs::Phase::run : current;
    for (const auto one : {jobs::Phase::check, jobs::Phase::run, jobs::Phase::verify, jobs::Phase::undo})
        if (name_of(one) == *text) return one;
    return job_query_error("phase", "must be check, run, verify or undo");
}

const jobs::RunSpec& declared_phase(const jobs::TaskSpec& spec, jobs::Phase phase) {
    switch (phase) {
    case jobs::Phase::check: return spec.check;
    case jobs::Phase::run: return spec.run;
    case jobs::Phase::verify: return spec.verify;
    case jobs::Phase::undo: return spec.undo;
    }
    return spec.run;
}

/// Did the last attempt of a task start this phase?
bool has_started(const jobs::TaskRecord& row, jobs::Phase phase) {
    if (phase != jobs::Phase::undo) return row.phase >= phase;
    return row.undone || row.state == jobs::TaskState::undo_failed || (row.phase == phase && row.state == jobs::TaskState::running);
}

/// `not_found` if the task has no such attempt, or if the attempt never ran the phase of ?phase. Whether an earlier attempt ran a
/// phase of the task is not recorded, and not refused.
Result<Unit> check_attempt(const Call& call, const jobs::JobRun& run, const jobs::OutputLog::Name& name, bool follow) {
    const auto& row = run.scheduler->record(name.task);
    const auto task = run.plan.task_name(name.task);
    if (static_cast<std::uint32_t>(name.attempt) > row.attempt)
        return Error{Code::not_found,
                     row.attempt == 0
                         ? fmt::format("{} has no attempt {}: it has never started", task, name.attempt)
                         : fmt::format("{} has no attempt {}: its last is attempt {}", task, name.attempt, row.attempt),
                     fmt::format("orrery job why {} {} lists its attempts", run.name, task)};
    if (!call.query("phase")) return Unit{};
    if (!declared_phase(run.plan.spec.tasks[run.plan.group_of(name.task)], name.phase).given())
        return Error{Code::not_found, fmt::format("{} has no {}, so this phase never ran", task, name_of(name.phase)),
                     fmt::format("orrery job logs {} {} shows the current phase", run.name, task)};
    const bool is_last = static_cast<std::uint32_t>(name.attempt) == row.attempt;
    if (!follow && is_last && !has_started(row, name.phase))
        return Error{Code::not_found,
                     fmt::format("the {} of {} never ran in attempt {}: the task is {}", name_of(name.phase), task, name.attempt,
                                 name_of(row.state)),
                     fmt::format("orrery job logs {} {} shows the current phase", run.name, task)};
    return Unit{};
}

/// Streams output until the attempt ends.
Task<Unit> follow_output(Api::State& state, Engine& engine, Call& call, std::shared_ptr<const jobs::JobRun> run,
                         jobs::OutputLog::Name name, std::uint64_t from, std::uint64_t limit) {
    const auto ctx = call.ctx.without_deadline();
    CO_TRY(std::ignore, co_await call.out.begin(ctx, 200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}}));
    std::uint64_t seen = 0;
    while (!call.out.stopping()) {
        if (!run->live) { // another server runs the job; this view is replaced when the store changes
            auto now = engine.find(call.name());
            if (!now.ok()) break;
            run = *now;
        }
        const auto& row = run->scheduler->record(name.task);
        if (name.attempt == 0) name.attempt = static_cast<int>(row.attempt); // follow the task from its first attempt on
        // Checked before the read: output that is written until the attempt ends is read in the next pass.
        const bool over = name.attempt == 0
                              ? is_terminal(row.state)
                              : static_cast<int>(row.attempt) != name.attempt || row.state != jobs::TaskState::running;
        CO_TRY(const auto page, co_await engine.output().read(ctx, name, from, limit));
        from = page.next;
        if (!page.pieces.empty()) {
            CO_TRY(std::ignore, co_await call.out.write(
                                    ctx, fmt::format("event: output\nid: {}\ndata: {}\n\n", from, to_json_text(page_json(page)))));
            continue;
        }
        if (over) break;
        const auto wait_limit = run->live ? state.options.heartbeat : Duration(std::chrono::seconds(1));
        auto changed = co_await run->changed(ctx.with_timeout(wait_limit), seen);
        if (!changed.ok() && changed.error().code != Code::timeout) break;
        if (!changed.ok()) {
            CO_TRY(std::ignore, co_await call.out.write(ctx, ": heartbeat\n\n"));
        }
    }
    co_return co_await call.out.finish(ctx);
}

/// The artefacts of one attempt: the last, unless the query names another.
Result<jobs::ArtefactFiles::Name> artefacts_in(const Call& call, const jobs::JobRun& run) {
    TRY(const auto task, task_in(call, run));
    TRY(const auto attempt, number_in(call, "attempt", run.scheduler->record(task).attempt, 0x7fffffff));
    return jobs::ArtefactFiles::Name{run.uid, task, static_cast<int>(attempt)};
}

} // namespace

Task<Unit> show_output(Api::State& state, Engine& engine, Call call) {
    CO_TRY(auto run, engine.find(call.name()));
    CO_TRY(const auto task, task_in(call, *run));
    const auto& row = run->scheduler->record(task);
    CO_TRY(const auto attempt, number_in(call, "attempt", row.attempt, 0x7fffffff));
    CO_TRY(const auto from, number_in(call, "from", 0, std::uint64_t{1} << 40));
    CO_TRY(const auto limit, number_in(call, "limit", 256 << 10, 4 << 20));
    CO_TRY(const bool follow, call.flag("follow"));
    CO_TRY(const auto phase, phase_in(call, row.phase));
    if (attempt == 0 && (!follow || is_terminal(row.state))) {
        const auto waits = jobs::waits_for(*run, task);
        co_return Error{Code::not_found,
                        fmt::format("{} has never started, so it has no output: it is {}{}{}", run->plan.task_name(task),
                                    name_of(row.state), waits.empty() ? "" : "; waiting for ", waits),
                        fmt::format("orrery job why {} {}", run->name, run->plan.task_name(task))};
    }
    jobs::OutputLog::Name name{run->uid, task, static_cast<int>(attempt), phase};
    CO_TRY(std::ignore, check_attempt(call, *run, name, follow));
    if (follow) co_return co_await follow_output(state, engine, call, std::move(run), std::move(name), from, limit);
    CO_TRY(const auto page, co_await engine.output().read(call.ctx, name, from, limit));
    co_return co_await send_json(call, 200, page_json(page));
}

Task<Unit> list_artefacts(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.find(call.name()));
    CO_TRY(const auto name, artefacts_in(call, *run));
    CO_TRY(const auto all, co_await engine.artefacts().list(name));
    json::array list;
    for (const auto& one : all) {
        auto object = jobs::to_json(one);
        object["number"] = list.size();
        list.push_back(std::move(object));
    }
    co_return co_await send_json(call, 200,
                                 json::object{{"job", run->name},
                                              {"task", run->plan.task_name(name.task)},
                                              {"attempt", name.attempt},
                                              {"artefacts", std::move(list)}});
}

Task<Unit> send_artefact(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.find(call.name()));
    CO_TRY(const auto name, artefacts_in(call, *run));
    CO_TRY(const auto number, number_in(call, "number", 0, 1000));
    CO_TRY(const auto all, co_await engine.artefacts().list(name));
    if (number >= all.size())
        co_return Error{Code::not_found, fmt::format("{} has no artefact {}", run->plan.task_name(name.task), number),
                        "orrery job artefacts lists the artefacts"};
    const auto& one = all[number];
    if (!one.message.empty()) co_return Error{Code::not_found, fmt::format("{} of {} {}", one.path, one.node, one.message)};
    constexpr std::size_t piece = 256 << 10;
    CO_TRY(auto bytes, co_await engine.artefacts().read(name, number, 0, piece));
    const auto ctx = call.ctx.without_deadline();
    CO_TRY(std::ignore, co_await call.out.begin(ctx, 200,
                                                {{"Content-Type", "application/octet-stream"},
                                                 {"Content-Length", std::to_string(one.size)},
                                                 {"Content-Disposition", "attachment"},
                                                 {"X-Content-Type-Options", "nosniff"},
                                                 {"X-Digest-SHA256", one.sha256}}));
    for (std::uint64_t sent = 0; sent < one.size && !bytes.empty();) {
        sent += bytes.size();
        CO_TRY(std::ignore, co_await call.out.write(ctx, std::move(bytes)));
        CO_TRY(bytes, co_await engine.artefacts().read(name, number, sent, piece));
    }
    co_return co_await call.out.finish(ctx);
}

} // namespace orrery::api
