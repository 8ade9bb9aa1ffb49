#include "api/problem.h"
#include "api/state.h"
#include "core/text.h"
#include "jobs/engine.h"
#include "jobs/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

/// What jobs have beyond the routes of every kind: their tasks, output, reasons, pictures, and the orders people give.
namespace orrery::api {

namespace {

using jobs::Engine;
using jobs::Order;

Error job_query_error(std::string_view parameter, std::string message) {
    Error error{Code::invalid, "the query is not right"};
    error.fields.push_back({fmt::format("?{}", parameter), std::move(message)});
    return error;
}

Result<std::uint64_t> number_in(const Call& call, std::string_view parameter, std::uint64_t otherwise, std::uint64_t greatest) {
    const auto text = call.query(parameter);
    if (!text) return otherwise;
    std::uint64_t value = 0;
    const auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (failed != std::errc{} || end != text->data() + text->size() || value > greatest)
        return job_query_error(parameter, fmt::format("must be a number up to {}", greatest));
    return value;
}

Result<std::uint32_t> task_in(const Call& call, const jobs::JobRun& run) {
    const auto text = call.query("task");
    if (!text) return job_query_error("task", "must name a task, as in mysql@db-1");
    if (const auto task = run.plan.find(*text)) return *task;
    return Error{Code::not_found, fmt::format("job {} has no task {}", run.name, text->substr(0, 256)),
                 "orrery job show lists them; write it as task@node"};
}

Task<Unit> list_tasks(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.look(call.name()));
    CO_TRY(const auto limit, number_in(call, "limit", 500, 5000));
    CO_TRY(const auto from, number_in(call, "continue", 0, 0xffffffff));
    const auto state = call.query("state").value_or("");
    const auto group = call.query("group").value_or("");
    const auto node = call.query("node").value_or("");
    json::array tasks;
    std::uint32_t task = static_cast<std::uint32_t>(from);
    for (; task < run->plan.tasks && tasks.size() < std::max<std::uint64_t>(1, limit); ++task) {
        if (!state.empty() && name_of(run->scheduler->row(task).state) != state) continue;
        if (!group.empty() && run->plan.spec.tasks[run->plan.group_of(task)].name != group) continue;
        if (!node.empty()) {
            const auto host = run->plan.host_of(task);
            if (host == jobs::Plan::none || run->plan.hosts[host] != node) continue;
        }
        tasks.push_back(jobs::task_view(*run, task, false));
    }
    json::object body{{"job", run->name}, {"tasks", std::move(tasks)}, {"total", run->plan.tasks}};
    if (task < run->plan.tasks) body["continue"] = std::to_string(task);
    co_return co_await send_json(call, 200, body);
}

Task<Unit> send_picture(Call& call, std::string type, std::string text) {
    co_return co_await call.out.send(call.ctx, {200, {{"Content-Type", std::move(type)}}, std::move(text)});
}

/// Sends `make()` as an event whenever the job changed, a few times a second at most, until the job is over.
Task<Unit> stream_progress(Api::State& state, Engine& engine, Call call) {
    const auto name = call.name();
    const auto ctx = call.ctx.without_deadline();
    CO_TRY(auto run, engine.look(name));
    CO_TRY(std::ignore, co_await call.out.begin(ctx, 200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}}));
    std::uint64_t seen = 0;
    while (!call.out.stopping()) {
        auto now = engine.look(name);
        if (!now.ok()) break;
        run = *now;
        CO_TRY(std::ignore,
               co_await call.out.write(ctx, fmt::format("event: progress\ndata: {}\n\n", to_json_text(jobs::progress(*run)))));
        if (is_over(run->scheduler->head().state)) break;
        if (run->live) {
            CO_TRY(std::ignore, co_await real_clock().sleep(std::chrono::milliseconds(100)));
            auto changed = co_await run->changed(ctx.with_timeout(state.options.heartbeat), seen);
            if (!changed.ok() && changed.error().code != Code::timeout) break;
        } else {
            auto watch = state.store().watch("jobs/" + name, state.store().revision());
            auto changed = co_await watch->next(ctx.with_timeout(state.options.heartbeat));
            if (!changed.ok() && changed.error().code != Code::timeout && changed.error().code != Code::unavailable) break;
        }
    }
    co_return co_await call.out.finish(ctx);
}

Task<Unit> show_progress(Api::State& state, Engine& engine, Call call) {
    CO_TRY(const bool watch, call.flag("watch"));
    if (watch) co_return co_await stream_progress(state, engine, std::move(call));
    CO_TRY(const auto run, engine.look(call.name()));
    co_return co_await send_json(call, 200, jobs::progress(*run));
}

