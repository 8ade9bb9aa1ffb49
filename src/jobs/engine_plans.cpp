#include "core/ids.h"
#include "core/text.h"
#include "jobs/engine_state.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

/// Plans and previews of jobs that may not have been submitted.
namespace orrery::jobs {

SecretKeys secret_keys_in(const resource::Resources& resources) {
    return [&resources](const std::string& name) -> std::optional<std::vector<std::string>> {
        const auto secret = resources.get(*resources.registry().find("Secret"), name);
        if (!secret.ok()) return {};
        std::vector<std::string> keys;
        if (const auto* values = secret->spec.if_contains("values"); values != nullptr && values->is_object())
            for (const auto& [key, value] : values->get_object()) keys.emplace_back(std::string_view(key));
        return keys;
    };
}

Result<Plan> Engine::plan(std::string name, const json::object& spec, std::vector<FieldError> problems) const {
    const auto nodes = nodes_of(state_->context.resources);
    return plan_submission(std::move(name), spec,
                           {nodes, state_->context.executors, &state_->context.membership,
                            secret_keys_in(state_->context.resources), std::move(problems)});
}

Task<std::vector<FieldError>> Engine::missing_files(Context ctx, json::object spec) const {
    auto state = state_;
    co_return co_await jobs::missing_files(std::move(ctx), state->context.executors, spec);
}

Task<Unit> Engine::await_services(Context ctx, json::object spec) const {
    auto state = state_;
    co_return co_await jobs::await_services(std::move(ctx), state->context.membership, spec);
}

std::vector<std::optional<Duration>> Engine::history(const Plan& plan) const {
    std::vector<std::optional<Duration>> out;
    for (const auto& task : plan.spec.tasks) {
        out.emplace_back();
        if (!task.run.given()) {
            out.back() = Duration::zero();
            continue;
        }
        const auto record = state_->context.store().find(history_key(task_signature(task)));
        if (!record) continue;
        boost::system::error_code failed;
        const auto read = json::parse(record->value, failed);
        if (failed || !read.is_object()) continue;
        if (const auto* mean = read.get_object().if_contains("mean_ms"); mean != nullptr && mean->is_number())
            out.back() = std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(mean->to_number<double>()));
    }
    return out;
}

SimulateOptions Engine::conditions(const Plan& plan, Duration latency, Duration unknown) const {
    SimulateOptions out;
    out.latency = latency;
    out.slots = state_->context.options.slots;
    out.rules = rolling_rules_of(state_->context.resources);
    for (const auto& known : history(plan)) out.takes.push_back(known.value_or(unknown));
    return out;
}

Result<json::value> Engine::values_now(const Plan& plan, std::uint32_t task) const {
    const auto group = plan.group_of(task);
    std::shared_ptr<const Target> at;
    if (const auto host = plan.host_in(group, task); host != Plan::none) {
        TRY(at, state_->builder.target(plan.hosts[host]));
    }
    TRY(const auto bound, bind(json::value(plan.spec.tasks[group].with), state_->builder.scope_for(plan, nullptr, task, at)));
    return json_with_secrets(bound, {});
}

Task<Preview> Engine::preview(Context ctx, const Plan& plan, std::uint32_t task) {
    auto state = state_;
    const auto& run = plan.spec.tasks[plan.group_of(task)].run;
    auto* executor = state->context.executors.find(run.executor);
    if (executor == nullptr) co_return Error{Code::unsupported, fmt::format("{} runs nothing", plan.task_name(task))};
    CO_TRY(auto attempt, state->builder.make_attempt(plan, nullptr, "plan-" + random_id(), task, Phase::run, nullptr));
    const Masker masker(attempt.secrets);
    auto preview = co_await executor->plan(ctx, attempt);
    if (!preview.ok()) {
        auto error = std::move(preview).error();
        error.message = masker.mask_cut(error.message);
        co_return error;
    }
    preview->message = masker.mask_cut(preview->message);
    for (auto& difference : preview->differences) {
        difference.name = masker.mask_cut(difference.name);
        difference.before = masker.mask_cut(difference.before);
        difference.after = masker.mask_cut(difference.after);
    }
    co_return preview;
}

Task<Preview> Engine::preview(Context ctx, std::shared_ptr<const JobRun> run, std::uint32_t task) {
    co_return co_await preview(std::move(ctx), run->plan, task);
}

} // namespace orrery::jobs
