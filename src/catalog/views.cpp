#include "catalog/catalog.h"
#include "catalog/json_read.h"
#include "catalog/registered.h"

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
    view.port = static_cast<std::uint16_t>(number_at(object.spec, "port", 0));
    view.tags = texts_at(object.spec, "tags");
    view.meta = texts_by_name(object.spec, "meta");
    if (const auto* tagged = object.spec.if_contains("tagged_addresses"); tagged != nullptr && tagged->is_object())
        view.tagged_addresses = *tagged;
    const auto& weights = object_at(object.spec, "weights");
    view.weight_passing = static_cast<int>(number_at(weights, "passing", 1));
    view.weight_warning = static_cast<int>(number_at(weights, "warning", 1));
    const auto flag = [&](std::string_view key) {
        const auto* value = object.spec.if_contains(key);
        return value != nullptr && value->is_bool() && value->get_bool();
    };
    view.tag_override = flag("tag_override");
    view.maintenance = flag("maintenance");
    view.maintenance_reason = text_at(object.spec, "maintenance_reason");
    out.own_checks = checks_of(object.spec);
    out.results = results_of(object.status);
    return out;
}

bool same_registration(const Registered& a, const Registered& b) {
    const auto key = [](const InstanceView& v) {
        return std::tie(v.service, v.id, v.node, v.own_address, v.port, v.tags, v.meta, v.weight_passing, v.weight_warning,
                        v.tag_override);
    };
    return key(a.view) == key(b.view) && a.view.tagged_addresses == b.view.tagged_addresses;
}

namespace {

/// The worst of some checks in words, or nothing where all pass.
struct Trouble {
    CheckStatus status = CheckStatus::passing;
    std::string text;
    void look_at(const CheckView& view, std::string_view whose) {
        if (view.result.status <= status) return;
        status = view.result.status;
        auto output = view.result.output.substr(0, 200);
        for (char& c : output)
            if (static_cast<unsigned char>(c) < ' ') c = ' ';
        text = fmt::format("{}check \"{}\" {}{}{}{}", whose, view.check.name.empty() ? view.check.id : view.check.name,
                           status == CheckStatus::warning ? "warns" : "is critical", output.empty() ? "" : ": ", output,
                           view.stale ? " (as of before this server started)" : "");
    }
};

} // namespace

bool InstanceView::has_tag(std::string_view tag) const {
    if (tag.empty()) return true;
    return std::any_of(tags.begin(), tags.end(), [&](const std::string& own) { return own == tag; });
}

void judge(InstanceView& view) {
    Trouble trouble;
    for (const auto& check : view.checks) trouble.look_at(check, "");
    if (view.on) {
        for (const auto& check : view.on->checks) trouble.look_at(check, "the node's ");
        if (view.on->maintenance && trouble.status != CheckStatus::critical) {
            trouble.status = CheckStatus::critical;
            trouble.text = fmt::format("the node is in maintenance{}{}", view.on->maintenance_reason.empty() ? "" : ": ",
                                       view.on->maintenance_reason);
        }
    }
    if (view.maintenance) {
        trouble.status = CheckStatus::critical;
        trouble.text = fmt::format("in maintenance{}{}", view.maintenance_reason.empty() ? "" : ": ", view.maintenance_reason);
    }
    view.worst = trouble.status;
    switch (trouble.status) {
    case CheckStatus::passing:
        view.state = State::passing;
        view.why = view.checks.empty()       ? "it has no checks"
                   : view.checks.size() == 1 ? "its check passes"
                                             : fmt::format("its {} checks pass", view.checks.size());
        break;
    case CheckStatus::warning: view.state = State::usable; break;
    case CheckStatus::critical: view.state = State::registered; break;
    }
    if (!trouble.text.empty()) view.why = trouble.text;
}

Member InstanceView::member() const {
    Member out{node, id, address, port, tags, state, why};
    std::sort(out.tags.begin(), out.tags.end());
    return out;
}

} // namespace orrery::catalog