Task<Unit> show_missing(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.look(call.name()));
    auto missing = jobs::missing(*run);
    json::object body{{"job", run->name},
                      {"state", name_of(run->scheduler->head().state)},
                      {"done", missing.empty()},
                      {"missing", std::move(missing)}};
    co_return co_await send_json(call, 200, body);
}

Task<Unit> show_why(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.look(call.name()));
    CO_TRY(const auto task, task_in(call, *run));
    co_return co_await send_json(call, 200, jobs::why(*run, task, engine.membership()));
}

Task<Unit> show_graph(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.look(call.name()));
    const auto form = call.query("form").value_or("json");
    if (form == "dot") co_return co_await send_picture(call, "text/vnd.graphviz", jobs::graph_dot(run->plan, run.get()));
    if (form == "svg") co_return co_await send_picture(call, "image/svg+xml", jobs::graph_svg(run->plan, run.get()));
    if (form != "json") co_return job_query_error("form", "must be json, dot or svg");
    co_return co_await send_json(call, 200, jobs::plan_view(run->plan));
}

json::object page_json(const jobs::OutputLog::Page& page) {
    json::array pieces;
    for (const auto& piece : page.pieces) {
        const std::string_view stream = piece.kind == 'o' ? "out" : piece.kind == 'e' ? "err" : piece.kind == 's' ? "step" : "note";
        pieces.push_back(json::object{{"stream", stream}, {"text", jobs::valid_utf8(piece.bytes)}});
    }
    return {{"pieces", std::move(pieces)}, {"next", page.next}};
}

Task<Unit> show_output(Api::State& state, Engine& engine, Call call) {
    CO_TRY(auto run, engine.look(call.name()));
    CO_TRY(const auto task, task_in(call, *run));
    CO_TRY(const auto attempt, number_in(call, "attempt", run->scheduler->row(task).attempt, 0x7fffffff));
    CO_TRY(auto from, number_in(call, "from", 0, std::uint64_t{1} << 40));
    CO_TRY(const auto limit, number_in(call, "limit", 256 << 10, 4 << 20));
    CO_TRY(const bool follow, call.flag("follow"));
    auto phase = run->scheduler->row(task).phase;
    if (const auto text = call.query("phase")) {
        const auto all = {jobs::Phase::check, jobs::Phase::run, jobs::Phase::verify, jobs::Phase::undo};
        const auto found = std::find_if(all.begin(), all.end(), [&](jobs::Phase one) { return name_of(one) == *text; });
        if (found == all.end()) co_return job_query_error("phase", "must be check, run, verify or undo");
        phase = *found;
    } else if (phase == jobs::Phase::verify || phase == jobs::Phase::check) {
        phase = jobs::Phase::run;
    }
    const jobs::OutputLog::Name name{run->uid, task, static_cast<int>(attempt), phase};
    if (!follow) {
        CO_TRY(const auto page, co_await engine.output().read(call.ctx, name, from, limit));
        co_return co_await send_json(call, 200, page_json(page));
    }
    const auto ctx = call.ctx.without_deadline();
    CO_TRY(std::ignore, co_await call.out.begin(ctx, 200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}}));
    std::uint64_t seen = 0;
    while (!call.out.stopping()) {
        if (!run->live) { // another server runs it: what is known here changes
            auto now = engine.look(call.name());
            if (!now.ok()) break;
            run = *now;
        }
        // Asked before reading: what ends after this has been written by then, and is read in the next round.
        const bool over =
            run->scheduler->row(task).attempt != attempt || run->scheduler->row(task).state != jobs::TaskState::running;
        CO_TRY(const auto page, co_await engine.output().read(ctx, name, from, limit));
        from = page.next;
        if (!page.pieces.empty()) {
            CO_TRY(std::ignore, co_await call.out.write(
                                    ctx, fmt::format("event: output\nid: {}\ndata: {}\n\n", from, to_json_text(page_json(page)))));
            continue;
        }
        if (over) break;
        const auto patience = run->live ? state.options.heartbeat : Duration(std::chrono::seconds(1));
        auto changed = co_await run->changed(ctx.with_timeout(patience), seen);
        if (!changed.ok() && changed.error().code != Code::timeout) break;
        if (!changed.ok()) {
            CO_TRY(std::ignore, co_await call.out.write(ctx, ": heartbeat\n\n"));
        }
    }
    co_return co_await call.out.finish(ctx);
}

/// Of which attempt: the last, unless the query says another.
Result<jobs::ArtefactFiles::Name> artefacts_in(const Call& call, const jobs::JobRun& run) {
    TRY(const auto task, task_in(call, run));
    TRY(const auto attempt, number_in(call, "attempt", run.scheduler->row(task).attempt, 0x7fffffff));
    return jobs::ArtefactFiles::Name{run.uid, task, static_cast<int>(attempt)};
}

