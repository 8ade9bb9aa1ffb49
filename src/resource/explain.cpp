#include "resource/explain.h"

#include "resource/kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::resource {

void Explainers::add(std::string kind, History history, Explain explain) {
    by_kind_[std::move(kind)].push_back({history, {}, std::move(explain)});
}

void Explainers::contribute(std::string kind, std::string from, Explain explain) {
    by_kind_[std::move(kind)].push_back({History::no, std::move(from), std::move(explain)});
}

std::vector<std::string> Explainers::kinds() const {
    std::vector<std::string> out;
    for (const auto& [kind, entries] : by_kind_) out.push_back(kind);
    return out;
}

Result<json::object> Explainers::explain(std::string_view kind, const ExplainRequest& request, const MayRead& may_read) const {
    const auto found = by_kind_.find(kind);
    if (found == by_kind_.end())
        return Error{Code::unsupported, fmt::format("there is no explanation for kind {}", kind),
                     fmt::format("kinds with an explanation: {}", fmt::join(kinds(), ", "))};
    json::object out{{"kind", kind}, {"name", request.name}};
    json::array notes;
    std::optional<Error> unknown;
    bool known = false, requested = false;
    for (const auto& entry : found->second) {
        if (request.at && entry.history == History::no) continue;
        if (!entry.from.empty() && !may_read(entry.from)) continue;
        requested = true;
        auto part = entry.explain(request);
        if (!part.ok() && part.error().code != Code::not_found) return std::move(part).error();
        if (!part.ok()) {
            if (!unknown) unknown = std::move(part).error();
            continue;
        }
        known = known || entry.from.empty();
        for (auto& [key, value] : *part)
            if (key == "message" && out.contains("message"))
                notes.push_back(value);
            else if (key != "kind" && key != "name")
                out[key] = std::move(value);
    }
    if (!requested) {
        std::vector<std::string> with_history;
        for (const auto& [name, entries] : by_kind_)
            for (const auto& entry : entries)
                if (entry.history == History::yes && (with_history.empty() || with_history.back() != name))
                    with_history.push_back(name);
        return Error{Code::unsupported, fmt::format("kind {} keeps no history: only its present state can be explained", kind),
                     fmt::format("leave out the time; kinds with a history: {}", fmt::join(with_history, ", "))};
    }
    if (!known) return std::move(*unknown);
    if (!notes.empty()) out["notes"] = std::move(notes);
    return out;
}

Explain node_explainer(const Resources& resources) {
    return [&resources](const ExplainRequest& request) -> Result<json::object> {
        TRY(const auto object, resources.get(*resources.registry().find("Node"), request.name));
        const auto node = Node::from(object);
        json::object ssh{{"address", node.address}, {"port", node.ssh_port}, {"user", node.ssh_user}};
        if (!node.ssh_jump.empty()) ssh["jump"] = node.ssh_jump;
        ssh["host_key"] = !node.ssh_host_key.empty() ? "pinned"
                          : node.ssh_trust_first_use ? "trusted on first use"
                                                     : "none: logins are refused";
        json::object labels;
        for (const auto& [key, value] : object.labels) labels[key] = value;
        json::object out{{"maintenance", node.maintenance}, {"ssh", std::move(ssh)}, {"labels", std::move(labels)}};
        if (node.maintenance)
            out["message"] = fmt::format("node {} is in maintenance{}{}: tasks on it wait", node.name,
                                         node.maintenance_reason.empty() ? "" : ": ", node.maintenance_reason);
        else
            out["message"] = fmt::format("node {} is not in maintenance", node.name);
        return out;
    };
}

} // namespace orrery::resource
