#include "drivers/puppet/report.h"

#include "core/json_fields.h"
#include "core/text.h"
#include "core/truncate.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::drivers {

using jobs::ErrorClass;
using jobs::Outcome;

namespace {

constexpr std::size_t max_resources = 10'000;

/// "key: !ruby/object:Puppet::X value" becomes "key: value".
std::string without_ruby_tags(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const auto at = text.find("!ruby/");
        if (at == std::string_view::npos) break;
        out += text.substr(0, at);
        text.remove_prefix(at);
        // A tag can only be at the beginning of a value.
        const bool is_tag = out.empty() || out.ends_with(": ") || out.ends_with("- ");
        const auto length = is_tag ? std::min(text.find_first_of(" \n"), text.size()) : 6;
        if (!is_tag) out += text.substr(0, length);
        text.remove_prefix(length);
        if (is_tag && text.starts_with(' ')) text.remove_prefix(1);
    }
    out += text;
    return out;
}

std::string report_text(const json::object& from, std::string_view key) {
    const auto* value = from.if_contains(key);
    if (value == nullptr || value->is_null()) return {};
    std::string text = value->is_string() ? std::string(std::string_view(value->get_string())) : to_json_text(*value);
    if (text.size() > 2000) text = truncate(text, 2000) + "...";
    return text;
}

PuppetReport::Resource read_resource(std::string_view name, const json::object& from) {
    PuppetReport::Resource out;
    out.name = truncate(name, 300);
    out.failed = flag_at(from, "failed") || flag_at(from, "failed_to_restart");
    out.changed = flag_at(from, "changed");
    out.skipped = flag_at(from, "skipped");
    out.out_of_sync = flag_at(from, "out_of_sync");
    if (const double seconds = number_at(from, "evaluation_time"); seconds > 0 && seconds < 1e7)
        out.took = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    for (const auto& item : array_at(from, "events")) {
        const auto* event = item.if_object();
        if (event == nullptr || out.differences.size() >= 50) continue;
        const auto status = report_text(*event, "status");
        if (status == "audit") continue;
        const auto message = report_text(*event, "message");
        if (out.message.empty() || status == "failure") out.message = message;
        const bool hidden = flag_at(*event, "redacted");
        out.differences.push_back({fmt::format("{} {}", out.name, report_text(*event, "property")),
                                   hidden ? "(redacted)" : report_text(*event, "previous_value"),
                                   hidden ? "(redacted)" : report_text(*event, "desired_value")});
    }
    return out;
}

} // namespace

Result<PuppetReport> read_puppet_report(std::string_view text) {
    if (text.size() > max_text_size) return Error{Code::too_large, "the report is larger than 4 MiB"};
    TRY(auto documents, parse_yaml(without_ruby_tags(text)));
    const auto* root = documents.size() == 1 ? documents.front().value.if_object() : nullptr;
    if (root == nullptr || !root->contains("resource_statuses") || !root->contains("status"))
        return Error{Code::invalid, "the file is not a report of Puppet"};
    PuppetReport out;
    out.status = report_text(*root, "status");
    out.noop_pending = flag_at(*root, "noop_pending");
    for (const auto& item : array_at(*root, "logs")) {
        const auto* entry = item.if_object();
        if (entry == nullptr || report_text(*entry, "level") != "err") continue;
        const auto source = report_text(*entry, "source");
        const auto message = report_text(*entry, "message");
        if (out.first_error.empty() || source != "Puppet")
            out.first_error = source == "Puppet" ? message : fmt::format("{}: {}", source, message);
        if (source != "Puppet") break;
    }
    for (const auto& [name, value] : object_at(*root, "resource_statuses")) {
        if (!value.is_object() || out.resources.size() >= max_resources) continue;
        auto resource = read_resource(name, value.get_object());
        if (resource.failed || resource.changed || resource.out_of_sync || resource.skipped)
            out.resources.push_back(std::move(resource));
    }
    return out;
}

jobs::Outcome puppet_outcome(const Result<PuppetReport>& report, int exit_code, std::string_view last_error) {
    const bool has_report = report.ok();
    std::size_t failed = 0;
    bool changed = exit_code == 2 || exit_code == 6;
    if (has_report) {
        for (const auto& resource : report->resources) {
            failed += resource.failed ? 1 : 0;
            changed = changed || resource.changed;
        }
    }
    const auto message = has_report && !report->first_error.empty() ? report->first_error : std::string(last_error);
    Outcome outcome;
    if (exit_code == 127) {
        outcome = Outcome::failure(ErrorClass::refused, "puppet is not installed on the node", exit_code);
    } else if (exit_code == 1) {
        outcome = Outcome::failure(
            ErrorClass::refused, fmt::format("the catalog did not compile, or Puppet could not start: {}", last_error), exit_code);
    } else if (exit_code == 4 || exit_code == 6 || failed > 0 || (has_report && report->status == "failed")) {
        outcome = Outcome::failure(ErrorClass::failed,
                                   failed > 0 ? fmt::format("{} resource{} failed: {}", failed, failed == 1 ? "" : "s", message)
                                              : fmt::format("resources failed: {}", message),
                                   exit_code);
    } else if (exit_code == 0 || exit_code == 2) {
        outcome = Outcome::success();
        outcome.exit_code = exit_code;
        if (!has_report) outcome.message = fmt::format("the report cannot be read: {}", report.error().message);
    } else {
        outcome = Outcome::failure(
            ErrorClass::failed, fmt::format("puppet ended with exit code {}{}{}", exit_code, message.empty() ? "" : ": ", message),
            exit_code);
    }
    outcome.change = changed                              ? Outcome::Change::changed
                     : exit_code == 1 || exit_code == 127 ? Outcome::Change::unknown
                                                          : Outcome::Change::unchanged;
    return outcome;
}

} // namespace orrery::drivers