Task<Unit> list_artefacts(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.look(call.name()));
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
    CO_TRY(const auto run, engine.look(call.name()));
    CO_TRY(const auto name, artefacts_in(call, *run));
    CO_TRY(const auto number, number_in(call, "number", 0, 1000));
    CO_TRY(const auto all, co_await engine.artefacts().list(name));
    if (number >= all.size())
        co_return Error{Code::not_found, fmt::format("{} has no artefact {}", run->plan.task_name(name.task), number),
                        "orrery job artefacts lists them"};
    const auto& one = all[number];
    if (!one.words.empty()) co_return Error{Code::not_found, fmt::format("{} of {} {}", one.path, one.node, one.words)};
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

Task<Unit> give_order(Engine& engine, Call call, Order::What what, std::size_t max_body) {
    CO_TRY(const auto document, co_await read_document(call, max_body));
    if (!document.is_object()) co_return Error{Code::invalid, "the body must be an object"};
    Order order;
    order.what = what;
    Error wrong{Code::invalid, fmt::format("the order to {} is not right", name_of(what))};
    for (const auto& [key, value] : document.get_object()) {
        auto* into = key == "task" && (what == Order::What::approve || what == Order::What::retry) ? &order.task
                     : key == "digest" && what == Order::What::approve                             ? &order.digest
                     : key == "because"                                                            ? &order.because
                                                                                                   : nullptr;
        if (key == "undo" && what == Order::What::cancel && value.is_bool()) {
            order.undo = value.get_bool();
        } else if (into == nullptr) {
            wrong.fields.push_back({std::string(std::string_view(key).substr(0, 64)), "is not known here"});
        } else if (!value.is_string() || value.get_string().size() > 1024) {
            wrong.fields.push_back({std::string(key), "must be a text of at most 1024 characters"});
        } else {
            *into = std::string_view(value.get_string());
        }
    }
    if (what == Order::What::approve && order.digest.empty())
        wrong.fields.push_back({"digest", "must be that of the plan you looked at"});
    if (!wrong.fields.empty()) co_return wrong;
    CO_TRY(std::ignore, co_await engine.order(call.ctx, call.name(), std::move(order)));
    CO_TRY(const auto run, engine.look(call.name()));
    co_return co_await send_json(call, 202, jobs::progress(*run, 0));
}

/// Plans a job that is not submitted: where what would run, values as of now, how long it would take; with `preview`, what each
/// task says it would change.
Task<Unit> make_plan(Api::State& state, Engine& engine, Call call) {
    CO_TRY(auto document, co_await read_document(call, state.options.max_body));
    CO_TRY(const bool preview, call.flag("preview"));
    CO_TRY(auto object, resource::read_object(*state.resources.registry().find("Job"), {}, document));
    Duration latency = std::chrono::seconds(1), unknown = std::chrono::seconds(10);
    for (auto [name, into] : {std::pair{"latency", &latency}, {"unknown", &unknown}})
        if (const auto text = call.query(name)) {
            auto read = parse_duration(*text);
            if (!read.ok()) co_return job_query_error(name, read.error().message);
            *into = *read;
        }
    CO_TRY(const auto plan, engine.plan(object.name, object.spec));
    auto body = jobs::plan_view(plan);
    const auto known = engine.history(plan);
    json::array guessed;
    for (std::size_t i = 0; i < known.size(); ++i)
        if (!known[i]) guessed.emplace_back(plan.spec.tasks[i].name);
    const auto conditions = engine.conditions(plan, latency, unknown);
    body["simulation"] = jobs::simulation_view(plan, jobs::simulate(plan, conditions, &engine.membership()));
    body["never_ran"] = std::move(guessed);
    json::object values;
    constexpr std::size_t most_values = 100;
    for (std::uint32_t g = 0; g < plan.groups.size() && values.size() < most_values; ++g) {
        if (plan.spec.tasks[g].with.empty()) continue;
        auto now = engine.values_now(plan, plan.groups[g].first);
        values[plan.task_name(plan.groups[g].first)] =
            now.ok() ? *now : json::value(fmt::format("(not known now: {})", now.error().message));
    }
    body["values"] = std::move(values);
    if (preview) {
        constexpr std::uint32_t most_previews = 200;
        json::array previews;
        for (std::uint32_t task = 0; task < std::min(plan.tasks, most_previews); ++task) {
            if (!plan.spec.tasks[plan.group_of(task)].run.given()) continue;
            auto seen = co_await engine.preview(call.ctx, plan, task);
            json::object one{{"task", plan.task_name(task)}};
            if (!seen.ok()) {
                one["words"] = seen.error().message;
            } else {
                one["change"] = name_of(seen->change);
                one["words"] = seen->words;
                json::array differences;
                for (const auto& difference : seen->differences)
                    differences.push_back(
                        json::object{{"what", difference.what}, {"before", difference.before}, {"after", difference.after}});
                one["differences"] = std::move(differences);
            }
            previews.push_back(std::move(one));
        }
        body["previews"] = std::move(previews);
    }
    co_return co_await send_json(call, 200, body);
}

} // namespace

