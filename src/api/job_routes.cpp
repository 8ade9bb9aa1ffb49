#include "api/job_routes.h"

#include "api/problem.h"
#include "core/text.h"
#include "core/truncate.h"
#include "jobs/engine.h"
#include "jobs/view.h"
#include "jobs/waiting_reason.h"

#include <fmt/format.h>

#include <algorithm>

/// Routes of Job beyond those of every kind: tasks, progress, output, artefacts, graph, plans, and the commands that people give to
/// a running job.
namespace orrery::api {

namespace {

using jobs::Engine;
using jobs::JobCommand;

Task<Unit> list_tasks(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.find(call.name()));
    CO_TRY(const auto limit, number_in(call, "limit", 500, 5000));
    CO_TRY(const auto from, number_in(call, "continue", 0, 0xffffffff));
    if (from > run->plan.tasks)
        co_return job_query_error("continue", "must be the \"continue\" value of the previous page of this list");
    const auto state = call.query("state").value_or("");
    const auto group = call.query("group").value_or("");
    const auto node = call.query("node").value_or("");
    json::array tasks;
    std::uint32_t task = static_cast<std::uint32_t>(from);
    for (; task < run->plan.tasks && tasks.size() < std::max<std::uint64_t>(1, limit); ++task) {
        if (!state.empty() && name_of(run->scheduler->record(task).state) != state) continue;
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

/// Sends the progress as a server-sent event after each change of the job, at most ten times a second, until the job has ended.
Task<Unit> stream_progress(Api::State& state, Engine& engine, Call call) {
    const auto name = call.name();
    const auto ctx = call.ctx.without_deadline();
    CO_TRY(auto run, engine.find(name));
    CO_TRY(std::ignore, co_await call.out.begin(ctx, 200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}}));
    std::uint64_t seen = 0;
    while (!call.out.stopping()) {
        auto now = engine.find(name);
        if (!now.ok()) break;
        run = *now;
        CO_TRY(std::ignore,
               co_await call.out.write(ctx, fmt::format("event: progress\ndata: {}\n\n", to_json_text(jobs::progress(*run)))));
        if (is_terminal(run->scheduler->job().state)) break;
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
    CO_TRY(const auto run, engine.find(call.name()));
    co_return co_await send_json(call, 200, jobs::progress(*run));
}

Task<Unit> show_missing(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.find(call.name()));
    auto missing = jobs::missing(*run);
    json::object body{{"job", run->name},
                      {"state", name_of(run->scheduler->job().state)},
                      {"done", missing.empty()},
                      {"missing", std::move(missing)}};
    co_return co_await send_json(call, 200, body);
}

Task<Unit> show_why(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.find(call.name()));
    CO_TRY(const auto task, task_in(call, *run));
    co_return co_await send_json(call, 200, jobs::why(*run, task, engine.membership()));
}

Task<Unit> show_graph(Engine& engine, Call call) {
    CO_TRY(const auto run, engine.find(call.name()));
    const auto form = call.query("form").value_or("json");
    if (form == "dot") co_return co_await send_picture(call, "text/vnd.graphviz", jobs::graph_dot(run->plan, run.get()));
    if (form == "svg") co_return co_await send_picture(call, "image/svg+xml", jobs::graph_svg(run->plan, run.get()));
    if (form != "json") co_return job_query_error("form", "must be json, dot or svg");
    co_return co_await send_json(call, 200, jobs::plan_view(run->plan));
}

Task<Unit> command_job(Engine& engine, Call call, JobCommand::Action action, std::size_t max_body) {
    CO_TRY(const auto document, co_await read_document(call, max_body));
    if (!document.is_object()) co_return Error{Code::invalid, "the body must be an object"};
    JobCommand command;
    command.action = action;
    Error wrong{Code::invalid, fmt::format("invalid {} command", name_of(action))};
    for (const auto& [key, value] : document.get_object()) {
        auto* into = key == "task" && (action == JobCommand::Action::approve || action == JobCommand::Action::retry) ? &command.task
                     : key == "digest" && action == JobCommand::Action::approve ? &command.digest
                     : key == "reason"                                          ? &command.reason
                                                                                : nullptr;
        if (key == "undo" && action == JobCommand::Action::cancel && value.is_bool()) {
            command.undo = value.get_bool();
        } else if (into == nullptr) {
            wrong.fields.push_back({truncate(key, 64), "unknown field"});
        } else if (!value.is_string() || value.get_string().size() > 1024) {
            wrong.fields.push_back({std::string(key), "must be a string of at most 1024 characters"});
        } else {
            *into = std::string_view(value.get_string());
        }
    }
    if (action == JobCommand::Action::approve && command.digest.empty())
        wrong.fields.push_back({"digest", "must be the digest of the plan to approve, as printed by submit, plan and show"});
    if (!wrong.fields.empty()) co_return wrong;
    CO_TRY(std::ignore, co_await engine.command(call.ctx, call.name(), std::move(command)));
    CO_TRY(const auto run, engine.find(call.name()));
    co_return co_await send_json(call, 202, jobs::progress(*run, 0));
}

