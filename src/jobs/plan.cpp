#include "jobs/plan.h"

#include "core/ids.h"
#include "core/text.h"
#include "jobs/values.h"
#include "resource/resources.h"

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery::jobs {

std::uint32_t Plan::group_of(std::uint32_t task) const {
    const auto after = std::upper_bound(groups.begin(), groups.end(), task,
                                        [](std::uint32_t wanted, const Group& group) { return wanted < group.first; });
    return static_cast<std::uint32_t>(after - groups.begin()) - 1;
}

std::uint32_t Plan::host_of(std::uint32_t task) const { return host_in(group_of(task), task); }

std::uint32_t Plan::task_on(std::uint32_t group, std::uint32_t host) const {
    const auto& of = groups[group];
    if (spec.tasks[group].together) return none;
    const auto found = std::lower_bound(of.hosts.begin(), of.hosts.end(), host);
    if (found == of.hosts.end() || *found != host) return none;
    return of.first + static_cast<std::uint32_t>(found - of.hosts.begin());
}

std::string Plan::task_name(std::uint32_t task) const {
    const auto group = group_of(task);
    const auto host = host_in(group, task);
    return host == none ? spec.tasks[group].name : fmt::format("{}@{}", spec.tasks[group].name, hosts[host]);
}

std::optional<std::uint32_t> Plan::find_group(std::string_view wanted) const {
    for (std::uint32_t i = 0; i < groups.size(); ++i)
        if (spec.tasks[i].name == wanted) return i;
    return {};
}

std::optional<std::uint32_t> Plan::find(std::string_view wanted) const {
    const auto at = wanted.find('@');
    const auto group = find_group(wanted.substr(0, at));
    if (!group) return {};
    if (at == wanted.npos) return groups[*group].count == 1 ? std::optional(groups[*group].first) : std::nullopt;
    const auto host = std::lower_bound(hosts.begin(), hosts.end(), wanted.substr(at + 1));
    if (host == hosts.end() || *host != wanted.substr(at + 1)) return {};
    const auto task = task_on(*group, static_cast<std::uint32_t>(host - hosts.begin()));
    return task == none ? std::nullopt : std::optional(task);
}

namespace {

using Problems = std::vector<FieldError>;

/// The work of one expansion; each step adds what it finds wrong.
class Expansion {
public:
    Expansion(Plan& plan, const std::vector<Machine>& machines, const Executors& executors, const Membership* membership,
              const std::function<bool(const std::string&)>& secret_exists)
        : plan_(plan), machines_(machines), executors_(executors), membership_(membership), secret_exists_(secret_exists) {}

    Problems run() {
        place();
        link();
        check_bodies();
        check_references();
        const bool cycles = find_cycles();
        if (!cycles) measure_depth();
        check_barriers(!cycles && !edges_broken_);
        return std::move(problems_);
    }

    void place() {
        std::vector<std::vector<std::string>> chosen(plan_.spec.tasks.size());
        std::map<std::string, std::string> roles; // of the machines that are touched
        for (std::size_t i = 0; i < plan_.spec.tasks.size(); ++i) {
            const auto& on = plan_.spec.tasks[i].on;
            if (on.what == OnSpec::What::server) continue;
            const auto path = at(i, "on");
            if (on.what == OnSpec::What::nodes) {
                for (const auto& name : on.nodes) {
                    if (const auto* machine = find_machine(name))
                        chosen[i].push_back(machine->name);
                    else
                        wrong(path, fmt::format("there is no node {}", name));
                }
            } else {
                auto selector = resource::LabelSelector::parse(on.labels);
                if (!selector.ok()) {
                    wrong(path, selector.error().message);
                    continue;
                }
                for (const auto& machine : machines_)
                    if (selector->matches(machine.labels)) chosen[i].push_back(machine.name);
                if (chosen[i].empty()) wrong(path, fmt::format("no node has {}", on.labels));
            }
            std::sort(chosen[i].begin(), chosen[i].end());
            chosen[i].erase(std::unique(chosen[i].begin(), chosen[i].end()), chosen[i].end());
            for (const auto& name : chosen[i]) {
                const auto& labels = find_machine(name)->labels;
                const auto role = labels.find("role");
                roles.emplace(name, role == labels.end() ? "" : role->second);
            }
        }
        for (auto& [name, role] : roles) {
            plan_.hosts.push_back(name);
            plan_.roles.push_back(role);
        }
        for (std::size_t i = 0; i < plan_.spec.tasks.size(); ++i) {
            Group group;
            for (const auto& name : chosen[i])
                group.hosts.push_back(static_cast<std::uint32_t>(std::lower_bound(plan_.hosts.begin(), plan_.hosts.end(), name) -
                                                                 plan_.hosts.begin()));
            plan_.groups.push_back(std::move(group));
        }
        number();
    }

    /// Task numbers and waves, from the machines of each group.
    void number() {
        for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
            auto& group = plan_.groups[i];
            const auto& spec = plan_.spec.tasks[i];
            group.first = plan_.tasks;
            group.count = spec.together || group.hosts.empty() ? 1 : static_cast<std::uint32_t>(group.hosts.size());
            plan_.tasks += group.count;
            group.waves.clear();
            if (!spec.batch) continue;
            std::int64_t done = std::min<std::int64_t>(spec.batch->canary, group.count);
            if (done > 0) group.waves.push_back(static_cast<std::uint32_t>(done));
            for (std::size_t wave = 0; done < group.count; ++wave) {
                const auto& share = spec.batch->serial[std::min(wave, spec.batch->serial.size() - 1)];
                done = std::min<std::int64_t>(group.count, done + std::max<std::int64_t>(1, share.of(group.count)));
                group.waves.push_back(static_cast<std::uint32_t>(done));
            }
        }
    }

    void link() {
        std::map<std::string_view, std::uint32_t> names;
        std::vector<std::string_view> words;
        for (std::uint32_t i = 0; i < plan_.spec.tasks.size(); ++i) {
            names.emplace(plan_.spec.tasks[i].name, i);
            words.push_back(plan_.spec.tasks[i].name);
        }
        const auto look_up = [&](const std::string& name, const std::string& path) -> std::optional<std::uint32_t> {
            if (const auto found = names.find(name); found != names.end()) return found->second;
            const auto near = nearest(name, words.data(), words.data() + words.size());
            wrong(path, fmt::format("there is no task {}{}{}{}", name.substr(0, 128), near.empty() ? "" : "; did you mean ", near,
                                    near.empty() ? "" : "?"));
            edges_broken_ = true;
            return {};
        };
        for (std::uint32_t i = 0; i < plan_.groups.size(); ++i) {
            const auto& spec = plan_.spec.tasks[i];
            auto& group = plan_.groups[i];
            for (std::size_t k = 0; k < spec.after.size(); ++k) {
                const auto path = at(i, fmt::format("after[{}]", k));
                const auto other = look_up(spec.after[k].task, path);
                if (!other) continue;
                if (std::any_of(group.after.begin(), group.after.end(), [&](const auto& edge) { return edge.group == *other; })) {
                    wrong(path, "is said twice");
                    continue;
                }
                group.after.push_back({*other, spec.after[k].same_host});
                plan_.groups[*other].before.push_back({i, spec.after[k].same_host});
                if (spec.after[k].same_host) check_same_host(i, *other, path);
            }
            if (spec.batch && !spec.batch->through.empty()) {
                group.through = look_up(spec.batch->through, at(i, "batch.through"));
                if (group.through) check_covers(i, *group.through, at(i, "batch.through"));
            }
            if (!spec.rolling_through.empty()) {
                group.rolling_through = look_up(spec.rolling_through, at(i, "rolling"));
                if (group.rolling_through) check_covers(i, *group.rolling_through, at(i, "rolling"));
            }
        }
    }

    void check_bodies() {
        const auto words = executors_.names();
        for (std::size_t i = 0; i < plan_.spec.tasks.size(); ++i) {
            const auto& task = plan_.spec.tasks[i];
            for (const auto& [name, run] : {std::pair<std::string_view, const RunSpec&>{"run", task.run},
                                            {"check", task.check},
                                            {"verify", task.verify},
                                            {"undo", task.undo}}) {
                if (!run.given()) continue;
                const auto* executor = executors_.find(run.executor);
                const auto path = at(i, name);
                if (executor == nullptr) {
                    const auto near = nearest(run.executor, words.data(), words.data() + words.size());
                    wrong(path,
                          fmt::format("there is no executor {}{}{}", run.executor,
                                      near.empty() ? fmt::format("; there are {}", fmt::join(words, ", ")) : "; did you mean ",
                                      near));
                    continue;
                }
                if (executor->place() == Executor::Place::node && task.on.what == OnSpec::What::server)
                    wrong(at(i, "on"), fmt::format("{} works on machines: say on which", run.executor));
                if (auto checked = executor->check(run.body); !checked.ok()) {
                    if (checked.error().fields.empty()) wrong(fmt::format("{}.{}", path, run.executor), checked.error().message);
                    for (const auto& field : checked.error().fields)
                        wrong(fmt::format("{}.{}{}{}", path, run.executor, field.path.empty() || field.path[0] == '[' ? "" : ".",
                                          field.path),
                              field.message);
                }
            }
        }
    }

    void check_references() {
        for (std::size_t i = 0; i < plan_.spec.tasks.size(); ++i) {
            const auto& task = plan_.spec.tasks[i];
            check_value(i, "with", task.with, false);
            check_value(i, "run", task.run.body, true);
            check_value(i, "check", task.check.body, true);
            check_value(i, "verify", task.verify.body, true);
            check_value(i, "undo", task.undo.body, true);
            for (const auto& text : task.artefacts) {
                check_value(i, "artefacts", json::value(text), true);
                if (text.find("${secret.") != text.npos) wrong(at(i, "artefacts"), "cannot use a secret: paths are shown");
            }
            for (const auto& [name, text] : task.environment) check_value(i, "env." + name, json::value(text), true);
        }
    }

    /// True if there are any.
    bool find_cycles() {
        enum class Mark { white, grey, black };
        std::vector<Mark> marks(plan_.groups.size(), Mark::white);
        bool found = false;
        for (std::uint32_t start = 0; start < plan_.groups.size(); ++start) {
            if (marks[start] != Mark::white) continue;
            std::vector<std::pair<std::uint32_t, std::size_t>> path{{start, 0}};
            marks[start] = Mark::grey;
            while (!path.empty()) {
                auto& [group, next] = path.back();
                if (next == plan_.groups[group].after.size()) {
                    marks[group] = Mark::black;
                    path.pop_back();
                    continue;
                }
                const auto other = plan_.groups[group].after[next++].group;
                if (marks[other] == Mark::white) {
                    marks[other] = Mark::grey;
                    path.emplace_back(other, 0);
                } else if (marks[other] == Mark::grey) {
                    found = true;
                    std::string words = plan_.spec.tasks[other].name;
                    for (auto step = path.rbegin(); step != path.rend(); ++step) {
                        words += fmt::format(" → {}", plan_.spec.tasks[step->first].name);
                        if (step->first == other) break;
                    }
                    wrong(at(other, "after"), fmt::format("waits for itself: {}", words));
                }
            }
        }
        return found;
    }

    void measure_depth() {
        std::vector<std::uint32_t> left(plan_.groups.size()), order;
        for (std::uint32_t i = 0; i < plan_.groups.size(); ++i)
            if ((left[i] = static_cast<std::uint32_t>(plan_.groups[i].before.size())) == 0) order.push_back(i);
        for (std::size_t at = 0; at < order.size(); ++at)
            for (const auto& edge : plan_.groups[order[at]].after) {
                auto& depth = plan_.groups[edge.group].depth;
                depth = std::max(depth, plan_.groups[order[at]].depth + 1);
                if (--left[edge.group] == 0) order.push_back(edge.group);
            }
    }

    void count_barriers() {
        for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
            const auto& waits = plan_.spec.tasks[i].wait;
            for (std::size_t k = 0; k < waits.size(); ++k)
                plan_.groups[i].wanted.push_back(wanted(waits[k], at(i, fmt::format("wait[{}].count", k))));
        }
        for (std::size_t k = 0; k < plan_.spec.done.size(); ++k)
            plan_.done_wanted.push_back(wanted(plan_.spec.done[k], fmt::format("spec.done[{}].count", k)));
    }

    /// Names the barriers that stay closed: those that too few provide, and, where the plan can be played through group by group,
    /// those whose providers come to wait for them.
    void check_barriers(bool playable) {
        count_barriers();
        const std::vector<bool> all(plan_.groups.size(), true);
        std::vector<std::vector<bool>> passed(plan_.groups.size()); // by deadline, or named already
        for (std::size_t i = 0; i < plan_.groups.size(); ++i)
            for (std::size_t k = 0; k < plan_.spec.tasks[i].wait.size(); ++k) {
                const auto& barrier = plan_.spec.tasks[i].wait[k];
                const bool lapses = barrier.on_timeout == OnTimeout::go_on && barrier.deadline;
                const bool hopeless = !lapses && !can_open(barrier, plan_.groups[i].wanted[k], all);
                if (hopeless) wrong(at(i, fmt::format("wait[{}]", k)), why_closed(barrier, plan_.groups[i].wanted[k]));
                passed[i].push_back(lapses || hopeless);
            }
        for (std::size_t k = 0; k < plan_.spec.done.size(); ++k)
            if (!can_open(plan_.spec.done[k], plan_.done_wanted[k], all))
                wrong(fmt::format("spec.done[{}]", k), why_closed(plan_.spec.done[k], plan_.done_wanted[k]));
        if (!playable) return;
        std::vector<bool> done(plan_.groups.size(), false);
        const auto open = [&](std::size_t i, std::size_t k) {
            return passed[i][k] || can_open(plan_.spec.tasks[i].wait[k], plan_.groups[i].wanted[k], done);
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
                if (!open(i, k))
                    wrong(at(i, fmt::format("wait[{}]", k)), why_closed(plan_.spec.tasks[i].wait[k], plan_.groups[i].wanted[k]));
        }
    }

private:
    std::string at(std::size_t task, std::string_view field) const {
        return fmt::format("{}.{}", plan_.spec.tasks[task].path, field);
    }
    void wrong(std::string path, std::string message) { problems_.push_back({std::move(path), std::move(message)}); }
    const Machine* find_machine(const std::string& name) const {
        const auto found =
            std::lower_bound(machines_.begin(), machines_.end(), name,
                             [](const Machine& machine, const std::string& wanted) { return machine.name < wanted; });
        return found == machines_.end() || found->name != name ? nullptr : &*found;
    }

    void check_same_host(std::uint32_t group, std::uint32_t other, const std::string& path) {
        if (plan_.spec.tasks[other].together || plan_.spec.tasks[group].together || plan_.groups[group].hosts.empty()) {
            wrong(path, "same_host needs a task for each machine on both sides");
            edges_broken_ = true;
            return;
        }
        check_covers(group, other, path);
    }

    /// Every machine of `group` must be one of `other`'s.
    void check_covers(std::uint32_t group, std::uint32_t other, const std::string& path) {
        const auto& theirs = plan_.groups[other].hosts;
        std::vector<std::uint32_t> missing;
        std::set_difference(plan_.groups[group].hosts.begin(), plan_.groups[group].hosts.end(), theirs.begin(), theirs.end(),
                            std::back_inserter(missing));
        if (plan_.spec.tasks[other].together) missing = plan_.groups[group].hosts;
        if (missing.empty()) return;
        edges_broken_ = true;
        wrong(path, fmt::format("{} does not run on {}{}", plan_.spec.tasks[other].name, plan_.hosts[missing.front()],
                                missing.size() > 1 ? fmt::format(" and {} more", missing.size() - 1) : ""));
    }

    void check_value(std::size_t task, const std::string& field, const json::value& value, bool with_allowed) {
        for (const auto& text : references_in(value)) {
            auto reference = parse_reference(text);
            const auto path = at(task, field);
            if (!reference.ok()) {
                wrong(path, reference.error().message);
                continue;
            }
            const auto& spec = plan_.spec.tasks[task];
            switch (reference->what) {
            case Reference::What::with:
                if (!with_allowed)
                    wrong(path, fmt::format("${{{}}}: \"with\" cannot use itself", text));
                else if (!spec.with.contains(reference->name))
                    wrong(path, fmt::format("${{{}}}: the task's \"with\" has no {}", text, reference->name));
                break;
            case Reference::What::task:
                if (!plan_.find_group(reference->name))
                    wrong(path, fmt::format("${{{}}}: there is no task {}", text, reference->name));
                break;
            case Reference::What::node:
                if (spec.on.what == OnSpec::What::server || spec.together)
                    wrong(path, fmt::format("${{{}}}: the task is not about one machine", text));
                break;
            case Reference::What::secret:
                if (secret_exists_ && !secret_exists_(reference->name))
                    wrong(path, fmt::format("${{{}}}: there is no Secret {}", text, reference->name));
                break;
            default: break;
            }
        }
    }

    bool provides(std::size_t group, const BarrierSpec& barrier) const {
        const auto& offers = plan_.spec.tasks[group].provides;
        return std::any_of(offers.begin(), offers.end(), [&](const ServiceRef& ref) {
            return ref.service == barrier.service && (barrier.tag.empty() || ref.tag == barrier.tag);
        });
    }

    /// The machines that provide it when those groups are done. nothing: who is registered already is not known.
    std::optional<std::set<std::string>> could(const BarrierSpec& barrier, const std::vector<bool>& done) const {
        std::set<std::string> nodes;
        for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
            if (!done[i] || !provides(i, barrier)) continue;
            for (const auto host : plan_.groups[i].hosts) nodes.insert(plan_.hosts[host]);
            if (plan_.groups[i].hosts.empty()) nodes.insert(fmt::format("(server: {})", plan_.spec.tasks[i].name));
        }
        if (membership_ == nullptr) return nodes;
        auto members = membership_->members(barrier.service, barrier.tag);
        if (!members.ok()) return {};
        for (const auto& member : *members) nodes.insert(member.node);
        return nodes;
    }

    std::int64_t wanted(const BarrierSpec& barrier, const std::string& path) {
        switch (barrier.count.what) {
        case Count::What::number: return barrier.count.number;
        case Count::What::hosts: {
            const auto count = std::count(plan_.roles.begin(), plan_.roles.end(), barrier.count.role);
            if (count == 0) wrong(path, fmt::format("the plan has no machine of role {}", barrier.count.role));
            return std::max<std::int64_t>(1, count);
        }
        case Count::What::all: {
            const auto nodes = could(barrier, std::vector<bool>(plan_.groups.size(), true));
            return std::max<std::int64_t>(1, nodes ? static_cast<std::int64_t>(nodes->size()) : 1);
        }
        }
        return 1;
    }

    bool ready(std::size_t group, const std::vector<bool>& done) const {
        return std::all_of(plan_.groups[group].after.begin(), plan_.groups[group].after.end(),
                           [&](const Group::Edge& edge) { return done[edge.group]; });
    }

    bool can_open(const BarrierSpec& barrier, std::int64_t count, const std::vector<bool>& done) {
        const auto nodes = could(barrier, done);
        if (!nodes) {
            auto words = fmt::format("whether {} can be reached is not known: the catalog cannot be asked", barrier.text());
            if (std::find(plan_.warnings.begin(), plan_.warnings.end(), words) == plan_.warnings.end())
                plan_.warnings.push_back(std::move(words));
            return true;
        }
        return static_cast<std::int64_t>(nodes->size()) >= count;
    }

    std::string why_closed(const BarrierSpec& barrier, std::int64_t count) const {
        const auto nodes = could(barrier, std::vector<bool>(plan_.groups.size(), true));
        const auto service = barrier.tag.empty() ? barrier.service : fmt::format("{}:{}", barrier.service, barrier.tag);
        if (nodes && nodes->empty())
            return fmt::format("cannot open: nothing in the plan provides {}, and nobody has registered it", service);
        if (nodes && static_cast<std::int64_t>(nodes->size()) < count)
            return fmt::format("cannot open: it wants {} of {}, and {} could be ({})", count, service, nodes->size(),
                               fmt::join(*nodes, ", "));
        return fmt::format("cannot open: those that provide {} wait, in the end, for this task", service);
    }

    Plan& plan_;
    const std::vector<Machine>& machines_;
    const Executors& executors_;
    const Membership* membership_;
    const std::function<bool(const std::string&)>& secret_exists_;
    Problems problems_;
    bool edges_broken_ = false;
};

} // namespace

