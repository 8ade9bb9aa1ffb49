#include "jobs/plan_barriers.h"

#include "jobs/planned_membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

namespace orrery::jobs {

namespace {

std::string shown(const BarrierSpec& barrier) {
    return barrier.tag.empty() ? barrier.service : fmt::format("{}:{}", barrier.service, barrier.tag);
}

class BarrierCheck {
public:
    BarrierCheck(Plan& plan, const Membership* membership) : plan_(plan), membership_(membership) {}

    std::vector<FieldError> run(bool ordered) {
        count();
        const std::vector<bool> all(plan_.groups.size(), true);
        std::vector<std::vector<bool>> passed(plan_.groups.size()); // by deadline, or named already
        for (std::size_t i = 0; i < plan_.groups.size(); ++i)
            for (std::size_t k = 0; k < waits(i).size(); ++k) {
                const auto& barrier = waits(i)[k];
                const bool lapses = barrier.on_timeout == OnTimeout::go_on && barrier.deadline;
                const bool hopeless = !lapses && !can_open(barrier, plan_.groups[i].wanted[k], all);
                if (hopeless) wrong(at(i, k), closed_reason(barrier, plan_.groups[i].wanted[k]));
                passed[i].push_back(lapses || hopeless);
            }
        for (std::size_t k = 0; k < plan_.spec.done.size(); ++k)
            if (!can_open(plan_.spec.done[k], plan_.done_wanted[k], all))
                wrong(fmt::format("spec.done[{}]", k), closed_reason(plan_.spec.done[k], plan_.done_wanted[k]));
        if (ordered) find_cycles(passed);
        warn_of_services();
        return std::move(problems_);
    }

private:
    const std::vector<BarrierSpec>& waits(std::size_t group) const { return plan_.spec.tasks[group].wait; }
    const std::string& name(std::size_t group) const { return plan_.spec.tasks[group].name; }
    std::string at(std::size_t task, std::size_t barrier) const {
        return fmt::format("{}.wait[{}]", plan_.spec.tasks[task].path, barrier);
    }
    void wrong(std::string path, std::string message) { problems_.push_back({std::move(path), std::move(message)}); }
    void warn(std::string message) {
        if (std::find(plan_.warnings.begin(), plan_.warnings.end(), message) == plan_.warnings.end())
            plan_.warnings.push_back(std::move(message));
    }
    std::optional<DeclaredService> declared(const std::string& service) const {
        return membership_ == nullptr ? std::nullopt : membership_->declared(service);
    }
    bool may_have_members(const std::string& service) const {
        return membership_ == nullptr || !membership_->requires_declaration() || membership_->declared(service);
    }

    void count() {
        for (std::size_t i = 0; i < plan_.groups.size(); ++i)
            for (std::size_t k = 0; k < waits(i).size(); ++k) plan_.groups[i].wanted.push_back(wanted(waits(i)[k], at(i, k)));
        for (std::size_t k = 0; k < plan_.spec.done.size(); ++k)
            plan_.done_wanted.push_back(wanted(plan_.spec.done[k], fmt::format("spec.done[{}]", k)));
    }

    std::int64_t wanted(const BarrierSpec& barrier, const std::string& path) {
        switch (barrier.count.type) {
        case Count::Type::number: return barrier.count.number;
        case Count::Type::hosts: {
            const auto count = std::count(plan_.roles.begin(), plan_.roles.end(), barrier.count.role);
            if (count == 0) wrong(path + ".count", fmt::format("the plan has no node of role {}", barrier.count.role));
            return std::max<std::int64_t>(1, count);
        }
        case Count::Type::all: {
            const auto nodes = members_when(barrier, std::vector<bool>(plan_.groups.size(), true));
            return std::max<std::int64_t>(1, nodes ? static_cast<std::int64_t>(nodes->size()) : 1);
        }
        }
        return 1;
    }