/// Plans a job without submitting it: tasks by node, current values, simulated duration and, with `preview`, the change that each
/// task reports.
Task<Unit> make_plan(Api::State& state, Engine& engine, Call call) {
    CO_TRY(const auto document, co_await read_document(call, state.options.max_body, EmptyBody::refuse));
    CO_TRY(auto object, resource::read_object(*state.resources.registry().find("Job"), {}, document));
    co_return co_await send_job_plan(state, engine, std::move(call), std::move(object));
}

} // namespace

std::vector<Parameter> job_plan_query() {
    return {{"preview", "run the preview of each task and return its changes", "boolean"},
            {"latency", "assumed time from the end of a task until its service is seen (default 1s)"},
            {"unknown", "assumed duration of tasks that never ran (default 10s)"}};
}

Task<Unit> send_job_plan(Api::State& state, Engine& engine, Call call, resource::Object job) {
    CO_TRY(const bool preview, call.flag("preview"));
    Duration latency = std::chrono::seconds(1), unknown = std::chrono::seconds(10);
    for (auto [name, into] : {std::pair{"latency", &latency}, {"unknown", &unknown}})
        if (const auto text = call.query(name)) {
            auto read = parse_duration(*text);
            if (!read.ok()) co_return job_query_error(name, fmt::format("{}; {}", read.error().message, read.error().remedy));
            *into = *read;
        }
    CO_TRY(auto problems, co_await engine.missing_files(call.ctx, job.spec));
    CO_TRY(std::ignore, co_await engine.await_services(call.ctx, job.spec));
    CO_TRY(const auto plan, engine.plan(job.name, job.spec, std::move(problems)));
    auto body = jobs::plan_view(plan);
    const auto known = engine.history(plan);
    json::array guessed;
    for (std::size_t i = 0; i < known.size(); ++i)
        if (!known[i]) guessed.emplace_back(plan.spec.tasks[i].name);
    const auto conditions = engine.conditions(plan, latency, unknown);
    body["simulation"] = jobs::simulation_view(plan, jobs::simulate(plan, conditions, &engine.membership()));
    body["never_ran"] = std::move(guessed);
    json::object values;
    constexpr std::size_t max_values = 100;
    for (std::uint32_t g = 0; g < plan.groups.size() && values.size() < max_values; ++g) {
        if (plan.spec.tasks[g].with.empty()) continue;
        auto now = engine.values_now(plan, plan.groups[g].first);
        values[plan.task_name(plan.groups[g].first)] =
            now.ok() ? *now : json::value(fmt::format("(not known yet: {})", now.error().message));
    }
    body["values"] = std::move(values);
    if (preview) {
        constexpr std::uint32_t max_previews = 200;
        json::array previews;
        for (std::uint32_t task = 0; task < std::min(plan.tasks, max_previews); ++task) {
            if (!plan.spec.tasks[plan.group_of(task)].run.given()) continue;
            auto seen = co_await engine.preview(call.ctx, plan, task);
            json::object one{{"task", plan.task_name(task)}};
            if (!seen.ok()) {
                one["message"] = seen.error().message;
            } else {
                one["change"] = name_of(seen->change);
                one["message"] = seen->message;
                json::array differences;
                for (const auto& difference : seen->differences)
                    differences.push_back(
                        json::object{{"name", difference.name}, {"before", difference.before}, {"after", difference.after}});
                one["differences"] = std::move(differences);
            }
            previews.push_back(std::move(one));
        }
        body["previews"] = std::move(previews);
    }
    co_return co_await send_json(call, 200, body);
}

namespace {

/// Adds routes of the group "jobs".
class JobRoutes {
public:
    JobRoutes(Api::State& state, Engine& engine) : state_(state), engine_(engine), kind_(state.resources.registry().find("Job")) {}

    void add(std::string method, std::string pattern, std::string summary, Role role, std::vector<Parameter> query,
             std::function<Task<Unit>(Call)> handler, int status = 200, json::object request = {}) {
        state_.router.add({.method = std::move(method),
                           .pattern = std::move(pattern),
                           .summary = std::move(summary),
                           .group = "jobs",
                           .role = role,
                           .kind = kind_,
                           .query = std::move(query),
                           .request = std::move(request),
                           .body_optional = status == 202,
                           .response = {{"type", "object"}},
                           .status = status,
                           .handler = std::move(handler)});
    }

    void add_command(JobCommand::Action action, std::string summary, json::object properties) {
        properties["reason"] = text_schema;
        add(
            "POST", fmt::format("/v1/jobs/{{name}}/{}", name_of(action)), std::move(summary), Role::operator_, {},
            [state = &state_, engine = &engine_, action](Call call) {
                return command_job(*engine, std::move(call), action, state->options.max_body);
            },
            202, json::object{{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}});
    }

