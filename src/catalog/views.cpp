#include "catalog/catalog.h"
#include "catalog/registered.h"
#include "core/json_fields.h"
#include "core/truncate.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace orrery::catalog {

std::vector<Check> checks_of(const json::object& spec) {
    std::vector<Check> out;
    const auto* list = spec.if_contains("checks");
    if (list == nullptr || !list->is_array()) return out;
    for (const auto& item : list->get_array())
        if (item.is_object()) out.push_back(Check::from(item.get_object()));
    return out;
}

std::map<std::string, CheckResult> results_of(const json::object& status) {
    std::map<std::string, CheckResult> out;
    for (const auto& [id, value] : object_at(status, "checks"))
        if (value.is_object()) out[std::string(id)] = CheckResult::from(value.get_object());
    return out;
}

Registered read_instance(const resource::Object& object) {
    Registered out;
    auto& view = out.view;
    view.resource = object.name;
    view.service = text_at(object.spec, "service");
    view.node = text_at(object.spec, "node");
    view.id = text_at(object.spec, "id");
    if (view.id.empty()) view.id = view.service;
    view.own_address = text_at(object.spec, "address");
    view.port = static_cast<std::uint16_t>(integer_at(object.spec, "port", 0));
    view.tags = texts_at(object.spec, "tags");
    view.meta = text_map_at(object.spec, "meta");
    if (const auto* tagged = object.spec.if_contains("tagged_addresses"); tagged != nullptr && tagged->is_object())
        view.tagged_addresses = *tagged;
    const auto& weights = object_at(object.spec, "weights");
    view.weight_passing = static_cast<int>(integer_at(weights, "passing", 1));
    view.weight_warning = static_cast<int>(integer_at(weights, "warning", 1));
    view.tag_override = flag_at(object.spec, "tag_override");
    view.planned = flag_at(object.spec, "planned");
    view.maintenance = flag_at(object.spec, "maintenance");
    view.maintenance_reason = text_at(object.spec, "maintenance_reason");
    out.own_checks = checks_of(object.spec);
    for (auto& check : out.own_checks) check.registered = true;
    out.results = results_of(object.status);
    return out;
}

bool same_registration(const Registered& a, const Registered& b) {
    const auto key = [](const InstanceView& v) {
        return std::tie(v.service, v.id, v.node, v.own_address, v.port, v.tags, v.meta, v.weight_passing, v.weight_warning,
                        v.tag_override, v.planned);
    };
    return key(a.view) == key(b.view) && a.view.tagged_addresses == b.view.tagged_addresses;
}

namespace {

/// The most severe of several check results, with a message; empty when all pass.
struct WorstCheck {
    CheckStatus status = CheckStatus::passing;
    std::string text;
    void add(const CheckView& view, std::string_view whose) {
        if (view.result.status <= status) return;
        status = view.result.status;
        const bool runs = view.result.error.empty();
        auto output = runs ? truncate(view.result.output, 200) : truncate(view.result.error, 300);
        for (char& c : output)
            if (static_cast<unsigned char>(c) < ' ') c = ' ';
        text = fmt::format("{}check \"{}\" {}{}{}{}", whose, view.check.name.empty() ? view.check.id : view.check.name,
                           !runs                            ? "cannot run, no evidence"
                           : status == CheckStatus::warning ? "warns"
                                                            : "is critical",
                           output.empty() ? "" : ": ", output, view.stale ? " (as of before this server started)" : "");
    }
};

} // namespace

bool InstanceView::has_tag(std::string_view tag) const {
    if (tag.empty()) return true;
    return std::any_of(tags.begin(), tags.end(), [&](const std::string& own) { return own == tag; });
}

void judge(InstanceView& view) {
    WorstCheck worst;
    for (const auto& check : view.checks) worst.add(check, "");
    if (view.on) {
        for (const auto& check : view.on->checks) worst.add(check, "the node's ");
        if (view.on->maintenance && worst.status != CheckStatus::critical) {
            worst.status = CheckStatus::critical;
            worst.text = fmt::format("the node is in maintenance{}{}", view.on->maintenance_reason.empty() ? "" : ": ",
                                     view.on->maintenance_reason);
        }
    }
    if (view.planned && view.checks.empty()) {
        worst.status = CheckStatus::critical;
        worst.text = "it has not been started yet, and has no check";
    }
    if (view.maintenance) {
        worst.status = CheckStatus::critical;
        worst.text = fmt::format("in maintenance{}{}", view.maintenance_reason.empty() ? "" : ": ", view.maintenance_reason);
    }
    view.worst = worst.status;
    switch (worst.status) {
    case CheckStatus::passing:
        view.state = State::passing;
        view.message = view.checks.empty()       ? "it has no checks"
                       : view.checks.size() == 1 ? "its check passes"
                                                 : fmt::format("its {} checks pass", view.checks.size());
        break;
    case CheckStatus::warning: view.state = State::usable; break;
    case CheckStatus::critical: view.state = State::registered; break;
    }
    if (!worst.text.empty()) view.message = worst.text;
    for (const auto& check : view.checks) // the previous result stays in effect, but is not current
        if (!check.result.error.empty() && check.result.status == CheckStatus::passing)
            view.message +=
                fmt::format("; check \"{}\" cannot run, no evidence: {}",
                            check.check.name.empty() ? check.check.id : check.check.name, truncate(check.result.error, 300));
}

bool InstanceView::stale() const {
    const auto from_before = [](const CheckView& check) { return check.stale; };
    return std::any_of(checks.begin(), checks.end(), from_before) ||
           (on && std::any_of(on->checks.begin(), on->checks.end(), from_before));
}

std::string InstanceView::why_not_a_member() const {
    return declared ? invalid : fmt::format("Service {} does not exist", service);
}

Member InstanceView::member() const {
    Member out{node, id, address, port, tags, state, message, !checks.empty(), Evidence::confirmed};
    std::sort(out.tags.begin(), out.tags.end());
    return out;
}

} // namespace orrery::catalog