    /// The nodes whose instances the barrier can count when those groups are done. nullopt: the registered instances are not known.
    std::optional<std::set<std::string>> members_when(const BarrierSpec& barrier, const std::vector<bool>& done) const {
        std::set<std::string> nodes, provided;
        // `provides` registers instances when the job begins.
        const bool registered = barrier.state == MemberState::registered && declared(barrier.service);
        for (const auto g : providers_of(plan_, barrier.service, barrier.tag)) {
            for (const auto host : plan_.groups[g].hosts) provided.insert(plan_.hosts[host]);
            if (!may_have_members(barrier.service)) continue;
            if (done[g] || registered)
                for (const auto host : plan_.groups[g].hosts) nodes.insert(plan_.hosts[host]);
            if (done[g] && plan_.groups[g].hosts.empty()) nodes.insert(fmt::format("(server: {})", name(g)));
        }
        if (membership_ == nullptr) return nodes;
        auto members = membership_->members(barrier.service, barrier.tag);
        if (!members.ok()) return {};
        for (const auto& member : members->all) {
            const bool ours = provided.contains(member.node);
            // What the plan starts itself counts before that only if it runs already.
            const bool runs = member.state >= barrier.state && (member.checked || !ours);
            if (barrier.state == MemberState::registered || runs || !ours) nodes.insert(member.node);
        }
        return nodes;
    }

    /// According to its Service, others than this job register it.
    bool is_external(const BarrierSpec& barrier, std::int64_t count) const {
        const auto service = declared(barrier.service);
        if (!service) return false;
        return providers_of(plan_, barrier.service, barrier.tag).empty() || service->wanted.value_or(0) >= count;
    }

    bool can_open(const BarrierSpec& barrier, std::int64_t count, const std::vector<bool>& done) {
        if (barrier.is_dns()) return true;
        const auto nodes = members_when(barrier, done);
        if (!nodes) {
            warn(fmt::format("whether {} can be reached is not known: the catalog cannot be asked", barrier.text()));
            return true;
        }
        return static_cast<std::int64_t>(nodes->size()) >= count || (is_external(barrier, count) && !circular(barrier, done));
    }

    /// An external service that tasks of the plan provide too: the barrier may wait for those that have not started.
    bool circular(const BarrierSpec& barrier, const std::vector<bool>& done) const {
        const auto providers = providers_of(plan_, barrier.service, barrier.tag);
        return std::any_of(providers.begin(), providers.end(), [&](std::uint32_t g) { return !done[g]; });
    }

    bool ready(std::size_t group, const std::vector<bool>& done) const {
        return std::all_of(plan_.groups[group].after.begin(), plan_.groups[group].after.end(),
                           [&](const Group::Edge& edge) { return done[edge.group]; });
    }

