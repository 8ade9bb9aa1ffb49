#include "jobs/attempt_builder.h"

#include "core/text.h"
#include "jobs/planned_membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::jobs {

const RunSpec& run_of(const TaskSpec& spec, Phase phase) {
    switch (phase) {
    case Phase::check: return spec.check;
    case Phase::run: return spec.run;
    case Phase::verify: return spec.verify;
    case Phase::undo: return spec.undo;
    }
    return spec.run;
}

Result<std::shared_ptr<const Target>> AttemptBuilder::target(const std::string& node) {
    if (const auto found = targets_.find(node); found != targets_.end()) return found->second;
    TRY(auto object, engine_.resources.get(engine_.kind("Node"), node));
    auto made = std::make_shared<Target>();
    made->node = resource::Node::from(object);
    made->labels = std::move(object.labels);
    targets_[node] = made;
    return std::shared_ptr<const Target>(std::move(made));
}

Scope AttemptBuilder::scope_for(const Plan& plan, const std::vector<TaskRecord>* records, std::uint32_t task,
                                std::shared_ptr<const Target> at) const {
    Scope scope;
    scope.job = plan.name;
    scope.plan = &plan;
    scope.membership = &engine_.membership;
    if (records != nullptr) {
        scope.own_membership = std::make_shared<PlannedMembership>(engine_.membership, plan, *records);
        scope.membership = scope.own_membership.get();
    }
    scope.node = std::move(at);
    scope.address_of = [this](const std::string& node) {
        auto object = engine_.resources.get(engine_.kind("Node"), node);
        return object.ok() ? resource::Node::from(*object).address : node;
    };
    if (records != nullptr)
        scope.published = [&plan, records, task](const std::string& name) -> const json::object* {
            const auto group = plan.find_group(name);
            if (!group) return nullptr;
            const auto host = plan.host_of(task);
            auto other = host == Plan::none ? Plan::none : plan.task_on(*group, host);
            if (other == Plan::none && plan.groups[*group].count == 1) other = plan.groups[*group].first;
            if (other == Plan::none || !(*records)[other].detail) return nullptr;
            return &(*records)[other].detail->values;
        };
    return scope;
}

namespace {

std::uint64_t number_of(const std::string& digest) {
    std::uint64_t number = 0;
    std::from_chars(digest.data(), digest.data() + std::min<std::size_t>(16, digest.size()), number, 16);
    return number;
}

/// Whether a part of it is bound only when the task starts.
bool is_late(const json::value& value) {
    for (const auto& text : references_in(value)) {
        auto reference = parse_reference(text);
        if (!reference.ok() || (reference->type != Reference::Type::secret && reference->type != Reference::Type::job &&
                                reference->type != Reference::Type::param && reference->type != Reference::Type::with))
            return true;
    }
    return false;
}

} // namespace

Result<std::uint64_t> AttemptBuilder::prepare(JobRun& run, std::uint32_t task, Phase phase) {
    const auto group = run.plan.group_of(task);
    const auto& spec = run.plan.spec.tasks[group];
    std::shared_ptr<const Target> at;
    if (const auto host = run.plan.host_in(group, task); host != Plan::none) {
        TRY(at, target(run.plan.hosts[host]));
        if (at->node.maintenance)
            return Error{Code::unavailable,
                         fmt::format("{} is in maintenance{}{}", at->node.name, at->node.maintenance_reason.empty() ? "" : ": ",
                                     at->node.maintenance_reason)};
    }
    auto& live = *run.at_work;
    if (live.constant.empty()) live.constant.resize(run.plan.groups.size());
    auto& constant = live.constant[group];
    if (constant) return *constant;
    auto scope = scope_for(run.plan, &run.scheduler->records(), task, at);
    TRY(auto with, bind(json::value(spec.with), scope));
    scope.with = &with.get_object();
    TRY(auto body, bind(spec.run.body, scope));
    const auto digest = number_of(digest_of(json::value(json::array{with, body})));
    if (!is_late(spec.run.body) && !is_late(json::value(spec.with)) && spec.with.empty()) constant = digest;
    if (!spec.with.empty()) live.prepared[task] = std::move(with.get_object());
    return digest;
}

/// Reveals the secrets that the task names in the job file. A value that is bound later cannot name one.
Result<Unit> AttemptBuilder::reveal_named(const TaskSpec& spec, const RunSpec& run, Secrets& secrets,
                                          std::vector<std::string>* missing) const {
    auto named = references_in(run.body);
    for (auto& text : references_in(json::value(spec.with))) named.push_back(std::move(text));
    for (const auto& [name, text] : spec.environment)
        for (auto& one : references_in(json::value(text))) named.push_back(std::move(one));
    for (const auto& text : named) {
        auto reference = parse_reference(text);
        if (!reference.ok() || reference->type != Reference::Type::secret) continue;
        auto value = engine_.resources.reveal(engine_.kind("Secret"), reference->name, "spec.values." + reference->field);
        if (value.ok())
            secrets[text.substr(7)] = std::move(*value);
        else if (missing != nullptr)
            missing->push_back(reference->name);
        else
            return std::move(value).error();
    }
    return Unit{};
}

