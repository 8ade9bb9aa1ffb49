#include "jobs/job_file.h"

#include "core/ids.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace orrery::jobs {

std::string_view name_of(MemberState state) {
    switch (state) {
    case MemberState::registered: return "registered";
    case MemberState::usable: return "usable";
    case MemberState::passing: return "passing";
    }
    return "passing";
}

Result<MemberState> parse_member_state(std::string_view text) {
    for (const auto state : {MemberState::registered, MemberState::usable, MemberState::passing})
        if (name_of(state) == text) return state;
    return Error{Code::invalid, fmt::format("must be registered, usable or passing, got \"{}\"", text.substr(0, 64))};
}

std::string Count::text() const {
    switch (what) {
    case What::number: return std::to_string(number);
    case What::hosts: return fmt::format("hosts({})", role);
    case What::all: return "all";
    }
    return {};
}

std::string BarrierSpec::text() const {
    return fmt::format("{} of {}{}{} {}{}", count.text(), service, tag.empty() ? "" : ":", tag, name_of(state),
                       hold > Duration::zero() ? " for " + to_text(hold) : "");
}

std::int64_t Share::of(std::int64_t whole) const {
    if (!percent) return number;
    if (number == 0) return 0;
    return std::max<std::int64_t>(1, whole * number / 100);
}

namespace {

constexpr std::size_t max_tasks = 10'000;
constexpr std::size_t max_name = 128;
constexpr std::size_t max_path = 1024, max_artefacts = 16;

/// Reads fields of one object, and remembers which there are, so that those left over can be named.
class FieldReader {
public:
    FieldReader(const json::object& object, std::string path, std::vector<FieldError>& errors)
        : object_(object), path_(std::move(path)), errors_(errors) {}

    const json::value* find(std::string_view name) {
        known_.push_back(name);
        const auto* value = object_.if_contains(name);
        return value == nullptr || value->is_null() ? nullptr : value;
    }
    std::string at(std::string_view name) const { return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name); }
    void wrong(std::string_view name, std::string message) { errors_.push_back({at(name), std::move(message)}); }

    void text(std::string_view name, std::string& out, std::size_t longest = 1024) {
        const auto* value = find(name);
        if (value == nullptr) return;
        if (!value->is_string() || value->get_string().size() > longest) {
            wrong(name, fmt::format("must be a text of at most {} characters", longest));
            return;
        }
        out = std::string_view(value->get_string());
    }
    void flag(std::string_view name, bool& out) {
        const auto* value = find(name);
        if (value == nullptr) return;
        if (!value->is_bool()) return wrong(name, "must be true or false");
        out = value->get_bool();
    }
    void number(std::string_view name, int& out, int least, int greatest) {
        const auto* value = find(name);
        if (value == nullptr) return;
        if (!value->is_int64() || value->get_int64() < least || value->get_int64() > greatest)
            return wrong(name, fmt::format("must be a number from {} to {}", least, greatest));
        out = static_cast<int>(value->get_int64());
    }
    bool duration(std::string_view name, Duration& out, Duration least = Duration::zero()) {
        const auto* value = find(name);
        if (value == nullptr) return false;
        auto read =
            value->is_string() ? parse_duration(std::string_view(value->get_string())) : Result<Duration>(Error{Code::invalid, ""});
        if (!read.ok() || *read < least || *read > std::chrono::hours(24 * 366)) {
            wrong(name, fmt::format("must be a time such as 30s or 10m{}", least > Duration::zero() ? ", more than nothing" : ""));
            return false;
        }
        out = *read;
        return true;
    }
    /// One or several: calls `each(value, path)`.
    template <class F> void several(std::string_view name, F each, std::size_t most = 1000) {
        const auto* value = find(name);
        if (value == nullptr) return;
        if (!value->is_array()) return each(*value, at(name));
        if (value->get_array().size() > most) return wrong(name, fmt::format("may have at most {} entries", most));
        for (std::size_t i = 0; i < value->get_array().size(); ++i) each(value->get_array()[i], fmt::format("{}[{}]", at(name), i));
    }
    void names(std::string_view name, std::vector<std::string>& out) {
        several(
            name,
            [&](const json::value& value, const std::string& path) {
                if (!value.is_string() || value.get_string().empty() || value.get_string().size() > 253)
                    errors_.push_back({path, "must be a name"});
                else
                    out.emplace_back(std::string_view(value.get_string()));
            },
            100'000);
    }
    /// Names what nobody asked for.
    void finish() {
        for (const auto& [key, value] : object_) {
            if (std::find(known_.begin(), known_.end(), std::string_view(key)) != known_.end()) continue;
            const auto near = nearest(key, known_.data(), known_.data() + known_.size());
            errors_.push_back({at(std::string_view(key).substr(0, 64)),
                               near.empty() ? "is not known" : fmt::format("is not known; did you mean {}?", near)});
        }
    }
    std::vector<FieldError>& errors() { return errors_; }

private:
    const json::object& object_;
    std::string path_;
    std::vector<FieldError>& errors_;
    std::vector<std::string_view> known_;
};

using Errors = std::vector<FieldError>;

bool is_word(std::string_view text) {
    return !text.empty() && text.size() <= max_name && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    });
}