    /// Simulates the plan, group by group, and names the barriers whose providers wait for them.
    void find_cycles(const std::vector<std::vector<bool>>& passed) {
        std::vector<bool> done(plan_.groups.size(), false);
        const auto open = [&](std::size_t i, std::size_t k) {
            return passed[i][k] || can_open(waits(i)[k], plan_.groups[i].wanted[k], done);
        };
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
                if (done[i] || !ready(i, done)) continue;
                bool opens = true;
                for (std::size_t k = 0; k < passed[i].size(); ++k) opens = opens && open(i, k);
                if (opens) done[i] = moved = true;
            }
        }
        for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
            if (done[i] || !ready(i, done)) continue;
            for (std::size_t k = 0; k < passed[i].size(); ++k)
                if (!open(i, k)) wrong(at(i, k), fmt::format("cannot open: {}", cycle_text(i, k, done)));
        }
    }

    /// "a waits for rabbit, which b provides; b waits for pg, which a provides"
    std::string cycle_text(std::size_t from, std::size_t barrier, const std::vector<bool>& done) {
        std::vector<std::size_t> path;
        std::vector<std::string> steps;
        std::size_t group = from;
        while (std::find(path.begin(), path.end(), group) == path.end()) {
            std::optional<std::size_t> next;
            std::string step;
            for (const auto& edge : plan_.groups[group].after)
                if (!next && !done[edge.group]) {
                    next = edge.group;
                    step = fmt::format("{} is after {}", name(group), name(*next));
                }
            for (std::size_t k = group == from ? barrier : 0; k < waits(group).size() && !next; ++k) {
                if (can_open(waits(group)[k], plan_.groups[group].wanted[k], done)) continue;
                for (const auto g : providers_of(plan_, waits(group)[k].service, waits(group)[k].tag))
                    if (!next && !done[g]) next = g;
                if (next)
                    step = fmt::format("{} waits for {}, which {} provides", name(group), shown(waits(group)[k]), name(*next));
            }
            if (!next) break; // what it waits for is named where that waits
            path.push_back(group);
            steps.push_back(std::move(step));
            group = *next;
        }
        return fmt::format("those that provide {} wait, in the end, for this task: {}", shown(waits(from)[barrier]),
                           fmt::join(steps, "; "));
    }

    std::string closed_reason(const BarrierSpec& barrier, std::int64_t count) const {
        const auto service = shown(barrier);
        const bool provided = !providers_of(plan_, barrier.service, barrier.tag).empty();
        if (!may_have_members(barrier.service))
            return provided ? fmt::format("cannot open: there is no Service {0}, and only instances of a Service count; create a "
                                          "Service named {0}, with its port and a check",
                                          barrier.service)
                            : fmt::format("cannot open: nothing in the plan provides {}, and there is no Service {}; create the "
                                          "Service if others will register it",
                                          service, barrier.service);
        const auto nodes = members_when(barrier, std::vector<bool>(plan_.groups.size(), true));
        if (nodes && nodes->empty())
            return fmt::format("cannot open: nothing in the plan provides {}, and it is not registered; create a Service named "
                               "{} if others register it",
                               service, barrier.service);
        return fmt::format("cannot open: it wants {} of {}, and {} could be ({})", count, service, nodes ? nodes->size() : 0,
                           nodes ? fmt::format("{}", fmt::join(*nodes, ", ")) : "");
    }

    void warn_of_services() {
        std::set<std::string> seen;
        const auto check = [&](const BarrierSpec& barrier, std::int64_t count) {
            if (barrier.is_dns()) return;
            const auto nodes = members_when(barrier, std::vector<bool>(plan_.groups.size(), true));
            if (nodes && static_cast<std::int64_t>(nodes->size()) < count && is_external(barrier, count))
                warn(fmt::format("{} waits for others: the plan and the catalog have {} of {} so far", barrier.text(),
                                 nodes->size(), shown(barrier)));
            if (barrier.state > MemberState::registered) seen.insert(barrier.service);
        };
        for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
            for (std::size_t k = 0; k < waits(i).size(); ++k) check(waits(i)[k], plan_.groups[i].wanted[k]);
            for (const auto& offered : plan_.spec.tasks[i].provides) {
                seen.insert(offered.service);
                if (!may_have_members(offered.service))
                    warn(fmt::format("{} provides {}, and there is no Service {}: no instance is registered", name(i),
                                     offered.service, offered.service));
                else if (plan_.groups[i].hosts.empty())
                    warn(fmt::format("{} provides {} and runs on no node, so it registers no instance: others must register it",
                                     name(i), offered.service));
            }
        }
        for (std::size_t k = 0; k < plan_.spec.done.size(); ++k) check(plan_.spec.done[k], plan_.done_wanted[k]);
        for (const auto& service : seen) warn_without_check(service);
    }

    void warn_without_check(const std::string& service) {
        const auto its = declared(service);
        if (!its || its->checked) return;
        if (const auto members = membership_->members(service, "");
            members.ok() && !members->all.empty() &&
            std::all_of(members->all.begin(), members->all.end(), [](const Member& member) { return member.checked; }))
            return;
        std::vector<std::string> names;
        for (const auto g : providers_of(plan_, service, "")) names.push_back(name(g));
        warn(names.empty()
                 ? fmt::format("service {} has no check: each instance counts as passing as soon as it is registered", service)
                 : fmt::format("service {} has no check: an instance counts as passing when {} has succeeded on its node", service,
                               fmt::join(names, " or ")));
    }

    Plan& plan_;
    const Membership* membership_;
    std::vector<FieldError> problems_;
};

} // namespace

std::vector<FieldError> check_barriers(Plan& plan, const Membership* membership, bool ordered) {
    return BarrierCheck(plan, membership).run(ordered);
}

} // namespace orrery::jobs
