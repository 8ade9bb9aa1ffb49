#include "jobs/simulate.h"

#include "jobs/scheduler.h"
#include "jobs/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <queue>

namespace orrery::jobs {

namespace {

/// The catalog as it is, and what the plan adds to it as it goes.
class ImaginedMembership final : public Membership {
public:
    explicit ImaginedMembership(const Membership* now) : now_(now) {}
    void pass(const ServiceRef& ref, const std::string& node) {
        added_[ref.service].push_back({ref.tag, {node, node, 0, MemberState::passing, {}}});
    }
    Result<std::vector<Member>> members(std::string_view service, std::string_view tag) const override {
        std::vector<Member> out;
        if (now_ != nullptr)
            if (auto there = now_->members(service, tag); there.ok()) out = std::move(*there);
        if (const auto found = added_.find(service); found != added_.end())
            for (const auto& [of, member] : found->second) {
                if (!tag.empty() && of != tag) continue;
                const auto same = std::find_if(out.begin(), out.end(), [&](const Member& one) { return one.node == member.node; });
                if (same == out.end())
                    out.push_back(member);
                else
                    same->state = MemberState::passing;
            }
        return out;
    }
    std::shared_ptr<void> watch(std::function<void(std::string_view)>) override { return {}; }

private:
    const Membership* now_;
    std::map<std::string, std::vector<std::pair<std::string, Member>>, std::less<>> added_;
};

struct Happening {
    SteadyTime at;
    std::uint64_t order;
    std::uint32_t task;
    bool service; ///< the task's services pass; else: the task ends
    bool operator>(const Happening& other) const { return at != other.at ? at > other.at : order > other.order; }
};

struct Played {
    const Plan& plan;
    std::vector<Simulation::Span> spans;
    std::vector<std::vector<std::uint32_t>> by_host;

