#include "jobs/job_file_reader.h"

#include <charconv>

/// The tasks of a job file.
namespace orrery::jobs {

std::int64_t Share::of(std::int64_t whole) const {
    if (!percent) return number;
    if (number == 0) return 0;
    return std::max<std::int64_t>(1, whole * number / 100);
}

namespace {

constexpr std::size_t max_path = 1024, max_artefacts = 16;

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
    if (!is_plain_name(out.executor)) fields.wrong(name, "must name an executor");
}

void read_on(FieldReader& fields, OnSpec& out) {
    const auto* value = fields.find("on");
    if (value == nullptr) return;
    if (value->is_string()) {
        if (!is_plain_name(std::string_view(value->get_string())))
            return fields.wrong("on", "must be a role, or {role, labels, nodes}");
        out.type = OnSpec::Type::labels;
        out.labels = fmt::format("role={}", std::string_view(value->get_string()));
        return;
    }
    if (value->is_array()) {
        out.type = OnSpec::Type::nodes;
        if (value->get_array().empty())
            return fields.wrong("on", "names no node: name at least one, or leave \"on\" out for one task on the server");
        return fields.names("on", out.nodes);
    }
    if (!value->is_object()) return fields.wrong("on", "must be a role, a list of nodes, or {role, labels, nodes}");
    FieldReader inner(value->get_object(), fields.at("on"), fields.errors());
    std::string role, labels;
    inner.text("role", role, max_name);
    inner.text("labels", labels, 1024);
    inner.names("nodes", out.nodes);
    inner.finish();
    if (!role.empty() && !is_plain_name(role)) inner.wrong("role", "must be one word");
    if (out.nodes.empty() == (role.empty() && labels.empty()))
        return fields.wrong("on", "must have either nodes, or role and labels");
    out.type = out.nodes.empty() ? OnSpec::Type::labels : OnSpec::Type::nodes;
    out.labels = role.empty() ? labels : fmt::format("role={}{}{}", role, labels.empty() ? "" : ",", labels);
}

void read_retries(FieldReader& fields, RetrySpec& out) {
    const auto* value = fields.find("retries");
    if (value == nullptr) return;
    if (value->is_int64()) return fields.number("retries", out.times, 0, 100);
    if (!value->is_object()) return fields.wrong("retries", "must be a number, or {times, delay, max_delay, on}");
    FieldReader inner(value->get_object(), fields.at("retries"), fields.errors());
    inner.number("times", out.times, 0, 100);
    inner.duration("delay", out.delay, std::chrono::milliseconds(1));
    inner.duration("max_delay", out.max_delay, std::chrono::milliseconds(1));
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
            inner.wrong("on", fmt::format("must be of connect, lost, timeout, failed, no_space; got \"{}\"", truncate(name, 64)));
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
            auto ref = parse_service(std::string_view(value.get_string()));
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
            ref = parse_service(std::string_view(value.get_string()));
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
            fields.errors().push_back({path, "must be the absolute path of a file on the task's node, without \"..\""});
        else
            task.artefacts.push_back(text);
    });
    if (task.artefacts.size() > max_artefacts) fields.wrong("artefacts", fmt::format("may name at most {} files", max_artefacts));
    if (!task.artefacts.empty() && task.on.type == OnSpec::Type::server)
        fields.wrong("artefacts", "needs \"on\": files are fetched from nodes");
    if (!task.artefacts.empty() && !task.run.given()) fields.wrong("artefacts", "needs \"run\"");
}

void read_values(FieldReader& fields, TaskSpec& task) {
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
                if (!value.is_string() || !is_plain_name(key) || key.starts_with("ORRERY_"))
                    fields.wrong("env", fmt::format("\"{}\" must be a word not beginning with ORRERY_, and its value a text",
                                                    truncate(key, 64)));
                else
                    task.environment[std::string(key)] = std::string_view(value.get_string());
            }
    }
}

void read_rolling(FieldReader& fields, TaskSpec& task) {
    if (const auto* rolling = fields.find("rolling"); rolling != nullptr && rolling->is_string()) {
        task.rolling = true;
        fields.text("rolling", task.rolling_through, max_name);
    } else {
        fields.flag("rolling", task.rolling);
    }
}

/// Fields that exclude or need each other.
void check_task(FieldReader& fields, const json::object& object, const TaskSpec& task) {
    if (task.together && task.on.type == OnSpec::Type::server) fields.wrong("together", "needs \"on\"");
    if (task.together && task.batch) fields.wrong("batch", "a task that runs once for all nodes has no batches");
    if (task.together && task.rolling) fields.wrong("rolling", "a task that runs once for all nodes cannot roll");
    if (task.on.type == OnSpec::Type::server && (task.batch || task.rolling))
        fields.wrong(task.batch ? "batch" : "rolling", "needs \"on\"");
    if (!task.run.given())
        for (const auto* part : {"check", "verify", "undo"})
            if (object.contains(part)) fields.wrong(part, "needs \"run\"");
    if (task.retries.times > 0 && task.retries.max_delay < task.retries.delay)
        fields.wrong("retries.max_delay", "must not be less than delay");
}

} // namespace

TaskSpec read_task(const json::object& object, const std::string& path, std::vector<FieldError>& errors,
                   std::vector<std::string_view>* known) {
    TaskSpec task;
    FieldReader fields(object, path, errors);
    fields.text("name", task.name, max_name);
    if (!is_plain_name(task.name)) fields.wrong("name", "must be letters, digits, - _ and . only, at most 128");
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
    read_values(fields, task);
    read_artefacts(fields, task);
    read_retries(fields, task.retries);
    fields.duration("timeout", task.timeout, std::chrono::milliseconds(1));
    fields.text("lock", task.lock, max_name);
    fields.number("slots", task.slots, 1, 100'000);
    read_batch(fields, task.batch);
    read_rerun(fields, task);
    fields.approval(task.approve, task.approve_by_another);
    fields.flag("idempotent", task.idempotent);
    read_rolling(fields, task);
    read_provides(fields, task);
    fields.finish();
    if (known != nullptr) *known = fields.known();
    check_task(fields, object, task);
    return task;
}

std::vector<std::string_view> known_task_fields() {
    std::vector<std::string_view> known;
    std::vector<FieldError> ignored;
    std::ignore = read_task({}, {}, ignored, &known);
    return known;
}

} // namespace orrery::jobs
