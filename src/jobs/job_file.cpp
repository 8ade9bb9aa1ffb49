#include "jobs/job_file.h"

#include "jobs/job_file_reader.h"

#include <set>
#include <utility>

namespace orrery::jobs {

namespace {

constexpr std::size_t max_tasks = 10'000;

void read_limits(FieldReader& fields, JobSpec& job) {
    const auto* limits = fields.find("limits");
    if (limits == nullptr) return;
    if (!limits->is_object()) return fields.wrong("limits", "must be {slots, per_host, per_role}");
    FieldReader inner(limits->get_object(), "spec.limits", fields.errors());
    inner.number("slots", job.slots, 1, 1'000'000);
    inner.number("per_host", job.per_host, 1, 1'000);
    if (const auto* roles = inner.find("per_role"); roles != nullptr && roles->is_object()) {
        FieldReader each(roles->get_object(), "spec.limits.per_role", fields.errors());
        for (const auto& [role, value] : roles->get_object()) each.number(role, job.per_role[std::string(role)], 0, 100'000);
    } else if (roles != nullptr) {
        inner.wrong("per_role", "must be roles and numbers");
    }
    inner.finish();
}

void read_done(FieldReader& fields, JobSpec& job) {
    const auto add = [&](const json::value& value, const std::string& path) {
        if (auto barrier = read_barrier(value, path, fields.errors())) job.done.push_back(std::move(*barrier));
    };
    const auto* done = fields.find("done");
    if (done == nullptr) return;
    if (!done->is_object() || !done->get_object().contains("services")) return fields.several("done", add);
    FieldReader inner(done->get_object(), "spec.done", fields.errors());
    inner.duration("hold", job.done_hold);
    inner.several("services", add);
    inner.finish();
}

/// Path and value of each task: of a list, or of a map from names to tasks.
std::vector<std::pair<std::string, const json::value*>> find_tasks(FieldReader& fields) {
    std::vector<std::pair<std::string, const json::value*>> given;
    if (const auto* tasks = fields.find("tasks"); tasks != nullptr && tasks->is_array()) {
        for (const auto& task : tasks->get_array()) given.emplace_back(fmt::format("spec.tasks[{}]", given.size()), &task);
    } else if (tasks != nullptr && tasks->is_object()) {
        for (const auto& [name, task] : tasks->get_object())
            given.emplace_back(fmt::format("spec.tasks.{}", std::string_view(name).substr(0, max_name)), &task);
    }
    if (given.empty()) fields.wrong("tasks", "must be a list of tasks, at least one");
    if (given.size() > max_tasks) {
        fields.wrong("tasks", fmt::format("may have at most {} entries; one entry stands for any number of nodes", max_tasks));
        given.clear();
    }
    return given;
}

/// False: an entry is not a task at all.
bool read_tasks(FieldReader& fields, JobSpec& job) {
    bool readable = true;
    auto& errors = fields.errors();
    const auto given = find_tasks(fields);
    std::set<std::string> names;
    for (const auto& [path, value] : given) {
        if (!value->is_object()) {
            errors.push_back({path, "must be a task: {name, on, after, wait, run, ...}"});
            readable = false;
            continue;
        }
        auto object = value->get_object();
        if (!path.ends_with(']')) {
            if (object.contains("name")) errors.push_back({path + ".name", "is redundant: the task's key is its name"});
            object["name"] = path.substr(11);
        }
        auto task = read_task(object, path, errors);
        task.path = path;
        if (!names.insert(task.name).second)
            errors.push_back({path + ".name", fmt::format("the name {} is used twice", task.name)});
        job.tasks.push_back(std::move(task));
    }
    return readable;
}

void collect_references(const json::value& value, std::vector<std::string>& out) {
    if (const auto* text = value.if_string()) {
        const std::string_view all(*text);
        for (std::size_t at = all.find("${"); at != all.npos; at = all.find("${", at + 2)) {
            if (at > 0 && all[at - 1] == '$') continue; // "$${HOME}" is the shell's
            const auto end = all.find('}', at);
            if (end == all.npos) return;
            out.emplace_back(all.substr(at + 2, end - at - 2));
        }
    } else if (const auto* list = value.if_array()) {
        for (const auto& item : *list) collect_references(item, out);
    } else if (const auto* object = value.if_object()) {
        for (const auto& [key, item] : *object) collect_references(item, out);
    }
}

} // namespace

std::optional<std::string> unclosed_reference(const json::value& value) {
    if (const auto* text = value.if_string()) {
        const std::string_view all(*text);
        for (std::size_t at = all.find("${"); at != all.npos; at = all.find("${", at + 2))
            if ((at == 0 || all[at - 1] != '$') && all.find('}', at) == all.npos) return std::string(all.substr(at, 40));
    } else if (const auto* list = value.if_array()) {
        for (const auto& item : *list)
            if (auto found = unclosed_reference(item)) return found;
    } else if (const auto* object = value.if_object()) {
        for (const auto& [key, item] : *object)
            if (auto found = unclosed_reference(item)) return found;
    }
    return {};
}

std::vector<std::string> references_in(const json::value& value) {
    std::vector<std::string> out;
    collect_references(value, out);
    return out;
}

bool read_job(const json::object& spec, JobSpec& job, std::vector<FieldError>& errors) {
    FieldReader fields(spec, "spec", errors);
    fields.text("description", job.description, 1024);
    for (const auto* of_template : {"template", "schedule", "due_at"}) fields.find(of_template); // checked by the kind's table
    if (const auto* parameters = fields.find("parameters")) {
        if (parameters->is_object())
            job.parameters = parameters->get_object();
        else
            fields.wrong("parameters", "must be names and values");
    }
    fields.approval(job.approve, job.approve_by_another);
    read_limits(fields, job);
    read_done(fields, job);
    const bool readable = read_tasks(fields, job);
    fields.finish();
    return readable && !job.tasks.empty();
}

Result<JobSpec> read_job(const json::object& spec) {
    JobSpec job;
    std::vector<FieldError> errors;
    read_job(spec, job, errors);
    if (errors.empty()) return job;
    Error error{Code::invalid, fmt::format("the job has {} error{}", errors.size(), errors.size() == 1 ? "" : "s")};
    error.fields = std::move(errors);
    return error;
}

} // namespace orrery::jobs