std::optional<Share> read_share(const json::value& value) {
    Share share;
    if (value.is_int64()) {
        share.number = value.get_int64();
        if (share.number < 0 || share.number > 1'000'000) return {};
        return share;
    }
    if (!value.is_string()) return {};
    const std::string_view text(value.get_string());
    if (!text.ends_with('%')) return {};
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size() - 1, share.number);
    if (failed != std::errc{} || end != text.data() + text.size() - 1 || share.number < 0 || share.number > 100) return {};
    share.percent = true;
    return share;
}

/// "glance", "glance:lb" or {service, tag}.
std::optional<ServiceRef> service_of(std::string_view text) {
    const auto colon = text.find(':');
    ServiceRef ref{std::string(text.substr(0, colon)), colon == text.npos ? "" : std::string(text.substr(colon + 1))};
    if (!is_word(ref.service) || (colon != text.npos && !is_word(ref.tag))) return {};
    return ref;
}

void read_service(FieldReader& fields, ServiceRef& out) {
    std::string service, tag;
    fields.text("service", service, max_name);
    fields.text("tag", tag, max_name);
    auto ref = service_of(service);
    if (!ref) return fields.wrong("service", "must be a service's name, such as mysql or glance:lb");
    out = std::move(*ref);
    if (tag.empty()) return;
    if (!out.tag.empty() || !is_word(tag)) return fields.wrong("tag", "must be one word, and said once");
    out.tag = std::move(tag);
}

void read_count(FieldReader& fields, Count& out) {
    const auto* value = fields.find("count");
    if (value == nullptr) return;
    if (value->is_int64() && value->get_int64() >= 1 && value->get_int64() <= 1'000'000) {
        out.number = value->get_int64();
        return;
    }
    if (value->is_string()) {
        const std::string_view text(value->get_string());
        if (text == "all") {
            out.what = Count::What::all;
            return;
        }
        if (text.starts_with("hosts(") && text.ends_with(')') && is_word(text.substr(6, text.size() - 7))) {
            out.what = Count::What::hosts;
            out.role = text.substr(6, text.size() - 7);
            return;
        }
    }
    fields.wrong("count", "must be a number from 1, hosts(ROLE) or all");
}