Result<Plan> expand(std::string name, JobSpec spec, const std::vector<Machine>& machines, const Executors& executors,
                    const Membership* membership, const std::function<bool(const std::string&)>& secret_exists) {
    constexpr std::uint32_t most_tasks = 1'000'000;
    constexpr std::size_t most_shown = 100;
    Plan plan;
    plan.name = std::move(name);
    plan.spec = std::move(spec);
    auto problems = Expansion(plan, machines, executors, membership, secret_exists).run();
    if (plan.tasks > most_tasks)
        problems.push_back({"spec.tasks", fmt::format("would be {} tasks, and {} is the most", plan.tasks, most_tasks)});
    if (!problems.empty()) {
        Error error{Code::invalid, fmt::format("the job has {} mistake{}", problems.size(), problems.size() == 1 ? "" : "s")};
        if (problems.size() > most_shown) problems.resize(most_shown);
        error.fields = std::move(problems);
        return error;
    }
    return plan;
}

std::string plan_digest(const json::object& spec, const Plan& plan) {
    return sha256_text(to_json_text(spec) + placement_text(plan));
}

std::string placement_text(const Plan& plan) {
    json::array hosts, roles, groups;
    for (const auto& host : plan.hosts) hosts.emplace_back(host);
    for (const auto& role : plan.roles) roles.emplace_back(role);
    for (const auto& group : plan.groups) {
        json::array in, wanted;
        // Runs of consecutive machines are one pair: a role of ten thousand is two numbers.
        for (std::size_t i = 0; i < group.hosts.size();) {
            std::size_t end = i + 1;
            while (end < group.hosts.size() && group.hosts[end] == group.hosts[end - 1] + 1) ++end;
            in.push_back(group.hosts[i]);
            in.push_back(end - i);
            i = end;
        }
        for (const auto count : group.wanted) wanted.push_back(count);
        groups.push_back(json::object{{"hosts", std::move(in)}, {"wanted", std::move(wanted)}});
    }
    json::array done;
    for (const auto count : plan.done_wanted) done.push_back(count);
    return to_json_text(json::object{
        {"hosts", std::move(hosts)}, {"roles", std::move(roles)}, {"groups", std::move(groups)}, {"done", std::move(done)}});
}

