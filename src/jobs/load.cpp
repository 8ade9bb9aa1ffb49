#include "core/ids.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/engine_state.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

/// Jobs as they are read: from the store, and from what a person is about to submit.
namespace orrery::jobs {

JobRun::JobRun() = default;
JobRun::~JobRun() = default;

void JobRun::note_change() const {
    ++version_;
    if (notifier_) notifier_->notify_all();
}

std::string JobRun::trouble(std::uint32_t task) const {
    if (!at_work) return {};
    const auto found = at_work->running.find(task);
    return found == at_work->running.end() || !found->second->sink ? std::string() : found->second->sink->trouble();
}

Task<Unit> JobRun::changed(Context ctx, std::uint64_t& seen) const {
    while (seen == version_) {
        if (!notifier_) notifier_ = std::make_unique<Notifier>(co_await asio::this_coro::executor);
        CO_TRY(std::ignore, co_await notifier_->wait(ctx));
    }
    seen = version_;
    co_return Unit{};
}

RollingRule rolling_rule(const json::object& spec) {
    RollingRule rule;
    if (const auto* limit = spec.if_contains("limit"); limit != nullptr && limit->is_int64())
        rule.limit = static_cast<int>(limit->get_int64());
    if (const auto* after = spec.if_contains("after"); after != nullptr && after->is_array())
        for (const auto& one : after->get_array())
            if (one.is_string()) rule.after.emplace_back(std::string_view(one.get_string()));
    if (const auto* paused = spec.if_contains("paused"); paused != nullptr && paused->is_bool()) rule.paused = paused->get_bool();
    rule.reason = text_in(spec, "reason");
    return rule;
}

std::map<std::string, RollingRule> rolling_rules_of(const resource::Resources& resources) {
    std::map<std::string, RollingRule> out;
    resource::ListQuery query;
    query.limit = 5000;
    for (;;) {
        auto page = resources.list(*resources.registry().find("RollingRule"), query);
        if (!page.ok()) return out;
        for (const auto& record : page->records)
            if (auto object = resource::from_stored(*record); object.ok()) out[object->name] = rolling_rule(object->spec);
        if (page->next.empty()) return out;
        query.after = page->next;
    }
}

std::vector<Machine> machines_of(const resource::Resources& resources, std::vector<std::shared_ptr<const Target>>* as_targets) {
    std::vector<Machine> out;
    const auto& nodes = *resources.registry().find("Node");
    resource::ListQuery query;
    query.limit = 5000;
    for (;;) {
        auto page = resources.list(nodes, query);
        if (!page.ok()) return out;
        for (const auto& record : page->records) {
            auto object = resource::from_stored(*record);
            if (!object.ok()) continue;
            if (as_targets != nullptr)
                as_targets->push_back(std::make_shared<Target>(Target{resource::Node::from(*object), object->labels}));
            out.push_back({object->name, std::move(object->labels)});
        }
        if (page->next.empty()) break;
        query.after = page->next;
    }
    std::sort(out.begin(), out.end(), [](const Machine& a, const Machine& b) { return a.name < b.name; });
    return out;
}

std::shared_ptr<JobRun> Engine::State::make_run(std::string name, std::string uid, Plan plan, bool live) {
    auto run = std::make_shared<JobRun>();
    run->name = std::move(name);
    run->uid = std::move(uid);
    run->plan = std::move(plan);
    run->live = live;
    run->at_work = std::make_unique<JobRun::Live>(Journal(run->uid, run->plan.tasks));
    run->limits = live ? limits : std::make_shared<Limits>(1 << 30);
    auto* self = this;
    auto* raw = run.get();
    run->scheduler = std::make_unique<Scheduler>(run->plan, *run->limits, membership, [self, raw](std::uint32_t task, Phase phase) {
        return self->prepare(*raw, task, phase);
    });
    for (const auto& task : run->plan.spec.tasks)
        run->at_work->signatures.push_back(task.run.given() ? sha256_text(task.run.executor + to_json_text(task.run.body))
                                                            : std::string());
    return run;
}

/// From the journal where there is one, else newly planned.
Result<std::shared_ptr<JobRun>> Engine::State::load(const resource::Object& object, bool live) {
    TRY(auto spec, read_job(object.spec));
    const auto uid = text_in(object.status, "uid");
    if (uid.empty()) return Error{Code::internal, fmt::format("job {} has no id", object.name)};
    std::string placement;
    for (const auto& record : store().range(Journal::plan_prefix(uid), 1000).records) placement += record->value;
    const auto now = moment();
    if (placement.empty()) {
        std::vector<std::shared_ptr<const Target>> read;
        TRY(auto plan,
            expand(object.name, std::move(spec), machines_of(resources, live ? &read : nullptr), executors, &membership));
        // They are read anyway; read one by one as tasks come to them, they would hold up the rounds that do.
        const std::unordered_set<std::string_view> used(plan.hosts.begin(), plan.hosts.end());
        for (auto& one : read)
            if (used.contains(one->node.name)) targets.try_emplace(one->node.name, one);
        plan.digest = plan_digest(object.spec, plan);
        placement = placement_text(plan);
        auto run = make_run(object.name, uid, std::move(plan), live);
        constexpr std::size_t piece = 512 << 10;
        for (std::size_t at = 0, number = 0; at < placement.size(); at += piece, ++number)
            run->at_work->first_entries.emplace_back(fmt::format("{}{:03}", Journal::plan_prefix(uid), number),
                                                     placement.substr(at, piece));
        run->scheduler->begin(now);
        return run;
    }
    TRY(auto plan, plan_from(object.name, std::move(spec), placement));
    plan.digest = plan_digest(object.spec, plan);
    auto run = make_run(object.name, uid, std::move(plan), live);
    const auto prefix = Journal::log_prefix(uid);
    for (std::string after;;) {
        const auto page = store().range(prefix, 1000, after);
        for (const auto& record : page.records) {
            TRY(std::ignore, run->at_work->journal.replay(*run->scheduler, record->key, record->value));
        }
        if (page.next.empty()) break;
        after = page.next;
    }
    run->scheduler->resume(now);
    run->at_work->reported = run->scheduler->head().state;
    return run;
}

Result<std::shared_ptr<const JobRun>> Engine::look(std::string_view job) const {
    if (const auto found = state_->runs.find(job); found != state_->runs.end()) return std::shared_ptr<const JobRun>(found->second);
    TRY(auto object, state_->resources.get(state_->kind("Job"), job));
    if (text_in(object.status, "state") == "refused")
        return Error{Code::conflict, fmt::format("job {} was refused: {}", job, text_in(object.status, "words"))};
    auto& kept = state_->looked_at;
    std::erase_if(kept, [&](const State::LookedAt& one) { return one.name == job && one.modified != object.revision; });
    for (const auto& one : kept)
        if (one.name == job) return one.run;
    TRY(auto run, state_->load(object, false));
    constexpr std::size_t most_kept = 4;
    if (kept.size() >= most_kept) kept.pop_front();
    kept.push_back({std::string(job), object.revision, run});
    return std::shared_ptr<const JobRun>(std::move(run));
}

Result<Plan> Engine::plan(std::string name, const json::object& spec) const {
    TRY(auto read, read_job(spec));
    const auto& secrets = state_->kind("Secret");
    TRY(auto made, expand(std::move(name), std::move(read), machines_of(state_->resources), state_->executors, &state_->membership,
                          [&](const std::string& secret) { return state_->resources.exists(secrets, secret); }));
    made.digest = plan_digest(spec, made);
    return made;
}

std::vector<std::optional<Duration>> Engine::history(const Plan& plan) const {
    std::vector<std::optional<Duration>> out;
    for (const auto& task : plan.spec.tasks) {
        out.emplace_back();
        if (!task.run.given()) {
            out.back() = Duration::zero();
            continue;
        }
        const auto record = state_->store().find("jobs.history/" + sha256_text(task.run.executor + to_json_text(task.run.body)));
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
    out.slots = state_->options.slots;
    out.rules = rolling_rules_of(state_->resources);
    for (const auto& known : history(plan)) out.takes.push_back(known.value_or(unknown));
    return out;
}

Result<json::value> Engine::values_now(const Plan& plan, std::uint32_t task) const {
    const auto group = plan.group_of(task);
    std::shared_ptr<const Target> at;
    if (const auto host = plan.host_in(group, task); host != Plan::none) {
        TRY(at, state_->target(plan.hosts[host]));
    }
    return bind(json::value(plan.spec.tasks[group].with), state_->scope_for(plan, nullptr, task, at));
}

Task<Preview> Engine::preview(Context ctx, const Plan& plan, std::uint32_t task) {
    auto state = state_;
    const auto& run = plan.spec.tasks[plan.group_of(task)].run;
    auto* executor = state->executors.find(run.executor);
    if (executor == nullptr) co_return Error{Code::unsupported, fmt::format("{} runs nothing", plan.task_name(task))};
    CO_TRY(auto attempt, state->make_attempt(plan, nullptr, "plan-" + random_id(), task, Phase::run, nullptr));
    const Masker masker(attempt.secrets);
    auto preview = co_await executor->plan(ctx, std::move(attempt));
    if (!preview.ok()) {
        auto error = std::move(preview).error();
        error.message = masker.mask_cut(error.message);
        co_return error;
    }
    preview->words = masker.mask_cut(preview->words);
    for (auto& difference : preview->differences) {
        difference.what = masker.mask_cut(difference.what);
        difference.before = masker.mask_cut(difference.before);
        difference.after = masker.mask_cut(difference.after);
    }
    co_return preview;
}

Task<Preview> Engine::preview(Context ctx, std::shared_ptr<const JobRun> run, std::uint32_t task) {
    co_return co_await preview(std::move(ctx), run->plan, task);
}

// --- Kinds ---

resource::Kind job_kind(const Executors& executors, const Membership& membership) {
    using namespace resource;
    Kind job("Job", "jobs", "A graph of tasks over machines, run once, remembered for ever.");
    job.spec(text("description", "What it is for.").format(Format::one_line).between(0, 1024))
        .spec(
            any("tasks",
                "The tasks: name, on, after, wait, run, with, check, verify, undo, retries, timeout, lock, slots, batch, rerun_on, "
                "approve, provides...")
                .required())
        .spec(any("limits", "slots, per_host, per_role."))
        .spec(any("done", "What must hold for the job to be done: services and how many."))
        .spec(boolean("approve", "Nothing begins before the plan is approved by its digest."))
        .status(text("uid", "Its id."))
        .status(text("state", "planned, running, converged, succeeded, failed, cancelling, cancelled or refused."))
        .status(text("digest", "Of its plan."))
        .status(integer("machines", "How many it touches."))
        .status(any("tasks", "How many are in which state."))
        .status(text("progress", "Tasks that are over, of all."))
        .status(boolean("paused", "By an operator."))
        .status(boolean("cleaned", "It is over, and nothing of its attempts is left on machines that could be reached."))
        .status(text("words", "Why it is so."))
        .status(any("problems", "Why it was refused."))
        .status(time("began_at", "When."))
        .status(time("ended_at", "When."))
        .column("NAME", "name")
        .column("STATE", "status.state")
        .column("PROGRESS", "status.progress")
        .column("MACHINES", "status.machines")
        .column("WORDS", "status.words")
        .column("AGE", "age")
        .wide_column("DIGEST", "status.digest")
        .wide_column("DESCRIPTION", "spec.description")
        .also_called({"jo"})
        .example(R"(kind: Job
name: ntp
spec:
  description: time on all machines
  tasks:
    - name: install
      on: {labels: role}
      run: apt-get install -y chrony
    - name: server
      on: time
      after: install
      run: systemctl enable --now chrony
      provides: ntp
    - name: clients
      on: compute
      wait: {service: ntp, count: 2, deadline: 10m}
      with: {servers: "${service.ntp.addresses}"}
      run: set-ntp-servers ${with.servers}
)");
    job.prepare([&executors, &membership](Context ctx, Draft& draft) -> Task<Unit> {
        if (draft.before != nullptr) {
            if (draft.before->spec != draft.after.spec)
                co_return Error{Code::conflict, fmt::format("job {} was submitted already and cannot change", draft.after.name),
                                "submit it under another name, or delete it when it is over"};
            co_return Unit{};
        }
        CO_TRY(auto spec, read_job(draft.after.spec));
        std::function<bool(const std::string&)> secret_exists;
        std::vector<Machine> machines;
        if (draft.resources != nullptr) {
            const auto* resources = draft.resources;
            secret_exists = [resources](const std::string& name) {
                return resources->exists(*resources->registry().find("Secret"), name);
            };
            machines = machines_of(*resources);
        }
        CO_TRY(const auto plan, expand(draft.after.name, std::move(spec), machines, executors, &membership, secret_exists));
        draft.after.status = json::object{{"uid", random_id()},
                                          {"state", "planned"},
                                          {"digest", plan_digest(draft.after.spec, plan)},
                                          {"machines", plan.hosts.size()},
                                          {"tasks", json::object{{"total", plan.tasks}, {"pending", plan.tasks}}},
                                          {"progress", fmt::format("0/{}", plan.tasks)}};
        co_return Unit{};
    });
    job.before_remove([](Removal& removal) -> Result<Unit> {
        const auto state = text_in(removal.object.status, "state");
        if (state == "succeeded" || state == "failed" || state == "cancelled" || state == "refused") return Unit{};
        return Error{Code::conflict, fmt::format("job {} is {}", removal.object.name, state), "cancel it first"};
    });
    return job;
}

resource::Kind rolling_rule_kind() {
    using namespace resource;
    Kind rule("RollingRule", "rollingrules",
              "How many machines of a role may be changed at once, by all jobs together. Named after the role; \"default\" is for "
              "roles without one.");
    rule.spec(integer("limit", "Machines at once. 0: never.").between(0, 100'000).required())
        .spec(list("after", "Roles that must be through first, in the same job.", text("role", "A role.").between(1, 128)))
        .spec(boolean("paused", "An operator's pause: nothing else sets or clears it.").otherwise(false))
        .spec(text("reason", "Why, for colleagues.").format(Format::one_line).between(0, 256))
        .column("NAME", "name")
        .column("LIMIT", "spec.limit")
        .column("AFTER", "spec.after")
        .column("PAUSED", "spec.paused")
        .column("AGE", "age")
        .example(R"(kind: RollingRule
name: compute
spec:
  limit: 3
  after: [controller]
)");
    return rule;
}

} // namespace orrery::jobs