    const json::object text_schema{{"type", "string"}, {"maxLength", 1024}};

private:
    Api::State& state_;
    Engine& engine_;
    const resource::Kind* kind_;
};

std::vector<std::string> task_state_names() {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < jobs::task_states; ++i) out.emplace_back(name_of(static_cast<jobs::TaskState>(i)));
    return out;
}

void add_job_views(JobRoutes& routes, Api::State& state, Engine& engine) {
    auto* of = &state;
    auto* with = &engine;
    routes.add("GET", "/v1/jobs/{name}/tasks", "List the tasks of a job", Role::viewer,
               {{.name = "state", .doc = "only tasks in this state", .choices = task_state_names()},
                {"group", "only tasks of this group"},
                {"node", "only tasks of this node"},
                limit_parameter(500, 5000),
                {.name = "continue",
                 .doc = "the \"continue\" value of the previous page",
                 .type = "integer",
                 .min = 0,
                 .max = 0xffffffff}},
               [with](Call call) { return list_tasks(*with, std::move(call)); });
    routes.add("GET", "/v1/jobs/{name}/progress", "Show the progress of a job: running tasks, waiting tasks and their conditions",
               Role::viewer, {{"watch", "stream the progress as server-sent events after each change", "boolean"}},
               [of, with](Call call) { return show_progress(*of, *with, std::move(call)); });
    routes.add("GET", "/v1/jobs/{name}/missing", "List what a job still needs to complete", Role::viewer, {},
               [with](Call call) { return show_missing(*with, std::move(call)); });
    routes.add("GET", "/v1/jobs/{name}/why", "Explain the state of a task", Role::viewer, {task_parameter()},
               [with](Call call) { return show_why(*with, std::move(call)); });
    routes.add("GET", "/v1/jobs/{name}/graph", "Show the graph of a job", Role::viewer,
               {{.name = "form", .doc = "json, dot or svg", .choices = {"json", "dot", "svg"}}},
               [with](Call call) { return show_graph(*with, std::move(call)); });
}

void add_job_outputs(JobRoutes& routes, Api::State& state, Engine& engine) {
    auto* of = &state;
    auto* with = &engine;
    const Parameter attempt{
        .name = "attempt", .doc = "number of the attempt; default: the last", .type = "integer", .min = 0, .max = 0x7fffffff};
    routes.add("GET", "/v1/jobs/{name}/output", "Read the output of a task", Role::viewer,
               {task_parameter(),
                attempt,
                {.name = "phase", .doc = "check, run, verify or undo; default: run", .choices = {"check", "run", "verify", "undo"}},
                {.name = "from",
                 .doc = "start at this offset: the \"next\" value of the previous page",
                 .type = "integer",
                 .min = 0,
                 .max = std::int64_t{1} << 40},
                limit_parameter(256 << 10, 4 << 20),
                {"follow", "stream new output as server-sent events until the attempt ends", "boolean"}},
               [of, with](Call call) { return show_output(*of, *with, std::move(call)); });
    routes.add("GET", "/v1/jobs/{name}/artefacts", "List the artefacts that the server fetched from the nodes of a task",
               Role::viewer, {task_parameter(), attempt}, [with](Call call) { return list_artefacts(*with, std::move(call)); });
    // The contents of an artefact are not masked, so only roles that may run the task read them.
    routes.add("GET", "/v1/jobs/{name}/artefact", "Download one artefact", Role::operator_,
               {task_parameter(),
                attempt,
                {.name = "number",
                 .doc = "number of the artefact in the list; default: the first",
                 .type = "integer",
                 .min = 0,
                 .max = 0x7fffffff}},
               [with](Call call) { return send_artefact(*with, std::move(call)); });
}

void add_job_commands(JobRoutes& routes) {
    const auto& text = routes.text_schema;
    routes.add_command(JobCommand::Action::approve, "Approve the plan of a job, or one of its tasks, by the digest of the plan",
                       {{"task", text}, {"digest", text}});
    routes.add_command(JobCommand::Action::pause, "Pause a job: start no further task until it is resumed", {});
    routes.add_command(JobCommand::Action::resume, "Resume a paused job", {});
    routes.add_command(JobCommand::Action::cancel, "Cancel a job: kill running attempts and, if asked, undo finished tasks",
                       {{"undo", json::object{{"type", "boolean"}}}});
    routes.add_command(JobCommand::Action::undo, "Undo an ended job: run the undo of its tasks in reverse order of the graph", {});
    routes.add_command(JobCommand::Action::retry, "Retry failed tasks and the tasks that were skipped because of them",
                       {{"task", text}});
}

} // namespace

void add_job_routes(Api::State& state, Engine& engine) {
    JobRoutes routes(state, engine);
    add_job_views(routes, state, engine);
    add_job_outputs(routes, state, engine);
    add_job_commands(routes);
    routes.add(
        "POST", "/v1/job-plans", "Plan a job without submitting it", Role::operator_, job_plan_query(),
        [of = &state, with = &engine](Call call) { return make_plan(*of, *with, std::move(call)); }, 200,
        json::object{{"$ref", "#/components/schemas/JobRequest"}});
}

} // namespace orrery::api