std::optional<BarrierSpec> read_barrier(const json::value& value, const std::string& path, Errors& errors) {
    BarrierSpec barrier;
    if (value.is_string()) {
        auto ref = service_of(std::string_view(value.get_string()));
        if (!ref) {
            errors.push_back({path, "must be a service's name, such as mysql or glance:lb, or {service, tag, state, count, ...}"});
            return {};
        }
        barrier.service = std::move(ref->service);
        barrier.tag = std::move(ref->tag);
        return barrier;
    }
    if (!value.is_object()) {
        errors.push_back({path, "must be {service, tag, state, count, hold, deadline, on_timeout}"});
        return {};
    }
    FieldReader fields(value.get_object(), path, errors);
    ServiceRef ref;
    read_service(fields, ref);
    barrier.service = std::move(ref.service);
    barrier.tag = std::move(ref.tag);
    std::string state = "passing", on_timeout = "fail";
    fields.text("state", state, 16);
    if (auto read = parse_member_state(state); read.ok())
        barrier.state = *read;
    else
        fields.wrong("state", read.error().message);
    read_count(fields, barrier.count);
    fields.duration("hold", barrier.hold);
    Duration deadline{};
    if (fields.duration("deadline", deadline, std::chrono::milliseconds(1))) barrier.deadline = deadline;
    fields.text("on_timeout", on_timeout, 16);
    if (on_timeout == "fail")
        barrier.on_timeout = OnTimeout::fail;
    else if (on_timeout == "ask")
        barrier.on_timeout = OnTimeout::ask;
    else if (on_timeout == "continue")
        barrier.on_timeout = OnTimeout::go_on;
    else
        fields.wrong("on_timeout", "must be fail, ask or continue");
    fields.finish();
    return barrier;
}

void read_run(FieldReader& fields, std::string_view name, RunSpec& out) {
    const auto* value = fields.find(name);
    if (value == nullptr) return;
    if (value->is_string() || value->is_array()) { // a script, or blocks
        out.executor = "ssh";
        out.body = json::object{{value->is_string() ? "script" : "blocks", *value}};
        return;
    }
    if (!value->is_object() || value->get_object().size() != 1) {
        fields.wrong(name,
                     "must be a script, a list of blocks, or one executor with its body, as in {ansible: {playbook: site.yml}}");
        return;
    }
    out.executor = value->get_object().begin()->key();
    out.body = value->get_object().begin()->value();
    if (!is_word(out.executor)) fields.wrong(name, "must name an executor");
}

void read_on(FieldReader& fields, OnSpec& out) {
    const auto* value = fields.find("on");
    if (value == nullptr) return;
    if (value->is_string()) {
        if (!is_word(std::string_view(value->get_string()))) return fields.wrong("on", "must be a role, or {role, labels, nodes}");
        out.what = OnSpec::What::labels;
        out.labels = fmt::format("role={}", std::string_view(value->get_string()));
        return;
    }
    if (value->is_array()) {
        out.what = OnSpec::What::nodes;
        return fields.names("on", out.nodes);
    }
    if (!value->is_object()) return fields.wrong("on", "must be a role, a list of nodes, or {role, labels, nodes}");
    FieldReader inner(value->get_object(), fields.at("on"), fields.errors());
    std::string role, labels;
    inner.text("role", role, max_name);
    inner.text("labels", labels, 1024);
    inner.names("nodes", out.nodes);
    inner.finish();
    if (!role.empty() && !is_word(role)) inner.wrong("role", "must be one word");
    if (out.nodes.empty() == (role.empty() && labels.empty()))
        return fields.wrong("on", "must have either nodes, or role and labels");
    out.what = out.nodes.empty() ? OnSpec::What::labels : OnSpec::What::nodes;
    out.labels = role.empty() ? labels : fmt::format("role={}{}{}", role, labels.empty() ? "" : ",", labels);
}

