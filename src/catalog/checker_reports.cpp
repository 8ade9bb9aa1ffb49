#include "catalog/checker_state.h"
#include "core/json_fields.h"

#include <fmt/format.h>

namespace orrery::catalog {

Task<Unit> Checker::report(Context ctx, std::string resource_key, std::string check, CheckStatus status, std::string output) {
    std::map<std::string, std::pair<CheckStatus, std::string>> reports;
    reports.emplace(std::move(check), std::pair{status, std::move(output)});
    return report(std::move(ctx), std::move(resource_key), std::move(reports));
}

Task<Unit> Checker::report(Context ctx, std::string resource_key,
                           std::map<std::string, std::pair<CheckStatus, std::string>> reports) {
    auto& state = *state_;
    const auto slash = resource_key.find('/');
    const auto name = resource_key.substr(slash + 1);
    const bool is_instance = resource_key.starts_with("instances/");
    const auto& kind = *state.resources.registry().find(is_instance ? "Instance" : "CatalogNode");
    for (int attempt = 0; attempt < 8; ++attempt) {
        std::map<std::string, Check> checks;
        if (is_instance) {
            if (const auto view = state.catalog.find_resource(name))
                for (const auto& check : view->checks) checks[check.check.id] = check.check;
        } else if (const auto view = state.catalog.find_node_resource(name)) {
            for (const auto& check : view->checks) checks[check.check.id] = check.check;
        }
        CO_TRY(auto object, state.resources.get(kind, name));
        auto status = object.status;
        auto results = object_at(status, "checks");
        bool changed = false;
        for (const auto& [id, reported] : reports) {
            const auto at = checks.find(id);
            if (at == checks.end()) co_return Error{Code::not_found, fmt::format("{} has no check \"{}\"", resource_key, id)};
            const auto& check = at->second;
            if (is_run_here(check))
                co_return Error{Code::invalid,
                                fmt::format("check \"{}\" is a {} check: the server runs it itself", id, name_of(check.kind)),
                                "only ttl and external checks accept reports"};
            const auto now = state.clock.wall();
            const auto before = results.contains(id) ? std::optional(CheckResult::from(object_at(results, id))) : std::nullopt;
            CheckResult after{reported.first, reported.second, now, {}};
            if (before && before->status == after.status) after.since = before->since;
            bool renew = false;
            if (check.kind == Check::Kind::ttl) {
                state.last_report[State::probe_key(resource_key, id)] = state.clock.steady();
                // This report supersedes an expiry that is not stored yet.
                if (const auto waiting = state.pending.find(resource_key); waiting != state.pending.end())
                    waiting->second.erase(id);
                after.renewed = now;
                renew = before && now - before->renewed > check.ttl / 4;
                if (state.in_term && after.status != CheckStatus::critical)
                    state.set_timer(resource_key, id, State::Timer::expiry, state.clock.steady() + check.ttl);
            }
            if (before && before->status == after.status && before->output == after.output && !renew) {
                state.catalog.confirm(resource_key, id);
                continue;
            }
            results[id] = after.to_json();
            changed = true;
        }
        if (!changed) co_return Unit{};
        status["checks"] = std::move(results);
        auto outcome = co_await state.resources.set_status(ctx, kind, name, std::move(status), {.if_revision = object.revision});
        if (outcome.ok()) co_return Unit{};
        if (outcome.error().code != Code::conflict) co_return std::move(outcome).error();
    }
    co_return Error{Code::conflict, fmt::format("{} changes too often to be written to", resource_key), "try again"};
}

} // namespace orrery::catalog