    /// What came last before this one could begin.
    std::optional<Simulation::Step> cause(std::uint32_t task) const {
        const auto g = plan.group_of(task);
        const auto host = plan.host_in(g, task);
        std::optional<Simulation::Step> best;
        const auto offer = [&](std::uint32_t other, std::string because) {
            if (other == task || spans[other].end > spans[task].start || spans[other].end <= Duration::zero()) return;
            if (!best || spans[other].end > best->span.end) best = Simulation::Step{other, spans[other], std::move(because)};
        };
        const auto last_of = [&](std::uint32_t group) {
            auto last = plan.groups[group].first;
            for (std::uint32_t i = 1; i < plan.groups[group].count; ++i)
                if (spans[plan.groups[group].first + i].end > spans[last].end) last = plan.groups[group].first + i;
            return last;
        };
        for (const auto& edge : plan.groups[g].after) {
            const auto other = edge.same_host ? plan.task_on(edge.group, host) : last_of(edge.group);
            if (other != Plan::none) offer(other, fmt::format("after {}", plan.task_name(other)));
        }
        for (const auto& barrier : plan.spec.tasks[g].wait)
            for (std::uint32_t other = 0; other < plan.groups.size(); ++other)
                for (const auto& offered : plan.spec.tasks[other].provides)
                    if (offered.service == barrier.service && (barrier.tag.empty() || offered.tag == barrier.tag))
                        for (std::uint32_t i = 0; i < plan.groups[other].count; ++i)
                            offer(plan.groups[other].first + i, barrier.text());
        if (host != Plan::none)
            for (const auto other : by_host[host])
                offer(other, fmt::format("{} was busy with {}", plan.hosts[host], plan.task_name(other)));
        return best;
    }
};

} // namespace

Simulation simulate(const Plan& plan, const SimulateOptions& options, const Membership* now) {
    Limits limits(options.slots);
    limits.set_rules(options.rules);
    ImaginedMembership catalog(now);
    const SteadyTime begin{std::chrono::hours(1)};
    Scheduler scheduler(plan, limits, catalog, [&](std::uint32_t task, Phase) -> Result<std::uint64_t> {
        const auto& spec = plan.spec.tasks[plan.group_of(task)];
        if (spec.rerun_on.empty()) return std::uint64_t{1};
        Scope scope;
        scope.plan = &plan;
        scope.membership = &catalog;
        auto bound = bind(json::value(spec.with), scope);
        if (!bound.ok()) return std::uint64_t{1};
        const auto digest = digest_of(*bound);
        std::uint64_t number = 0;
        std::from_chars(digest.data(), digest.data() + digest.size(), number, 16);
        return number;
    });
    const auto moment = [&](SteadyTime at) {
        return Moment{at, std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count()};
    };
    Simulation out;
    out.groups.resize(plan.groups.size(), {Duration::max(), Duration::zero()});
    Played played{plan, std::vector<Simulation::Span>(plan.tasks), std::vector<std::vector<std::uint32_t>>(plan.hosts.size())};
    std::priority_queue<Happening, std::vector<Happening>, std::greater<>> queue;
    std::uint64_t order = 0;
    std::size_t running = 0;
    auto at = begin;
    scheduler.begin(moment(at));
    if (scheduler.head().state == JobState::planned) std::ignore = scheduler.approve({}, moment(at));
    for (;;) {
        scheduler.advance(moment(at));
        scheduler.dispatch(moment(at));
        if (scheduler.counts().of(TaskState::waiting) > 0) // an imagined operator approves at once
            for (std::uint32_t task = 0; task < plan.tasks; ++task)
                if (plan.spec.tasks[plan.group_of(task)].approve && scheduler.row(task).waits == Waits::approval &&
                    scheduler.row(task).state == TaskState::waiting)
                    std::ignore = scheduler.approve(task, moment(at));
        scheduler.dispatch(moment(at));
        std::ignore = scheduler.take_dirty();
        for (const auto& start : scheduler.take_starts()) {
            const auto g = plan.group_of(start.task);
            // A check is imagined to say no at once, and a verification to say yes.
            const auto takes = start.phase == Phase::run ? options.takes.at(g) : Duration::zero();
            queue.push({at + takes, order++, start.task, false});
            auto& span = played.spans[start.task];
            span.start = at - begin;
            out.groups[g].start = std::min(out.groups[g].start, span.start);
            out.most_running = std::max(out.most_running, ++running);
            ++out.attempts;
        }
        for (const auto& kill : scheduler.take_kills())
            if (scheduler.row(kill.task).state == TaskState::running)
                scheduler.finished(kill.task, Outcome::failure(ErrorClass::timeout, "too long"), moment(at));
        if (is_over(scheduler.head().state)) break;
        const auto timer = scheduler.next_timer();
        if (queue.empty() && (scheduler.head().state == JobState::converged || !timer)) break;
        if (queue.empty() || (timer && *timer < queue.top().at)) {
            if (*timer - begin > std::chrono::hours(24 * 366)) break;
            at = std::max(at, *timer);
            continue;
        }
        at = std::max(at, queue.top().at);
        while (!queue.empty() && queue.top().at <= at) {
            const auto happened = queue.top();
            queue.pop();
            const auto g = plan.group_of(happened.task);
            const auto host = plan.host_in(g, happened.task);
            if (happened.service) {
                for (const auto& ref : plan.spec.tasks[g].provides) {
                    if (host != Plan::none)
                        catalog.pass(ref, plan.hosts[host]);
                    else if (plan.groups[g].hosts.empty())
                        catalog.pass(ref, fmt::format("(server: {})", plan.spec.tasks[g].name));
                    for (const auto one : plan.groups[g].hosts)
                        if (host == Plan::none) catalog.pass(ref, plan.hosts[one]);
                    scheduler.membership_changed(ref.service, moment(at));
                }
                continue;
            }
            --running;
            const auto& row = scheduler.row(happened.task);
            if (row.state != TaskState::running) continue;
            const bool checked = row.phase == Phase::check;
            auto& span = played.spans[happened.task];
            span.end = at - begin;
            out.groups[g].end = std::max(out.groups[g].end, span.end);
            scheduler.finished(happened.task, checked ? Outcome::failure(ErrorClass::failed, "") : Outcome::success(), moment(at));
            if (scheduler.row(happened.task).state == TaskState::succeeded) {
                if (!plan.spec.tasks[g].provides.empty()) queue.push({at + options.latency, order++, happened.task, true});
                if (host != Plan::none) played.by_host[host].push_back(happened.task);
            }
        }
    }
    out.end = scheduler.head().state;
    std::uint32_t last = Plan::none;
    for (std::uint32_t task = 0; task < plan.tasks; ++task) {
        const auto& row = scheduler.row(task);
        if (!is_over(row.state) && out.stuck.size() < 20)
            out.stuck.push_back(fmt::format("{} is {}{}{}", plan.task_name(task), name_of(row.state),
                                            row.state == TaskState::ready ? ": " : "",
                                            row.state == TaskState::ready ? scheduler.why_not_begun(task) : ""));
        if (last == Plan::none || played.spans[task].end > played.spans[last].end) last = task;
    }
    for (auto& group : out.groups)
        if (group.start == Duration::max()) group.start = Duration::zero();
    if (last == Plan::none) return out;
    out.makespan = played.spans[last].end;
    Simulation::Step step{last, played.spans[last], {}};
    for (int steps = 0; steps < 1000; ++steps) {
        auto before = played.cause(step.task);
        if (before) step.because = before->because;
        out.critical_path.push_back(step);
        if (!before) break;
        step = *before;
        step.because.clear();
    }
    std::reverse(out.critical_path.begin(), out.critical_path.end());
    return out;
}

} // namespace orrery::jobs