void read_retries(FieldReader& fields, RetrySpec& out) {
    const auto* value = fields.find("retries");
    if (value == nullptr) return;
    if (value->is_int64()) return fields.number("retries", out.times, 0, 100);
    if (!value->is_object()) return fields.wrong("retries", "must be a number, or {times, first, longest, on}");
    FieldReader inner(value->get_object(), fields.at("retries"), fields.errors());
    inner.number("times", out.times, 0, 100);
    inner.duration("first", out.first, std::chrono::milliseconds(1));
    inner.duration("longest", out.longest, std::chrono::milliseconds(1));
    std::vector<std::string> classes;
    inner.names("on", classes);
    inner.finish();
    if (classes.empty()) return;
    out.on.clear();
    for (const auto& name : classes) {
        bool found = false;
        for (const auto error :
             {ErrorClass::connect, ErrorClass::lost, ErrorClass::timeout, ErrorClass::failed, ErrorClass::no_space})
            if (name_of(error) == name) {
                out.on.push_back(error);
                found = true;
            }
        if (!found)
            inner.wrong("on", fmt::format("must be of connect, lost, timeout, failed, no_space; got \"{}\"", name.substr(0, 64)));
    }
}

void read_batch(FieldReader& fields, std::optional<BatchSpec>& out) {
    const auto* value = fields.find("batch");
    if (value == nullptr) return;
    BatchSpec batch;
    if (!value->is_object()) {
        const auto share = read_share(*value);
        if (!share || share->number == 0)
            return fields.wrong("batch", "must be a number, a share such as 10%, or {canary, serial, max_fail, hold, through}");
        batch.serial.push_back(*share);
        out = std::move(batch);
        return;
    }
    FieldReader inner(value->get_object(), fields.at("batch"), fields.errors());
    inner.number("canary", batch.canary, 0, 100'000);
    inner.several("serial", [&](const json::value& one, const std::string& path) {
        const auto share = read_share(one);
        if (!share || share->number == 0)
            fields.errors().push_back({path, "must be a number from 1, or a share such as 10%"});
        else
            batch.serial.push_back(*share);
    });
    if (const auto* most = inner.find("max_fail")) {
        const auto share = read_share(*most);
        if (!share)
            inner.wrong("max_fail", "must be a number, or a share such as 10%");
        else
            batch.max_fail = *share;
    }
    inner.duration("hold", batch.hold);
    inner.text("through", batch.through, max_name);
    inner.finish();
    if (batch.serial.empty()) batch.serial.push_back({100, true});
    out = std::move(batch);
}

void read_after(FieldReader& fields, TaskSpec& task) {
    bool same_host = false;
    fields.flag("same_host", same_host);
    fields.several("after", [&](const json::value& value, const std::string& path) {
        AfterSpec after;
        after.same_host = same_host;
        if (value.is_string()) {
            after.task = std::string_view(value.get_string());
        } else if (value.is_object()) {
            FieldReader inner(value.get_object(), path, fields.errors());
            inner.text("task", after.task, max_name);
            inner.flag("same_host", after.same_host);
            inner.finish();
        }
        if (after.task.empty())
            fields.errors().push_back({path, "must be a task's name, or {task, same_host}"});
        else
            task.after.push_back(std::move(after));
    });
}

void read_rerun(FieldReader& fields, TaskSpec& task) {
    fields.several("rerun_on", [&](const json::value& value, const std::string& path) {
        RerunSpec rerun;
        if (value.is_string()) {
            auto ref = service_of(std::string_view(value.get_string()));
            if (!ref) {
                fields.errors().push_back({path, "must be a service's name, such as mysql or glance:real"});
                return;
            }
            rerun.of = std::move(*ref);
        } else if (value.is_object()) {
            FieldReader inner(value.get_object(), path, fields.errors());
            read_service(inner, rerun.of);
            inner.duration("debounce", rerun.debounce);
            inner.duration("min_interval", rerun.min_interval);
            inner.finish();
        } else {
            fields.errors().push_back({path, "must be a service's name, or {service, tag, debounce, min_interval}"});
            return;
        }
        task.rerun_on.push_back(std::move(rerun));
    });
}

void read_provides(FieldReader& fields, TaskSpec& task) {
    fields.several("provides", [&](const json::value& value, const std::string& path) {
        std::optional<ServiceRef> ref;
        if (value.is_string()) {
            ref = service_of(std::string_view(value.get_string()));
        } else if (value.is_object()) {
            ref.emplace();
            FieldReader inner(value.get_object(), path, fields.errors());
            read_service(inner, *ref);
            inner.finish();
        }
        if (!ref)
            fields.errors().push_back({path, "must be a service's name, such as mysql or glance:real"});
        else
            task.provides.push_back(std::move(*ref));
    });
}

void read_artefacts(FieldReader& fields, TaskSpec& task) {
    fields.several("artefacts", [&](const json::value& value, const std::string& path) {
        const auto text = value.is_string() ? std::string(std::string_view(value.get_string())) : std::string();
        const bool plain = text.find("/../") == text.npos && !text.ends_with("/..") &&
                           std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20; });
        if (!plain || !text.starts_with('/') || text.ends_with('/') || text.size() > max_path)
            fields.errors().push_back({path, "must be the absolute path of a file on the task's machine, without \"..\""});
        else
            task.artefacts.push_back(text);
    });
    if (task.artefacts.size() > max_artefacts) fields.wrong("artefacts", fmt::format("may name at most {} files", max_artefacts));
    if (!task.artefacts.empty() && task.on.what == OnSpec::What::server)
        fields.wrong("artefacts", "needs \"on\": files are collected from machines");
    if (!task.artefacts.empty() && !task.run.given()) fields.wrong("artefacts", "needs \"run\"");
}