void add_job_routes(Api::State& state, Engine& engine) {
    const auto* kind = state.resources.registry().find("Job");
    const auto add = [&](std::string method, std::string pattern, std::string summary, Role role, std::vector<Parameter> query,
                         int status, std::function<Task<Unit>(Call)> handler, json::object request = {}) {
        state.router.add({.method = std::move(method),
                          .pattern = std::move(pattern),
                          .summary = std::move(summary),
                          .group = "jobs",
                          .role = role,
                          .kind = kind,
                          .query = std::move(query),
                          .request = std::move(request),
                          .response = {{"type", "object"}},
                          .status = status,
                          .handler = std::move(handler)});
    };
    auto* of = &state;
    auto* with = &engine;
    const Parameter task{"task", "the task, as in mysql@db-1"};
    add("GET", "/v1/jobs/{name}/tasks", "A job's tasks", Role::viewer,
        {{"state", "only those in this state"},
         {"group", "only those of this name"},
         {"node", "only those of this machine"},
         {"limit", "at most so many (500)", "integer"},
         {"continue", "what the last page gave"}},
        200, [with](Call call) { return list_tasks(*with, std::move(call)); });
    add("GET", "/v1/jobs/{name}/progress", "What runs, what waits and for what", Role::viewer,
        {{"watch", "send it again whenever it changes", "boolean"}}, 200,
        [of, with](Call call) { return show_progress(*of, *with, std::move(call)); });
    add("GET", "/v1/jobs/{name}/missing", "Exactly what is missing for the job to be done", Role::viewer, {}, 200,
        [with](Call call) { return show_missing(*with, std::move(call)); });
    add("GET", "/v1/jobs/{name}/why", "Why a task is as it is", Role::viewer, {task}, 200,
        [with](Call call) { return show_why(*with, std::move(call)); });
    add("GET", "/v1/jobs/{name}/graph", "The job's graph", Role::viewer, {{"form", "json, dot or svg"}}, 200,
        [with](Call call) { return show_graph(*with, std::move(call)); });
    add("GET", "/v1/jobs/{name}/output", "What a task said", Role::viewer,
        {task,
         {"attempt", "which attempt; else the last", "integer"},
         {"phase", "check, run, verify or undo; else run"},
         {"from", "go on from the \"next\" of the last page", "integer"},
         {"limit", "about so many bytes", "integer"},
         {"follow", "send what comes as server-sent events until the attempt is over", "boolean"}},
        200, [of, with](Call call) { return show_output(*of, *with, std::move(call)); });
    const Parameter attempt{"attempt", "which attempt; else the last", "integer"};
    add("GET", "/v1/jobs/{name}/artefacts", "Files that a task left on its machines, as they were fetched", Role::viewer,
        {task, attempt}, 200, [with](Call call) { return list_artefacts(*with, std::move(call)); });
    // What is in such a file nobody has masked: it is for those who could have run the task.
    add("GET", "/v1/jobs/{name}/artefact", "What is in one of them", Role::operator_,
        {task, attempt, {"number", "which, as the list numbers them; else the first", "integer"}}, 200,
        [with](Call call) { return send_artefact(*with, std::move(call)); });
    const json::object text{{"type", "string"}};
    const auto order = [&](Order::What what, std::string summary, json::object properties) {
        properties["because"] = text;
        add(
            "POST", fmt::format("/v1/jobs/{{name}}/{}", name_of(what)), std::move(summary), Role::operator_, {}, 202,
            [of, with, what](Call call) { return give_order(*with, std::move(call), what, of->options.max_body); },
            json::object{{"type", "object"}, {"properties", std::move(properties)}});
    };
    order(Order::What::approve, "Approve a job's plan, or one of its tasks, by the plan's digest",
          {{"task", text}, {"digest", text}});
    order(Order::What::pause, "Begin nothing more until it is resumed", {});
    order(Order::What::resume, "Go on after a pause", {});
    order(Order::What::cancel, "End it: kill what runs, undo what says how", {{"undo", json::object{{"type", "boolean"}}}});
    order(Order::What::retry, "Run again what failed, and what was skipped because of it", {{"task", text}});
    add(
        "POST", "/v1/job-plans", "What a job would do, without submitting it", Role::operator_,
        {{"preview", "ask each task what it would change", "boolean"},
         {"latency", "from the end of a task to its service being seen (1s)"},
         {"unknown", "how long tasks take that never ran (10s)"}},
        200, [of, with](Call call) { return make_plan(*of, *with, std::move(call)); },
        json::object{{"$ref", "#/components/schemas/JobRequest"}});
}

} // namespace orrery::api
