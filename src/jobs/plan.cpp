#include "jobs/plan.h"

#include "core/nearest.h"
#include "core/text.h"
#include "core/truncate.h"
#include "jobs/plan_barriers.h"
#include "jobs/plan_checks.h"
#include "jobs/values.h"
#include "resource/resources.h"

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

/// Places one job; each step adds the errors that it finds.
class Expansion {
public:
    Expansion(Plan& plan, const std::vector<PlanNode>& nodes, const Executors& executors, const Membership* membership,
              const SecretKeys& secret_keys)
        : plan_(plan), nodes_(nodes), executors_(executors), membership_(membership), secret_keys_(secret_keys) {}

    Problems run() {
        place();
        link();
        check_bodies();
        for (auto& problem : check_submission(plan_, executors_, membership_, secret_keys_))
            problems_.push_back(std::move(problem));
        const bool cycles = find_cycles();
        if (!cycles) measure_depth();
        for (auto& problem : check_barriers(plan_, membership_, !cycles && !edges_broken_)) problems_.push_back(std::move(problem));
        return std::move(problems_);
    }

    void place() {
        std::vector<std::vector<std::string>> chosen(plan_.spec.tasks.size());
        std::map<std::string, std::string> roles; // by node
        for (std::size_t i = 0; i < plan_.spec.tasks.size(); ++i) {
            const auto& on = plan_.spec.tasks[i].on;
            if (on.type == OnSpec::Type::server) continue;
            const auto path = at(i, "on");
            if (on.type == OnSpec::Type::nodes) {
                for (const auto& name : on.nodes) {
                    if (const auto* node = find_node(name))
                        chosen[i].push_back(node->name);
                    else
                        wrong(path, fmt::format("there is no node {}", name));
                }
            } else {
                auto selector = resource::LabelSelector::parse(on.labels);
                if (!selector.ok()) {
                    wrong(path, selector.error().message);
                    continue;
                }
                for (const auto& node : nodes_)
                    if (selector->matches(node.labels)) chosen[i].push_back(node.name);
                if (chosen[i].empty()) wrong(path, fmt::format("no node has {}", on.labels));
            }
            std::sort(chosen[i].begin(), chosen[i].end());
            chosen[i].erase(std::unique(chosen[i].begin(), chosen[i].end()), chosen[i].end());
            for (const auto& name : chosen[i]) {
                const auto& labels = find_node(name)->labels;
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
        for (const auto& host : plan_.hosts)
            if (find_node(host)->maintenance)
                plan_.warnings.push_back(fmt::format("{} is in maintenance: its tasks wait until that ends", host));
    }

    /// Task numbers and waves, from the nodes of each group.
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
        std::vector<std::string_view> known;
        for (std::uint32_t i = 0; i < plan_.spec.tasks.size(); ++i) {
            names.emplace(plan_.spec.tasks[i].name, i);
            known.push_back(plan_.spec.tasks[i].name);
        }
        const auto find_task = [&](const std::string& name, const std::string& path) -> std::optional<std::uint32_t> {
            if (const auto found = names.find(name); found != names.end()) return found->second;
            const auto near = nearest(name, known.data(), known.data() + known.size());
            wrong(path, fmt::format("there is no task {}{}{}{}", truncate(name, 128), near.empty() ? "" : "; did you mean ", near,
                                    near.empty() ? "" : "?"));
            edges_broken_ = true;
            return {};
        };
        for (std::uint32_t i = 0; i < plan_.groups.size(); ++i) {
            const auto& spec = plan_.spec.tasks[i];
            auto& group = plan_.groups[i];
            for (std::size_t k = 0; k < spec.after.size(); ++k) {
                const auto path = at(i, fmt::format("after[{}]", k));
                const auto other = find_task(spec.after[k].task, path);
                if (!other) continue;
                if (std::any_of(group.after.begin(), group.after.end(), [&](const auto& edge) { return edge.group == *other; })) {
                    wrong(path, "is listed twice");
                    continue;
                }
                group.after.push_back({*other, spec.after[k].same_host});
                plan_.groups[*other].before.push_back({i, spec.after[k].same_host});
                if (spec.after[k].same_host) check_same_host(i, *other, path);
            }
            if (spec.batch && !spec.batch->through.empty()) {
                group.through = find_task(spec.batch->through, at(i, "batch.through"));
                if (group.through) check_covers(i, *group.through, at(i, "batch.through"));
            }
            if (!spec.rolling_through.empty()) {
                group.rolling_through = find_task(spec.rolling_through, at(i, "rolling"));
                if (group.rolling_through) check_covers(i, *group.rolling_through, at(i, "rolling"));
            }
        }
    }

    void check_bodies() {
        const auto known = executors_.names();
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
                    const auto near = nearest(run.executor, known.data(), known.data() + known.size());
                    wrong(path,
                          fmt::format("there is no executor {}{}{}", run.executor,
                                      near.empty() ? fmt::format("; there are {}", fmt::join(known, ", ")) : "; did you mean ",
                                      near));
                    continue;
                }
                if (executor->target_type() == Executor::TargetType::node && task.on.type == OnSpec::Type::server)
                    wrong(at(i, "on"), fmt::format("{} needs nodes: name them", run.executor));
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

    /// True where there are cycles.
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
                    std::string cycle = plan_.spec.tasks[other].name;
                    for (auto step = path.rbegin(); step != path.rend(); ++step) {
                        cycle += fmt::format(" → {}", plan_.spec.tasks[step->first].name);
                        if (step->first == other) break;
                    }
                    wrong(at(other, "after"), fmt::format("waits for itself: {}", cycle));
                }
            }
        }
        return found;
    }

    void measure_depth() {
        std::vector<std::uint32_t> left(plan_.groups.size()), order;
        for (std::uint32_t i = 0; i < plan_.groups.size(); ++i) {
            left[i] = static_cast<std::uint32_t>(plan_.groups[i].before.size());
            if (left[i] == 0) order.push_back(i);
        }
        for (std::size_t at = 0; at < order.size(); ++at)
            for (const auto& edge : plan_.groups[order[at]].after) {
                auto& depth = plan_.groups[edge.group].depth;
                depth = std::max(depth, plan_.groups[order[at]].depth + 1);
                if (--left[edge.group] == 0) order.push_back(edge.group);
            }
    }

