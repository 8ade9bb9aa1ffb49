#include "cli/commands.h"
#include "cli/render.h"
#include "core/text.h"
#include "net/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>

/// why: the explanation of a resource of any kind.
namespace orrery::cli {

namespace {

bool is_one_of(std::string_view key, std::initializer_list<std::string_view> keys) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

bool is_scalar(const json::value& value) { return !value.is_object() && !value.is_array(); }

/// "pg-1 passing: its check passes (node db-1, port 5432)": name, state, message, other members.
std::string evidence_line(const json::object& one) {
    std::string name, state, message, others;
    for (const auto& [key, value] : one) {
        if (!is_scalar(value) || value.is_null()) continue;
        const auto shown = printable(value_text(value));
        if (name.empty())
            name = shown;
        else if (is_one_of(key, {"state", "status"}))
            state = shown;
        else if (is_one_of(key, {"message", "result", "waits_for", "why"}) && (message.empty() || key == "message"))
            message = shown;
        else
            others += fmt::format("{}{} {}", others.empty() ? "" : ", ", std::string_view(key), shown);
    }
    return fmt::format("{}{}{}{}{}{}", name, state.empty() ? "" : " ", state, message.empty() ? "" : ": ", message,
                       others.empty() ? "" : fmt::format(" ({})", others));
}

void print_nested(std::ostream& out, const json::object& object, std::size_t depth);

void print_list(std::ostream& out, const json::array& list, std::size_t depth) {
    for (const auto& one : list) {
        if (!one.is_object()) {
            out << fmt::format("{:{}}{}\n", "", depth, printable(value_text(one)));
            continue;
        }
        // An object without scalars, such as machines and their reasons, has no line of its own.
        const auto line = evidence_line(one.get_object());
        if (!line.empty()) out << fmt::format("{:{}}{}\n", "", depth, line);
        print_nested(out, one.get_object(), line.empty() ? depth : depth + 2);
    }
}

/// Prints the lists in an object; its scalars are on the line before.
void print_nested(std::ostream& out, const json::object& object, std::size_t depth) {
    for (const auto& [key, value] : object) {
        if (is_scalar(value) || (value.is_array() && value.get_array().empty()) ||
            (value.is_object() && value.get_object().empty()))
            continue;
        const bool plain = value.is_object() || std::all_of(value.get_array().begin(), value.get_array().end(), is_scalar);
        if (plain) {
            out << fmt::format("{:{}}{}: {}\n", "", depth, std::string_view(key), printable(value_text(value)));
            continue;
        }
        out << fmt::format("{:{}}{}:\n", "", depth, std::string_view(key));
        print_list(out, value.get_array(), depth + 2);
    }
}

void print_explanation(std::ostream& out, const json::object& answer) {
    out << printable(text_of(answer, "message")) << '\n';
    if (const auto* notes = answer.if_contains("notes"); notes != nullptr && notes->is_array())
        print_list(out, notes->get_array(), 2);
    for (const auto& [key, value] : answer) {
        if (is_one_of(key, {"kind", "name", "message", "notes"}) || !is_scalar(value) || value.is_null()) continue;
        out << fmt::format("  {}: {}\n", std::string_view(key), printable(value_text(value)));
    }
    auto others = answer;
    others.erase("notes");
    print_nested(out, others, 2);
}

/// The resource to explain, and for a job a task.
struct Subject {
    const KindView* kind = nullptr;
    std::string name, task;
};
/// Parses "job/bring-up mysql@db-1", or "job bring-up".
Result<Subject> why_subject(Invocation& invocation) {
    auto kind_name = invocation.text("SUBJECT");
    const auto second = invocation.text("TASK");
    Subject out;
    const auto slash = kind_name.find('/');
    if (slash != std::string::npos) {
        out.name = kind_name.substr(slash + 1);
        out.task = second;
        kind_name.resize(slash);
    } else {
        out.name = second;
    }
    if (kind_name.empty() || out.name.empty())
        return invocation.usage_error("the name of the resource is missing", "give KIND/NAME, as in: orrery why service/keystone");
    TRY(const auto* kinds, invocation.kinds());
    TRY(out.kind, kinds->find(kind_name));
    if (invocation.has("task")) out.task = invocation.text("task");
    return out;
}

} // namespace

Result<int> run_why(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto subject, why_subject(invocation));
    const auto form = invocation.text("output", "table");
    if (form == "table" && subject.kind->kind == "Job" && !subject.task.empty() && !invocation.has("at")) {
        invocation.values["JOB"] = {subject.name};
        invocation.values["TASK"] = {subject.task};
        return run_job_why(invocation);
    }
    if (form == "table" && subject.kind->kind == "LoadBalancer") {
        invocation.values["NAME"] = {subject.name};
        return run_gslb_why(invocation);
    }
    std::string query;
    const auto add = [&](std::string_view key, const std::string& value) {
        if (!value.empty()) query += fmt::format("{}{}={}", query.empty() ? "?" : "&", key, net::percent_encode(value));
    };
    add("task", subject.task);
    add("client", invocation.text("client"));
    if (invocation.has("at")) {
        TRY(const auto at, invocation.time("at"));
        add("at", at);
    }
    TRY(const auto answer, api->get(fmt::format("/v1/why/{}/{}{}", net::percent_encode(subject.kind->plural),
                                                net::percent_encode(subject.name), query)));
    auto& out = invocation.streams.out;
    if (form == "json")
        out << to_pretty_json(answer.body) << '\n';
    else if (form == "yaml")
        out << to_yaml(answer.body);
    else if (answer.body.is_object())
        print_explanation(out, answer.body.get_object());
    return exit_code::ok;
}

} // namespace orrery::cli
