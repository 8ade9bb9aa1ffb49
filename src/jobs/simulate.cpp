#include "jobs/simulate.h"

#include "jobs/scheduler/scheduler.h"
#include "jobs/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <queue>

namespace orrery::jobs {

namespace {

/// The current catalog, and the instances that the plan adds.
class SimulatedMembership final : public Membership {
public:
    explicit SimulatedMembership(const Membership* now) : now_(now) {}
    void pass(const ServiceRef& ref, const std::string& node) {
        Member member;
        member.node = member.id = member.address = node;
        member.state = MemberState::passing;
        member.checked = true;
        added_[ref.service].emplace_back(ref.tag, std::move(member));
    }
    Result<Members> members(std::string_view service, std::string_view tag) const override {
        Members out;
        if (now_ != nullptr)
            if (auto there = now_->members(service, tag); there.ok()) out = std::move(*there);
        // After a restart stored results are not confirmed yet; the prediction assumes that the first checks confirm them.
        for (auto& member : out.all) member.evidence = Evidence::confirmed;
        if (const auto found = added_.find(service); found != added_.end())
            for (const auto& [of, member] : found->second) {
                if (!tag.empty() && of != tag) continue;
                const auto same =
                    std::find_if(out.all.begin(), out.all.end(), [&](const Member& one) { return one.node == member.node; });
                if (same == out.all.end())
                    out.all.push_back(member);
                else
                    same->state = MemberState::passing;
            }
        return out;
    }
    std::shared_ptr<void> subscribe(std::function<void(const std::string&)>) override { return {}; }
    std::shared_ptr<void> follow(std::string_view) override { return {}; }

private:
    const Membership* now_;
    std::map<std::string, std::vector<std::pair<std::string, Member>>, std::less<>> added_;
};

struct SimulatedEvent {
    SteadyTime at;
    std::uint64_t order;
    std::uint32_t task;
    bool service; ///< the task's services pass; else: the task ends
    bool operator>(const SimulatedEvent& other) const { return at != other.at ? at > other.at : order > other.order; }
};

struct SimulatedRun {
    const Plan& plan;
    std::vector<Simulation::Span> spans;
    std::vector<std::vector<std::uint32_t>> by_host;

    /// The last thing that had to happen before the task could start.
    std::optional<Simulation::Step> cause(std::uint32_t task) const {
        const auto g = plan.group_of(task);
        const auto host = plan.host_in(g, task);
        std::optional<Simulation::Step> best;
        const auto offer = [&](std::uint32_t other, std::string message) {
            if (other == task || spans[other].end > spans[task].start || spans[other].end <= Duration::zero()) return;
            if (!best || spans[other].end > best->span.end) best = Simulation::Step{other, spans[other], std::move(message)};
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
        const auto& of = plan.groups[g];
        const auto wave = std::upper_bound(of.waves.begin(), of.waves.end(), task - of.first) - of.waves.begin();
        if (wave > 0 && !of.waves.empty()) { // it started after the wave before it, which ended later than the tasks before it
            for (std::uint32_t i = wave > 1 ? of.waves[static_cast<std::size_t>(wave) - 2] : 0;
                 i < of.waves[static_cast<std::size_t>(wave) - 1]; ++i) {
                const auto end = of.through ? plan.task_on(*of.through, of.hosts[i]) : of.first + i;
                if (end != Plan::none) offer(end, fmt::format("wave {} ended", wave));
            }
        }
        if (host != Plan::none)
            for (const auto other : by_host[host])
                offer(other, fmt::format("{} was busy with {}", plan.hosts[host], plan.task_name(other)));
        return best;
    }
};

/// Runs the scheduler in simulated time and records what it does.
class Simulator {
public:
    Simulator(const Plan& plan, const SimulateOptions& options, const Membership* now)
        : plan_(plan),
          options_(options),
          limits_(options.slots),
          catalog_(now),
          scheduler_(plan, limits_, catalog_, [this](std::uint32_t task, Phase) { return digest(task); }),
          run_{plan, std::vector<Simulation::Span>(plan.tasks), std::vector<std::vector<std::uint32_t>>(plan.hosts.size())} {
        limits_.set_rules(options.rules);
        out_.groups.resize(plan.groups.size(), {Duration::max(), Duration::zero()});
    }

    Simulation run() {
        scheduler_.begin(moment());
        if (scheduler_.job().state == JobState::planned) std::ignore = scheduler_.approve({}, moment());
        do {
            decide();
            start_tasks();
        } while (advance());
        conclude();
        return std::move(out_);
    }

private:
    static constexpr SteadyTime begin_{std::chrono::hours(1)};

    Moment moment() const { return {at_, std::chrono::duration_cast<std::chrono::milliseconds>(at_.time_since_epoch()).count()}; }
    Result<std::uint64_t> digest(std::uint32_t task) const {
        const auto& spec = plan_.spec.tasks[plan_.group_of(task)];
        if (spec.rerun_on.empty()) return std::uint64_t{1};
        Scope scope;
        scope.plan = &plan_;
        scope.membership = &catalog_;
        const auto bound = bind(json::value(spec.with), scope);
        if (!bound.ok()) return std::uint64_t{1};
        const auto text = digest_of(*bound);
        std::uint64_t number = 0;
        std::from_chars(text.data(), text.data() + text.size(), number, 16);
        return number;
    }