Result<Plan> plan_from(std::string name, JobSpec spec, std::string_view placement) {
    const Error damaged{Code::internal, fmt::format("the placement of job {} cannot be read", name)};
    boost::system::error_code failed;
    const auto read = json::parse(placement, failed);
    if (failed || !read.is_object()) return damaged;
    Plan plan;
    plan.name = std::move(name);
    plan.spec = std::move(spec);
    try {
        const auto& object = read.get_object();
        for (const auto& host : object.at("hosts").as_array()) plan.hosts.emplace_back(std::string_view(host.as_string()));
        for (const auto& role : object.at("roles").as_array()) plan.roles.emplace_back(std::string_view(role.as_string()));
        for (const auto& one : object.at("groups").as_array()) {
            Group group;
            const auto& runs = one.at("hosts").as_array();
            for (std::size_t i = 0; i + 1 < runs.size(); i += 2) {
                const auto first = runs[i].to_number<std::uint32_t>(), count = runs[i + 1].to_number<std::uint32_t>();
                if (first + std::uint64_t{count} > plan.hosts.size()) return damaged;
                for (std::uint32_t k = 0; k < count; ++k) group.hosts.push_back(first + k);
            }
            for (const auto& count : one.at("wanted").as_array()) group.wanted.push_back(count.to_number<std::int64_t>());
            plan.groups.push_back(std::move(group));
        }
        for (const auto& count : object.at("done").as_array()) plan.done_wanted.push_back(count.to_number<std::int64_t>());
    } catch (const std::exception&) {
        return damaged;
    }
    if (plan.groups.size() != plan.spec.tasks.size() || plan.roles.size() != plan.hosts.size()) return damaged;
    const Executors none;
    const std::vector<Machine> no_machines;
    const std::function<bool(const std::string&)> unasked;
    Expansion expansion(plan, no_machines, none, nullptr, unasked);
    expansion.number();
    expansion.link();
    expansion.measure_depth();
    return plan;
}

} // namespace orrery::jobs
