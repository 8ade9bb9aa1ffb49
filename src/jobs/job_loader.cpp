#include "core/ids.h"
#include "core/json_fields.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/engine_state.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

/// Loads jobs: from the journal, or newly planned.
namespace orrery::jobs {

JobRun::JobRun() = default;
JobRun::~JobRun() = default;

void JobRun::note_change() const {
    ++version_;
    if (notifier_) notifier_->notify_all();
}

std::string JobRun::problem(std::uint32_t task) const {
    if (!at_work) return {};
    const auto found = at_work->running.find(task);
    return found == at_work->running.end() || !found->second->sink ? std::string() : found->second->sink->problem();
}

Task<Unit> JobRun::changed(Context ctx, std::uint64_t& seen) const {
    while (seen == version_) {
        if (!notifier_) notifier_ = std::make_unique<Notifier>(co_await asio::this_coro::executor);
        CO_TRY(std::ignore, co_await notifier_->wait(ctx));
    }
    seen = version_;
    co_return Unit{};
}

std::vector<PlanNode> nodes_of(const resource::Resources& resources, std::vector<std::shared_ptr<const Target>>* as_targets) {
    std::vector<PlanNode> out;
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
            const bool maintenance = resource::Node::from(*object).maintenance;
            out.push_back({object->name, std::move(object->labels), maintenance});
        }
        if (page->next.empty()) break;
        query.after = page->next;
    }
    std::sort(out.begin(), out.end(), [](const PlanNode& a, const PlanNode& b) { return a.name < b.name; });
    return out;
}

std::string task_signature(const TaskSpec& task) {
    return task.run.given() ? sha256_text(task.run.executor + to_json_text(task.run.body)) : std::string();
}

std::shared_ptr<JobRun> Engine::State::make_run(const resource::Object& job, Plan plan, bool live) {
    auto run = std::make_shared<JobRun>();
    run->name = job.name;
    run->uid = text_at(job.status, "uid");
    run->context_id = context_id_of(job.status);
    run->submitted_by = text_at(job.status, "submitted_by");
    run->plan = std::move(plan);
    run->live = live;
    run->at_work = std::make_unique<JobRun::Live>(Journal(run->uid, run->plan.tasks));
    run->limits = live ? limits : std::make_shared<Limits>(1 << 30);
    auto* raw = run.get();
    run->scheduler =
        std::make_unique<Scheduler>(run->plan, *run->limits, context.membership,
                                    [this, raw](std::uint32_t task, Phase phase) { return builder.prepare(*raw, task, phase); });
    for (const auto& task : run->plan.spec.tasks) {
        run->at_work->signatures.push_back(task_signature(task));
        if (!live) continue;
        for (const auto& barrier : task.wait)
            if (barrier.is_dns())
                run->at_work->followed.push_back(context.membership.follow(fmt::format("{} {}", barrier.service, barrier.tag)));
    }
    return run;
}

/// A job without a journal: plans it. The placement is stored with the first cycle.
Result<std::shared_ptr<JobRun>> Engine::State::plan_new(const resource::Object& object, JobSpec spec, const std::string& uid,
                                                        bool live) {
    constexpr std::size_t piece = 512 << 10;
    std::vector<std::shared_ptr<const Target>> targets;
    TRY(auto plan, expand(object.name, std::move(spec), nodes_of(context.resources, live ? &targets : nullptr), context.executors,
                          &context.membership));
    // They are read anyway. Read one by one when tasks need them, they would delay those cycles.
    const std::unordered_set<std::string_view> used(plan.hosts.begin(), plan.hosts.end());
    for (auto& target : targets)
        if (used.contains(target->node.name)) builder.add_target(target);
    plan.digest = plan_digest(object.spec, plan);
    const auto placement = placement_text(plan);
    auto run = make_run(object, std::move(plan), live);
    for (std::size_t at = 0, number = 0; at < placement.size(); at += piece, ++number)
        run->at_work->first_entries.emplace_back(fmt::format("{}{:03}", Journal::plan_prefix(uid), number),
                                                 placement.substr(at, piece));
    run->scheduler->begin(context.moment());
    return run;
}

/// From the journal where there is one, else newly planned.
Result<std::shared_ptr<JobRun>> Engine::State::load(const resource::Object& object, bool live) {
    TRY(auto spec, read_job(object.spec));
    const auto uid = text_at(object.status, "uid");
    if (uid.empty()) return Error{Code::internal, fmt::format("job {} has no id", object.name)};
    std::string placement;
    for (const auto& record : context.store().range(Journal::plan_prefix(uid), 1000).records) placement += record->value;
    if (placement.empty()) return plan_new(object, std::move(spec), uid, live);
    const auto now = context.moment();
    TRY(auto plan, plan_from(object.name, std::move(spec), placement));
    plan.digest = plan_digest(object.spec, plan);
    auto run = make_run(object, std::move(plan), live);
    const auto prefix = Journal::log_prefix(uid);
    for (std::string after;;) {
        const auto page = context.store().range(prefix, 1000, after);
        for (const auto& record : page.records) {
            TRY(std::ignore, run->at_work->journal.replay(*run->scheduler, record->key, record->value));
        }
        if (page.next.empty()) break;
        after = page.next;
    }
    run->scheduler->resume(now, live ? leader_seen : std::nullopt);
    run->at_work->reported = run->scheduler->job().state;
    return run;
}

namespace {

/// Why a submitted job was refused, with each of its errors.
Error refusal_of(const resource::Object& object) {
    Error error{Code::conflict, fmt::format("job {} was refused: {}", object.name, text_at(object.status, "message")),
                fmt::format("delete job {}, correct it and submit it again", object.name)};
    if (const auto* problems = object.status.if_contains("problems"); problems != nullptr && problems->is_array())
        for (const auto& one : problems->get_array())
            if (one.is_object()) error.fields.push_back({text_at(one.get_object(), "path"), text_at(one.get_object(), "message")});
    if (!error.fields.empty()) error.message += fmt::format(" ({}: {})", error.fields.front().path, error.fields.front().message);
    return error;
}

} // namespace

Result<std::shared_ptr<const JobRun>> Engine::find(std::string_view job) const {
    constexpr std::size_t max_cached = 4;
    auto& context = state_->context;
    if (const auto found = context.runs.find(job); found != context.runs.end()) return std::shared_ptr<const JobRun>(found->second);
    TRY(auto object, context.resources.get(context.kind("Job"), job));
    if (text_at(object.status, "state") == "refused") return refusal_of(object);
    auto& cached = state_->cached_runs;
    std::erase_if(cached, [&](const State::CachedRun& one) { return one.name == job && one.modified != object.revision; });
    for (const auto& one : cached)
        if (one.name == job) return one.run;
    TRY(auto run, state_->load(object, false));
    if (cached.size() >= max_cached) cached.pop_front();
    cached.push_back({std::string(job), object.revision, run});
    return std::shared_ptr<const JobRun>(std::move(run));
}

} // namespace orrery::jobs
