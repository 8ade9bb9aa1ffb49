#include "jobs/plan_checks.h"

#include "core/nearest.h"
#include "jobs/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace orrery::jobs {

namespace {

std::vector<std::pair<std::string_view, const RunSpec*>> parts_of(const TaskSpec& task) {
    return {{"run", &task.run}, {"check", &task.check}, {"verify", &task.verify}, {"undo", &task.undo}};
}

/// "; did you mean X?", or "; there are X, Y", or nothing.
std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
    constexpr std::size_t max_listed = 8;
    const std::vector<std::string_view> known(names.begin(), names.end());
    if (const auto near = nearest(word, known.data(), known.data() + known.size()); !near.empty())
        return fmt::format("; did you mean {}?", near);
    if (names.empty() || names.size() > max_listed) return {};
    return fmt::format("; there {} {}", names.size() == 1 ? "is" : "are", fmt::join(names, ", "));
}

class SubmissionCheck {
public:
    SubmissionCheck(const Plan& plan, const Executors& executors, const Membership* membership, const SecretKeys& secret_keys)
        : plan_(plan), executors_(executors), membership_(membership), secret_keys_(secret_keys) {}

    std::vector<FieldError> run() {
        for (std::uint32_t i = 0; i < plan_.spec.tasks.size(); ++i) {
            check_references(i);
            check_canary(i);
            check_reruns(i);
        }
        check_roles();
        return std::move(problems_);
    }

private:
    std::string at(std::uint32_t task, std::string_view field) const {
        return fmt::format("{}.{}", plan_.spec.tasks[task].path, field);
    }
    void wrong(std::string path, std::string message) { problems_.push_back({std::move(path), std::move(message)}); }

    void check_references(std::uint32_t i) {
        const auto& task = plan_.spec.tasks[i];
        check_value(i, "with", task.with);
        check_value(i, "run", task.run.body);
        check_value(i, "check", task.check.body);
        check_value(i, "verify", task.verify.body);
        check_value(i, "undo", task.undo.body);
        for (const auto& text : task.artefacts) {
            check_value(i, "artefacts", json::value(text));
            if (text.find("${secret.") != text.npos) wrong(at(i, "artefacts"), "cannot use a secret: paths are shown");
        }
        for (const auto& [name, text] : task.environment) check_value(i, "env." + name, json::value(text));
    }

    void check_value(std::uint32_t task, const std::string& field, const json::value& value) {
        if (const auto open = unclosed_reference(value))
            wrong(at(task, field), fmt::format("{} is not closed: add \"}}\", or write $${{ for the shell's own", *open));
        std::set<std::string> seen; // a script may use one value many times
        for (const auto& text : references_in(value)) {
            if (!seen.insert(text).second) continue;
            const auto reference = parse_reference(text);
            const auto message = reference.ok() ? reference_problem(task, field, *reference) : reference.error().message;
            if (message.empty()) continue;
            wrong(at(task, field), reference.ok() ? fmt::format("${{{}}}: {}", text, message) : message);
        }
    }

    /// What is wrong with it; empty: nothing.
    std::string reference_problem(std::uint32_t task, std::string_view field, const Reference& reference) {
        const auto& spec = plan_.spec.tasks[task];
        switch (reference.type) {
        case Reference::Type::with:
            if (field == "with") return "\"with\" cannot use itself";
            return spec.with.contains(reference.name) ? "" : fmt::format("the task's \"with\" has no {}", reference.name);
        case Reference::Type::task: return value_problem(task, field, reference);
        case Reference::Type::node:
            return spec.on.type == OnSpec::Type::server || spec.together ? "the task has no node of its own" : "";
        case Reference::Type::secret: return secret_problem(reference);
        case Reference::Type::param:
            return plan_.spec.parameters.contains(reference.name) ? "" : fmt::format("the job has no parameter {}", reference.name);
        default: return {};
        }
    }

    std::string secret_problem(const Reference& reference) {
        if (!secret_keys_) return {};
        const auto keys = secret_keys_(reference.name);
        if (!keys) return fmt::format("there is no Secret {}: create it first", reference.name);
        if (std::find(keys->begin(), keys->end(), reference.field) != keys->end()) return {};
        return fmt::format("Secret {} has no key {}{}", reference.name, reference.field, suggestion(reference.field, *keys));
    }

    std::string value_problem(std::uint32_t task, std::string_view field, const Reference& reference) {
        const auto other = plan_.find_group(reference.name);
        if (!other) {
            std::vector<std::string> names;
            for (const auto& one : plan_.spec.tasks) names.push_back(one.name);
            return fmt::format("there is no task {}{}", reference.name, suggestion(reference.name, names));
        }
        const bool own = *other == task && (field == "verify" || field == "undo"); // it has run by then
        if (!own && !comes_before(*other, task))
            return *other == task ? std::string("a task cannot use its own values before it has run")
                                  : fmt::format("task {} need not be over by then: add it to \"after\"", reference.name);
        const auto& run = plan_.spec.tasks[*other].run;
        if (!run.given()) return fmt::format("task {} runs nothing, so it publishes no values", reference.name);
        const auto* executor = executors_.find(run.executor);
        const auto published = executor == nullptr ? std::nullopt : executor->published(run.body);
        if (!published || std::find(published->begin(), published->end(), reference.field) != published->end()) return {};
        if (published->empty())
            return fmt::format("task {} publishes no values: tasks of {} never do", reference.name, run.executor);
        return fmt::format("task {} publishes no value {}{}", reference.name, reference.field,
                           suggestion(reference.field, *published));
    }