TaskSpec read_task(const json::object& object, const std::string& path, Errors& errors) {
    TaskSpec task;
    FieldReader fields(object, path, errors);
    fields.text("name", task.name, max_name);
    if (!is_word(task.name)) fields.wrong("name", "must be letters, digits, - _ and . only, at most 128");
    read_on(fields, task.on);
    fields.flag("together", task.together);
    read_after(fields, task);
    fields.several("wait", [&](const json::value& value, const std::string& where) {
        if (auto barrier = read_barrier(value, where, errors)) task.wait.push_back(std::move(*barrier));
    });
    read_run(fields, "run", task.run);
    read_run(fields, "check", task.check);
    read_run(fields, "verify", task.verify);
    read_run(fields, "undo", task.undo);
    if (const auto* with = fields.find("with")) {
        if (with->is_object())
            task.with = with->get_object();
        else
            fields.wrong("with", "must be names and values");
    }
    if (const auto* environment = fields.find("env")) {
        if (!environment->is_object())
            fields.wrong("env", "must be names and texts");
        else
            for (const auto& [key, value] : environment->get_object()) {
                if (!value.is_string() || !is_word(key) || key.starts_with("ORRERY_"))
                    fields.wrong("env", fmt::format("\"{}\" must be a word not beginning with ORRERY_, and its value a text",
                                                    std::string_view(key).substr(0, 64)));
                else
                    task.environment[std::string(key)] = std::string_view(value.get_string());
            }
    }
    read_artefacts(fields, task);
    read_retries(fields, task.retries);
    fields.duration("timeout", task.timeout, std::chrono::milliseconds(1));
    fields.text("lock", task.lock, max_name);
    fields.number("slots", task.slots, 1, 100'000);
    read_batch(fields, task.batch);
    read_rerun(fields, task);
    fields.flag("approve", task.approve);
    fields.flag("idempotent", task.idempotent);
    if (const auto* rolling = fields.find("rolling"); rolling != nullptr && rolling->is_string()) {
        task.rolling = true;
        fields.text("rolling", task.rolling_through, max_name);
    } else {
        fields.flag("rolling", task.rolling);
    }
    read_provides(fields, task);
    fields.finish();
    if (task.together && task.on.what == OnSpec::What::server) fields.wrong("together", "needs \"on\"");
    if (task.together && task.batch) fields.wrong("batch", "a task that runs once for all machines has no batches");
    if (task.together && task.rolling) fields.wrong("rolling", "a task that runs once for all machines cannot roll");
    if (task.on.what == OnSpec::What::server && (task.batch || task.rolling))
        fields.wrong(task.batch ? "batch" : "rolling", "needs \"on\"");
    if (!task.run.given())
        for (const auto* part : {"check", "verify", "undo"})
            if (object.contains(part)) fields.wrong(part, "needs \"run\"");
    if (task.retries.times > 0 && task.retries.longest < task.retries.first)
        fields.wrong("retries.longest", "must not be less than first");
    return task;
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

std::vector<std::string> references_in(const json::value& value) {
    std::vector<std::string> out;
    collect_references(value, out);
    return out;
}

Result<JobSpec> read_job(const json::object& spec) {
    JobSpec job;
    Errors errors;
    FieldReader fields(spec, "spec", errors);
    fields.text("description", job.description, 1024);
    fields.flag("approve", job.approve);
    if (const auto* limits = fields.find("limits")) {
        if (!limits->is_object()) {
            fields.wrong("limits", "must be {slots, per_host, per_role}");
        } else {
            FieldReader inner(limits->get_object(), "spec.limits", errors);
            inner.number("slots", job.slots, 1, 1'000'000);
            inner.number("per_host", job.per_host, 1, 1'000);
            if (const auto* roles = inner.find("per_role"); roles != nullptr && roles->is_object()) {
                FieldReader each(roles->get_object(), "spec.limits.per_role", errors);
                for (const auto& [role, value] : roles->get_object())
                    each.number(role, job.per_role[std::string(role)], 0, 100'000);
            } else if (roles != nullptr) {
                inner.wrong("per_role", "must be roles and numbers");
            }
            inner.finish();
        }
    }
    if (const auto* done = fields.find("done")) {
        if (done->is_object() && done->get_object().contains("services")) {
            FieldReader inner(done->get_object(), "spec.done", errors);
            inner.duration("hold", job.done_hold);
            inner.several("services", [&](const json::value& value, const std::string& path) {
                if (auto barrier = read_barrier(value, path, errors)) job.done.push_back(std::move(*barrier));
            });
            inner.finish();
        } else {
            fields.several("done", [&](const json::value& value, const std::string& path) {
                if (auto barrier = read_barrier(value, path, errors)) job.done.push_back(std::move(*barrier));
            });
        }
    }
    // A list of tasks with names, or names with tasks: both read well.
    std::vector<std::pair<std::string, const json::value*>> given;
    if (const auto* tasks = fields.find("tasks"); tasks != nullptr && tasks->is_array()) {
        for (const auto& task : tasks->get_array()) given.emplace_back(fmt::format("spec.tasks[{}]", given.size()), &task);
    } else if (tasks != nullptr && tasks->is_object()) {
        for (const auto& [name, task] : tasks->get_object())
            given.emplace_back(fmt::format("spec.tasks.{}", std::string_view(name).substr(0, max_name)), &task);
    }
    if (given.empty()) fields.wrong("tasks", "must be a list of tasks, at least one");
    if (given.size() > max_tasks) {
        fields.wrong("tasks", fmt::format("may have at most {} entries; one entry stands for any number of machines", max_tasks));
        given.clear();
    }
    std::set<std::string> names;
    for (const auto& [path, value] : given) {
        if (!value->is_object()) {
            errors.push_back({path, "must be a task: {name, on, after, wait, run, ...}"});
            continue;
        }
        auto object = value->get_object();
        if (!path.ends_with(']')) {
            if (object.contains("name")) errors.push_back({path + ".name", "is said already: the task's key is its name"});
            object["name"] = path.substr(11);
        }
        auto task = read_task(object, path, errors);
        task.path = path;
        if (!names.insert(task.name).second)
            errors.push_back({path + ".name", fmt::format("there is another task called {}", task.name)});
        job.tasks.push_back(std::move(task));
    }
    fields.finish();
    if (errors.empty()) return job;
    Error error{Code::invalid, fmt::format("the job has {} mistake{}", errors.size(), errors.size() == 1 ? "" : "s")};
    error.fields = std::move(errors);
    return error;
}

} // namespace orrery::jobs