    void decide() {
        scheduler_.advance(moment());
        scheduler_.dispatch(moment());
        if (scheduler_.counts().of(TaskState::waiting) > 0) // a simulated operator approves at once
            for (std::uint32_t task = 0; task < plan_.tasks; ++task)
                if (const auto& record = scheduler_.record(task); plan_.spec.tasks[plan_.group_of(task)].approve &&
                                                                  record.waits == Waits::approval &&
                                                                  record.state == TaskState::waiting)
                    std::ignore = scheduler_.approve(task, moment());
        scheduler_.dispatch(moment());
        std::ignore = scheduler_.take_dirty();
    }

    void start_tasks() {
        for (const auto& start : scheduler_.take_starts()) {
            const auto g = plan_.group_of(start.task);
            // A check is assumed to fail at once, and a verification to succeed at once.
            const auto takes = start.phase == Phase::run ? options_.takes.at(g) : Duration::zero();
            queue_.push({at_ + takes, order_++, start.task, false});
            auto& span = run_.spans[start.task];
            span.start = at_ - begin_;
            out_.groups[g].start = std::min(out_.groups[g].start, span.start);
            out_.max_running = std::max(out_.max_running, ++running_);
            ++out_.attempts;
        }
        for (const auto& kill : scheduler_.take_kills())
            if (scheduler_.record(kill.task).state == TaskState::running)
                scheduler_.finished(kill.task, Outcome::failure(ErrorClass::timeout, "too long"), moment());
    }

    /// Goes to the next event or timer. False where none is left, or the job has ended.
    bool advance() {
        if (is_terminal(scheduler_.job().state)) return false;
        const auto timer = scheduler_.next_timer();
        if (queue_.empty() && (scheduler_.job().state == JobState::converged || !timer)) return false;
        if (queue_.empty() || (timer && *timer < queue_.top().at)) {
            if (*timer - begin_ > std::chrono::hours(24 * 366)) return false;
            at_ = std::max(at_, *timer);
            return true;
        }
        at_ = std::max(at_, queue_.top().at);
        while (!queue_.empty() && queue_.top().at <= at_) {
            const auto event = queue_.top();
            queue_.pop();
            if (event.service)
                pass_services(event.task);
            else
                end_task(event.task);
        }
        return true;
    }

    void pass_services(std::uint32_t task) {
        const auto g = plan_.group_of(task);
        const auto host = plan_.host_in(g, task);
        for (const auto& ref : plan_.spec.tasks[g].provides) {
            if (host != Plan::none)
                catalog_.pass(ref, plan_.hosts[host]);
            else if (plan_.groups[g].hosts.empty())
                catalog_.pass(ref, fmt::format("(server: {})", plan_.spec.tasks[g].name));
            for (const auto one : plan_.groups[g].hosts)
                if (host == Plan::none) catalog_.pass(ref, plan_.hosts[one]);
            scheduler_.membership_changed(ref.service, moment());
        }
    }

    void end_task(std::uint32_t task) {
        --running_;
        const auto& record = scheduler_.record(task);
        if (record.state != TaskState::running) return;
        const auto g = plan_.group_of(task);
        const auto host = plan_.host_in(g, task);
        auto& span = run_.spans[task];
        span.end = at_ - begin_;
        out_.groups[g].end = std::max(out_.groups[g].end, span.end);
        scheduler_.finished(task, record.phase == Phase::check ? Outcome::failure(ErrorClass::failed, "") : Outcome::success(),
                            moment());
        if (record.state != TaskState::succeeded) return;
        if (!plan_.spec.tasks[g].provides.empty()) queue_.push({at_ + options_.latency, order_++, task, true});
        if (host != Plan::none) run_.by_host[host].push_back(task);
    }

    void conclude() {
        constexpr std::size_t max_stuck = 20;
        out_.end = scheduler_.job().state;
        std::uint32_t last = Plan::none;
        for (std::uint32_t task = 0; task < plan_.tasks; ++task) {
            const auto& record = scheduler_.record(task);
            if (!is_terminal(record.state) && out_.stuck.size() < max_stuck)
                out_.stuck.push_back(fmt::format("{} is {}{}{}", plan_.task_name(task), name_of(record.state),
                                                 record.state == TaskState::ready ? ": " : "",
                                                 record.state == TaskState::ready ? scheduler_.blocked_reason(task) : ""));
            if (last == Plan::none || run_.spans[task].end > run_.spans[last].end) last = task;
        }
        for (auto& group : out_.groups)
            if (group.start == Duration::max()) group.start = Duration::zero();
        if (last == Plan::none) return;
        out_.makespan = run_.spans[last].end;
        trace_critical_path(last);
    }

    void trace_critical_path(std::uint32_t last) {
        constexpr int max_steps = 1000;
        Simulation::Step step{last, run_.spans[last], {}};
        for (int steps = 0; steps < max_steps; ++steps) {
            auto before = run_.cause(step.task);
            if (before) step.message = before->message;
            out_.critical_path.push_back(step);
            if (!before) break;
            step = *before;
            step.message.clear();
        }
        std::reverse(out_.critical_path.begin(), out_.critical_path.end());
    }

    const Plan& plan_;
    const SimulateOptions& options_;
    Limits limits_;
    SimulatedMembership catalog_;
    Scheduler scheduler_;
    SimulatedRun run_;
    Simulation out_;
    std::priority_queue<SimulatedEvent, std::vector<SimulatedEvent>, std::greater<>> queue_;
    std::uint64_t order_ = 0;
    std::size_t running_ = 0;
    SteadyTime at_ = begin_;
};

} // namespace

Simulation simulate(const Plan& plan, const SimulateOptions& options, const Membership* now) {
    return Simulator(plan, options, now).run();
}

} // namespace orrery::jobs