namespace {

/// Whether the task has no value to bind in this phase, as most tasks.
bool has_only_plain_values(const TaskSpec& spec, const RunSpec& run) {
    const auto plain = [](std::string_view text) { return text.find('$') == text.npos; };
    return is_plain(run.body) &&
           std::all_of(spec.with.begin(), spec.with.end(), [](const auto& one) { return is_plain(one.value()); }) &&
           std::all_of(spec.environment.begin(), spec.environment.end(), [&](const auto& one) { return plain(one.second); }) &&
           std::all_of(spec.artefacts.begin(), spec.artefacts.end(), plain);
}

Result<Unit> check_environment(const Attempt& attempt) {
    for (const auto& [name, value] : attempt.environment)
        if (value.find('\0') != std::string::npos) // the rest of the value would be lost
            return Error{Code::invalid,
                         fmt::format("the value for the variable {} has a NUL character, which no environment can hold", name)};
    return Unit{};
}

} // namespace

/// Values, body, environment and artefacts of an attempt.
Result<Unit> AttemptBuilder::fill_in(Attempt& attempt, const Plan& plan, const std::vector<TaskRecord>* records, std::uint32_t task,
                                     Phase phase, std::shared_ptr<const Target> at, const json::object* with,
                                     std::vector<std::string>* missing) const {
    const auto& spec = plan.spec.tasks[plan.group_of(task)];
    const auto& run = run_of(spec, phase);
    const auto* executor = engine_.executors.find(run.executor);
    TRY(auto separated, executor == nullptr ? SeparatedBody{run.body, {}, {}} : executor->separate_values(run.body));
    if (has_only_plain_values(spec, run) && separated.values.empty() && separated.environment.empty()) {
        attempt.body = std::move(separated.body);
        attempt.values = with == nullptr ? spec.with : *with;
        attempt.environment.insert(spec.environment.begin(), spec.environment.end());
        if (phase == Phase::run) attempt.artefacts = spec.artefacts;
    } else {
        TRY(std::ignore, reveal_named(spec, run, attempt.secrets, missing));
        TRY(std::ignore, bind_values(attempt, separated, scope_for(plan, records, task, std::move(at)), spec, phase, with));
    }
    return check_environment(attempt);
}

Result<Unit> AttemptBuilder::bind_values(Attempt& attempt, const SeparatedBody& separated, Scope scope, const TaskSpec& spec,
                                         Phase phase, const json::object* with) const {
    json::object bound_with;
    if (with != nullptr) {
        bound_with = *with;
    } else {
        TRY(auto bound, bind(json::value(spec.with), scope));
        bound_with = std::move(bound.get_object());
    }
    scope.with = &bound_with;
    const auto resolve = [&](const json::value& written) -> Result<json::value> {
        TRY(const auto bound, bind(written, scope));
        return json_with_secrets(bound, attempt.secrets);
    };
    const auto resolve_text = [&](const std::string& written) -> Result<std::string> {
        TRY(const auto value, resolve(json::value(written)));
        return value.is_string() ? std::string(std::string_view(value.get_string())) : to_json_text(value);
    };
    TRY(attempt.body, resolve(separated.body));
    attempt.values = json_with_secrets(json::value(bound_with), attempt.secrets).get_object();
    for (const auto& [name, written] : spec.environment) {
        TRY(attempt.environment[name], resolve_text(written));
    }
    for (const auto& [name, written] : separated.values) {
        TRY(const auto text, bind_text(written, scope));
        attempt.values[name] = with_secrets(text, attempt.secrets);
    }
    for (const auto& [name, written] : separated.environment) {
        TRY(const auto text, bind_text(written, scope));
        attempt.environment[name] = with_secrets(text, attempt.secrets);
    }
    if (phase == Phase::run)
        for (const auto& written : spec.artefacts) {
            TRY(auto path, resolve_text(written));
            attempt.artefacts.push_back(std::move(path));
        }
    return Unit{};
}

Result<Attempt> AttemptBuilder::make_attempt(const Plan& plan, const std::vector<TaskRecord>* records, std::string_view uid,
                                             std::uint32_t task, Phase phase, const json::object* with,
                                             std::vector<std::string>* missing) {
    const auto group = plan.group_of(task);
    const auto& spec = plan.spec.tasks[group];
    const auto host = plan.host_in(group, task);
    Attempt attempt;
    attempt.job = plan.name;
    attempt.task = plan.task_name(task);
    attempt.number = records == nullptr ? 1 : static_cast<int>((*records)[task].attempt);
    attempt.id = fmt::format("{}-{}-{}{}", uid, task, attempt.number, name_of(phase)[0]);
    std::shared_ptr<const Target> at;
    if (host != Plan::none) {
        TRY(at, target(plan.hosts[host]));
        attempt.targets.push_back(*at);
    } else {
        for (const auto one : plan.groups[group].hosts) {
            TRY(const auto found, target(plan.hosts[one]));
            attempt.targets.push_back(*found);
        }
    }
    TRY(std::ignore, fill_in(attempt, plan, records, task, phase, std::move(at), with, missing));
    attempt.timeout = spec.timeout;
    attempt.idempotent = spec.idempotent;
    return attempt;
}

std::string AttemptBuilder::changed_secret(const Attempt& attempt, const std::vector<std::string>& missing,
                                           std::int64_t since) const {
    if (!missing.empty()) return missing.front();
    for (const auto& [name, value] : attempt.secrets) {
        auto of = name.substr(0, name.rfind('.'));
        const auto object = engine_.resources.get(engine_.kind("Secret"), of);
        if (!object.ok() || object->updated_at.time_since_epoch().count() > since) return of;
    }
    return {};
}

} // namespace orrery::jobs
