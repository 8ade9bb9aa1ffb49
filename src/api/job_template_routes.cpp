#include "api/problem.h"
#include "api/state.h"
#include "core/text.h"
#include "jobs/engine.h"
#include "jobs/templates/controller.h"

#include <fmt/format.h>

/// Routes of JobTemplate beyond those of every kind: a run, and the plan of a run.
namespace orrery::api {

namespace {

struct TemplateRun {
    json::object parameters;
    std::string reason;
};

Task<TemplateRun> read_run(Call& call, std::size_t max_body) {
    CO_TRY(const auto document, co_await read_document(call, max_body));
    if (!document.is_object())
        co_return Error{Code::invalid, "the body must be an object", R"(for example {"parameters": {"role": "web"}})"};
    TemplateRun out;
    Error wrong{Code::invalid, "invalid run request"};
    for (const auto& [key, value] : document.get_object()) {
        if (key == "parameters" && value.is_object())
            out.parameters = value.get_object();
        else if (key == "parameters")
            wrong.fields.push_back({"parameters", "must be an object of values by name"});
        else if (key == "reason" && value.is_string() && value.get_string().size() <= 1024)
            out.reason = std::string_view(value.get_string());
        else if (key == "reason")
            wrong.fields.push_back({"reason", "must be a string of at most 1024 characters"});
        else
            wrong.fields.push_back({std::string(std::string_view(key).substr(0, 64)), "unknown field"});
    }
    if (!wrong.fields.empty()) co_return wrong;
    co_return out;
}

Task<Unit> run_template(Api::State& state, jobs::TemplateController& templates, Call call) {
    CO_TRY(auto request, co_await read_run(call, state.options.max_body));
    resource::WriteOptions options;
    CO_TRY(options.dry_run, call.flag("dry_run"));
    options.reason = std::move(request.reason);
    const bool dry_run = options.dry_run;
    CO_TRY(auto made, co_await templates.start(call.ctx, call.name(), std::move(request.parameters), std::move(options)));
    json::object body{{"job", made.object.name}, {"dry_run", dry_run}, {"object", made.object.to_json()}};
    if (!made.once.empty()) body["once"] = std::move(made.once);
    co_return co_await send_json(call, dry_run ? 200 : 202, body);
}

Task<Unit> plan_template(Api::State& state, jobs::Engine& engine, jobs::TemplateController& templates, Call call) {
    CO_TRY(auto request, co_await read_run(call, state.options.max_body));
    CO_TRY(auto job, templates.make(call.name(), std::move(request.parameters)));
    co_return co_await send_job_plan(state, engine, std::move(call), std::move(job));
}

} // namespace

void add_job_template_routes(Api::State& state, jobs::Engine& engine, jobs::TemplateController& templates) {
    const auto add = [&](std::string verb, std::string summary, std::vector<Parameter> query, json::object response, int status,
                         std::function<Task<Unit>(Call)> handler) {
        json::object properties{{"parameters", json::object{{"type", "object"}, {"description", "values by name"}}},
                                {"reason", json::object{{"type", "string"}, {"description", "stored in the audit event"}}}};
        state.router.add({.method = "POST",
                          .pattern = fmt::format("/v1/jobtemplates/{{name}}/{}", verb),
                          .summary = std::move(summary),
                          .group = "jobtemplates",
                          .role = Role::operator_,
                          .kind = state.resources.registry().find("JobTemplate"),
                          .query = std::move(query),
                          .request = json::object{{"type", "object"}, {"properties", std::move(properties)}},
                          .response = std::move(response),
                          .status = status,
                          .handler = std::move(handler)});
    };
    const json::object run{{"type", "object"},
                           {"properties", json::object{{"job", json::object{{"type", "string"}}},
                                                       {"dry_run", json::object{{"type", "boolean"}}},
                                                       {"object", json::object{{"$ref", "#/components/schemas/Job"}}},
                                                       {"once", json::object{{"type", "object"}, {"description", "warnings"}}}}}};
    auto* of = &state;
    auto* with = &templates;
    auto* by = &engine;
    add("run", "Run a job template: submit a new Job made from it", {{"dry_run", "validate without submitting", "boolean"}}, run,
        202, [of, with](Call call) { return run_template(*of, *with, std::move(call)); });
    add("plan", "Plan a run of a job template, without submitting it", job_plan_query(), {{"type", "object"}}, 200,
        [of, by, with](Call call) { return plan_template(*of, *by, *with, std::move(call)); });
}

} // namespace orrery::api