private:
    std::string at(std::size_t task, std::string_view field) const {
        return fmt::format("{}.{}", plan_.spec.tasks[task].path, field);
    }
    void wrong(std::string path, std::string message) { problems_.push_back({std::move(path), std::move(message)}); }
    const PlanNode* find_node(const std::string& name) const {
        const auto found = std::lower_bound(nodes_.begin(), nodes_.end(), name,
                                            [](const PlanNode& node, const std::string& wanted) { return node.name < wanted; });
        return found == nodes_.end() || found->name != name ? nullptr : &*found;
    }

    void check_same_host(std::uint32_t group, std::uint32_t other, const std::string& path) {
        if (plan_.spec.tasks[other].together || plan_.spec.tasks[group].together || plan_.groups[group].hosts.empty()) {
            wrong(path, "same_host needs a task for each node on both sides");
            edges_broken_ = true;
            return;
        }
        check_covers(group, other, path);
    }

    /// Every node of `group` must be one of `other`.
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

    Plan& plan_;
    const std::vector<PlanNode>& nodes_;
    const Executors& executors_;
    const Membership* membership_;
    const SecretKeys& secret_keys_;
    Problems problems_;
    bool edges_broken_ = false;
};

} // namespace

namespace {

constexpr std::uint32_t max_plan_tasks = 1'000'000;

Error job_error(Problems problems) {
    constexpr std::size_t max_shown = 100;
    Error error{Code::invalid, fmt::format("the job has {} error{}", problems.size(), problems.size() == 1 ? "" : "s"),
                "correct the job and submit it again; nothing of it was started"};
    if (problems.size() > max_shown) problems.resize(max_shown);
    error.fields = std::move(problems);
    return error;
}

bool is_below(std::string_view path, std::string_view root) {
    return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '.' || path[root.size()] == '[');
}