    /// Is `other` over when this one begins? The nearest first: that is where it usually is.
    bool comes_before(std::uint32_t other, std::uint32_t task) const {
        std::vector<bool> seen(plan_.groups.size(), false);
        std::vector<std::uint32_t> work{task};
        for (std::size_t at = 0; at < work.size(); ++at)
            for (const auto& edge : plan_.groups[work[at]].after) {
                if (edge.group == other) return true;
                if (seen[edge.group]) continue;
                seen[edge.group] = true;
                work.push_back(edge.group);
            }
        return false;
    }

    void check_canary(std::uint32_t i) {
        const auto& batch = plan_.spec.tasks[i].batch;
        const auto& group = plan_.groups[i];
        if (!batch || group.hosts.empty() || batch->canary <= static_cast<int>(group.count)) return;
        wrong(at(i, "batch.canary"), fmt::format("is {}, and the task has {} node{}: at most {} can be canaries", batch->canary,
                                                 group.count, group.count == 1 ? "" : "s", group.count));
    }

    bool provided(const ServiceRef& wanted) const {
        return std::any_of(plan_.spec.tasks.begin(), plan_.spec.tasks.end(), [&](const TaskSpec& task) {
            return std::any_of(task.provides.begin(), task.provides.end(), [&](const ServiceRef& ref) {
                return ref.service == wanted.service && (wanted.tag.empty() || ref.tag == wanted.tag);
            });
        });
    }

    void check_reruns(std::uint32_t i) {
        if (membership_ == nullptr) return;
        const auto& reruns = plan_.spec.tasks[i].rerun_on;
        for (std::size_t k = 0; k < reruns.size(); ++k) {
            const auto& of = reruns[k].of;
            if (provided(of)) continue;
            if (membership_->declared(of.service)) continue; // others may register it later
            const auto members = membership_->members(of.service, of.tag);
            if (!members.ok() || !members->all.empty()) continue; // no evidence is not absence
            wrong(at(i, fmt::format("rerun_on[{}]", k)),
                  fmt::format("there is no service {}{}{}: no task of the job provides it, and no instance is registered; it would "
                              "never run again",
                              of.service, of.tag.empty() ? "" : ":", of.tag));
        }
    }

    void check_roles() {
        std::set<std::string> roles(plan_.roles.begin(), plan_.roles.end());
        roles.erase("");
        for (const auto& [role, limit] : plan_.spec.per_role)
            if (!roles.contains(role))
                wrong(fmt::format("spec.limits.per_role.{}", role),
                      fmt::format("the plan has no node of role {}{}", role, suggestion(role, {roles.begin(), roles.end()})));
    }

    const Plan& plan_;
    const Executors& executors_;
    const Membership* membership_;
    const SecretKeys& secret_keys_;
    std::vector<FieldError> problems_;
};

} // namespace

std::vector<FieldError> check_submission(const Plan& plan, const Executors& executors, const Membership* membership,
                                         const SecretKeys& secret_keys) {
    return SubmissionCheck(plan, executors, membership, secret_keys).run();
}

Task<std::vector<FieldError>> missing_files(Context ctx, const Executors& executors, const json::object& spec) {
    JobSpec job;
    std::vector<FieldError> out, misread;
    if (!read_job(spec, job, misread)) co_return out;
    for (const auto& task : job.tasks) {
        const auto parts = parts_of(task);
        for (const auto& [name, run] : parts) {
            const auto* executor = executors.find(run->executor);
            if (executor == nullptr) continue;
            CO_TRY(auto missing, co_await executor->missing_files(ctx, run->body));
            for (auto& field : missing)
                out.push_back({fmt::format("{}.{}.{}.{}", task.path, name, run->executor, field.path), std::move(field.message)});
        }
    }
    co_return out;
}

Task<Unit> await_services(Context ctx, Membership& membership, const json::object& spec) {
    JobSpec job;
    std::vector<FieldError> misread;
    if (!read_job(spec, job, misread)) co_return Unit{};
    std::set<std::string> services;
    const auto add = [&](const BarrierSpec& barrier) {
        if (!barrier.is_dns()) services.insert(barrier.service);
    };
    for (const auto& task : job.tasks) {
        std::for_each(task.wait.begin(), task.wait.end(), add);
        for (const auto& rerun : task.rerun_on) services.insert(rerun.of.service);
    }
    std::for_each(job.done.begin(), job.done.end(), add);
    co_return co_await membership.await_answers(ctx, {services.begin(), services.end()});
}

} // namespace orrery::jobs
