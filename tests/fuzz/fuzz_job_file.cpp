// Job files: no input crashes the reader, the planner or the scheduler, or takes long; a refusal has position and reason; a plan
// reads back as the same plan.
#include "core/text.h"
#include "jobs/plan.h"
#include "jobs/simulate.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace orrery;

void demand(bool holds) {
    if (!holds) std::abort();
}

class Anything final : public jobs::Executor {
public:
    explicit Anything(std::string name, TargetType type) : name_(std::move(name)), type_(type) {}
    std::string_view name() const override { return name_; }
    TargetType target_type() const override { return type_; }
    Result<Unit> check(const jobs::json::value&) const override { return Unit{}; }
    Task<jobs::Outcome> start(Context, const jobs::Attempt&, jobs::Output&) override { co_return jobs::Outcome::success(); }
    Task<jobs::Reattached> reattach(Context, const jobs::Attempt&, jobs::Offsets, jobs::Output&) override {
        co_return jobs::Reattached{};
    }
    Task<Unit> cancel(Context, const jobs::Attempt&) override { co_return Unit{}; }
    Task<Unit> clean_up(Context, const jobs::Attempt&) override { co_return Unit{}; }
    Task<jobs::Preview> plan(Context, const jobs::Attempt&) override { co_return jobs::Preview{}; }

private:
    std::string name_;
    TargetType type_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Anything ssh("ssh", jobs::Executor::TargetType::node), local("local", jobs::Executor::TargetType::server);
    static const jobs::Executors executors = [] {
        jobs::Executors all;
        all.add(ssh);
        all.add(local);
        return all;
    }();
    static const std::vector<jobs::PlanNode> machines = {{"a1", {{"role", "a"}}},
                                                         {"a2", {{"role", "a"}}},
                                                         {"a3", {{"role", "a"}}},
                                                         {"b1", {{"role", "b"}}},
                                                         {"b2", {{"role", "b"}}}};
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto documents = parse_yaml(text);
    if (!documents.ok()) return 0;
    for (const auto& document : *documents) {
        if (!document.value.is_object()) continue;
        const auto* spec = document.value.get_object().if_contains("spec");
        const auto& object = spec != nullptr && spec->is_object() ? spec->get_object() : document.value.get_object();
        auto job = jobs::read_job(object);
        if (!job.ok()) {
            demand(!job.error().fields.empty());
            for (const auto& field : job.error().fields) demand(!field.path.empty() && !field.message.empty());
            continue;
        }
        auto plan = jobs::expand("fuzzed", *job, machines, executors, nullptr);
        if (!plan.ok()) {
            demand(!plan.error().fields.empty());
            continue;
        }
        const auto placement = jobs::placement_text(*plan);
        const auto again = jobs::plan_from("fuzzed", *job, placement);
        demand(again.ok() && jobs::placement_text(*again) == placement && again->tasks == plan->tasks);
        if (plan->tasks > 300) continue;
        jobs::SimulateOptions options;
        options.takes.assign(plan->groups.size(), std::chrono::seconds(1));
        const auto simulation = jobs::simulate(*plan, options, nullptr);
        // Tasks never begin more often than they are tried, and each ends where it can.
        demand(simulation.end != jobs::JobState::planned);
        if (simulation.end == jobs::JobState::succeeded) demand(simulation.stuck.empty());
    }
    return 0;
}