/// Drops errors of the graph that follow from fields which could not be read.
void drop_consequences(Problems& problems, const Problems& misread, const JobSpec& spec) {
    bool services_unknown = false, members_unknown = false;
    std::set<std::string> tasks;
    for (const auto& task : spec.tasks)
        for (const auto& error : misread) {
            const bool placement = is_below(error.path, task.path + ".on");
            services_unknown = services_unknown || is_below(error.path, task.path + ".provides");
            members_unknown = members_unknown || services_unknown || (placement && !task.provides.empty());
            if (placement || error.path == task.path || is_below(error.path, task.path + ".name") ||
                is_below(error.path, task.path + ".after") || is_below(error.path, task.path + ".batch"))
                tasks.insert(task.path);
        }
    std::erase_if(problems, [&](const FieldError& problem) {
        const bool related = std::any_of(misread.begin(), misread.end(), [&](const FieldError& error) {
            return is_below(problem.path, error.path) || is_below(error.path, problem.path) ||
                   (problem.path.starts_with("spec.done") && error.path.starts_with("spec.done"));
        });
        if (related) return true;
        if (members_unknown && (problem.path.starts_with("spec.done") || problem.path.find(".wait[") != std::string::npos))
            return true;
        if (services_unknown && problem.path.find(".rerun_on[") != std::string::npos) return true;
        return std::any_of(tasks.begin(), tasks.end(), [&](const std::string& task) { return is_below(problem.path, task); });
    });
}

/// Tasks of a list have numbers in their paths: adds their names.
void name_tasks(Problems& problems, const JobSpec& spec) {
    std::map<std::string_view, std::string_view> names;
    for (const auto& task : spec.tasks)
        if (task.path.ends_with(']') && !task.name.empty()) names.emplace(task.path, task.name);
    for (auto& problem : problems) {
        const auto end = problem.path.find(']');
        if (end == std::string::npos) continue;
        if (const auto found = names.find(std::string_view(problem.path).substr(0, end + 1)); found != names.end())
            problem.message = fmt::format("task {}: {}", found->second, problem.message);
    }
}

} // namespace

Result<Plan> expand(std::string name, JobSpec spec, const std::vector<PlanNode>& nodes, const Executors& executors,
                    const Membership* membership) {
    Plan plan;
    plan.name = std::move(name);
    plan.spec = std::move(spec);
    const SecretKeys no_secret_keys;
    auto problems = Expansion(plan, nodes, executors, membership, no_secret_keys).run();
    if (plan.tasks > max_plan_tasks)
        problems.push_back({"spec.tasks", fmt::format("would be {} tasks, and {} is the maximum", plan.tasks, max_plan_tasks)});
    if (!problems.empty()) return job_error(std::move(problems));
    return plan;
}

Result<Plan> plan_submission(std::string name, const json::object& spec, const Submission& with) {
    Problems misread;
    Plan plan;
    plan.name = std::move(name);
    const bool readable = read_job(spec, plan.spec, misread);
    auto problems = readable ? Expansion(plan, with.nodes, with.executors, with.membership, with.secret_keys).run() : Problems{};
    if (!misread.empty()) drop_consequences(problems, misread, plan.spec);
    if (plan.tasks > max_plan_tasks)
        problems.push_back({"spec.tasks", fmt::format("would be {} tasks, and {} is the maximum", plan.tasks, max_plan_tasks)});
    problems.insert(problems.begin(), std::make_move_iterator(misread.begin()), std::make_move_iterator(misread.end()));
    problems.insert(problems.end(), with.problems.begin(), with.problems.end());
    if (problems.empty()) {
        plan.digest = plan_digest(spec, plan);
        return plan;
    }
    name_tasks(problems, plan.spec);
    return job_error(std::move(problems));
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
        // A run of consecutive nodes is one pair: a role of ten thousand nodes is two numbers.
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
    const Executors no_executors;
    const std::vector<PlanNode> no_nodes;
    const SecretKeys no_secret_keys;
    Expansion expansion(plan, no_nodes, no_executors, nullptr, no_secret_keys);
    expansion.number();
    expansion.link();
    expansion.measure_depth();
    return plan;
}

} // namespace orrery::jobs
