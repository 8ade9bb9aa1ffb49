#include "catalog/checker_state.h"
#include "core/json_fields.h"
#include "core/log.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::catalog {

namespace {

json::object to_json(const Results& results) {
    json::object out;
    for (const auto& [id, result] : results) out[id] = result.to_json();
    return out;
}

/// The check cannot run: keeps its previous result, or its initial status.
void note_error(Results& results, const Check& check, const std::string& error) {
    auto& result = results.try_emplace(check.id, CheckResult{.status = check.initial}).first->second;
    result.error = error;
}

/// Critical by evidence: a check that cannot run does not cause a removal.
bool is_critical(const CheckResult& result) { return result.status == CheckStatus::critical && result.error.empty(); }

} // namespace

Task<Unit> Checker::State::reconcile(Context ctx, std::string key, store::Fence fence) {
    begin_term();
    if (key.starts_with("instances/")) co_return co_await reconcile_instance(std::move(ctx), std::move(key), fence);
    if (key.starts_with("catalognodes/")) co_return co_await reconcile_node(std::move(ctx), std::move(key), fence);
    if (key.starts_with("secrets/")) {
        if (const auto users = secret_users.find(key.substr(8)); users != secret_users.end())
            for (const auto& user : users->second) controller.enqueue(user);
        co_return Unit{};
    }
    if (key.starts_with("nodes/")) {
        for (const auto& instance : catalog.instances_on(key.substr(6))) controller.enqueue("instances/" + instance->resource);
        co_return Unit{};
    }
    co_return co_await reconcile_service(std::move(ctx), std::move(key), fence);
}

Task<Unit> Checker::State::reconcile_instance(Context ctx, std::string key, store::Fence fence) {
    const auto name = key.substr(key.find('/') + 1);
    const auto view = catalog.find_resource(name);
    if (!view) {
        forget(key);
        co_return Unit{};
    }
    const auto& kind = *resources.registry().find("Instance");
    CO_TRY(auto object, resources.get(kind, name));
    auto results = update_checks(key, {view->node, view->address, view->port, &view->checks}, object.status);
    if (should_be_removed(*view, results)) {
        log::info(ctx, "instance removed: critical for longer than remove_after instance={} service={} node={}", view->id,
                  view->service, view->node);
        CO_TRY(std::ignore,
               co_await resources.remove(ctx, kind, name, {.reason = "critical for longer than remove_after", .fence = &fence}));
        co_return Unit{};
    }
    InstanceView judged = *view;
    for (auto& check : judged.checks)
        if (const auto at = results.find(check.check.id); at != results.end()) check.result = at->second;
    judge(judged);
    if (!judged.declared) { // visible to Consul clients, but not counted by jobs
        judged.state = catalog::State::registered;
        judged.message = fmt::format("Service {} does not exist, so it is not a member ({})", judged.service, judged.message);
    }
    if (!judged.invalid.empty()) {
        judged.state = catalog::State::registered;
        judged.message = fmt::format("it is not a member of {}: {}", judged.service, judged.invalid);
    }
    json::object status{{"state", name_of(judged.state)}, {"message", judged.message}};
    if (!judged.address.empty()) status["address"] = judged.address;
    if (judged.port != 0) status["port"] = judged.port;
    const bool same_state = text_at(object.status, "state") == name_of(judged.state) && object.status.contains("since");
    status["since"] = same_state ? object.status.at("since") : json::value(to_rfc3339(clock.wall()));
    status["checks"] = to_json(results);
    CO_TRY(std::ignore, co_await write(ctx, kind, name, object, std::move(status), fence));
    written(key, std::move(results));
    co_return Unit{};
}

Task<Unit> Checker::State::reconcile_node(Context ctx, std::string key, store::Fence fence) {
    const auto name = key.substr(key.find('/') + 1);
    const auto& kind = *resources.registry().find("CatalogNode");
    const auto view = catalog.find_node_resource(name);
    if (!view || !resources.exists(kind, name)) {
        forget(key);
        co_return Unit{};
    }
    for (const auto& instance : catalog.instances_on(view->name)) controller.enqueue("instances/" + instance->resource);
    CO_TRY(auto object, resources.get(kind, name));
    auto results = update_checks(key, {view->name, view->address, 0, &view->checks}, object.status);
    json::object status{{"checks", to_json(results)}};
    CO_TRY(std::ignore, co_await write(ctx, kind, name, object, std::move(status), fence));
    written(key, std::move(results));
    co_return Unit{};
}

Task<Unit> Checker::State::reconcile_service(Context ctx, std::string key, store::Fence fence) {
    const auto name = key.substr(key.find('/') + 1);
    const auto& kind = *resources.registry().find("Service");
    const auto record = resources.find(kind, name);
    const auto object = record ? resources.get(kind, name) : Result<resource::Object>();
    auto& seen = service_specs[name];
    const auto spec = object.ok() ? json::serialize(object->spec) : std::string();
    if (seen != spec) { // its checks may have changed
        seen = spec;
        for (const auto& instance : catalog.instances(name)) controller.enqueue("instances/" + instance->resource);
    }
    if (!object.ok()) {
        service_specs.erase(name);
        co_return Unit{};
    }
    CO_TRY(const auto members, catalog.members(name, ""));
    const auto registered = members.all.size(), usable = members.count(catalog::State::usable),
               passing = members.count(catalog::State::passing);
    const auto wanted = catalog.wanted(name);
    json::object status{{"registered", registered}, {"usable", usable}, {"passing", passing}};
    if (wanted) status["wanted"] = *wanted;
    const auto need = wanted.value_or(0);
    std::string_view state = "complete";
    std::string message =
        wanted ? fmt::format("{} of {} wanted pass", passing, need) : fmt::format("{} pass; no number is wanted", passing);
    if (registered == 0 && need == 0) {
        state = "idle";
        message = "no instance is registered";
    } else if (passing == 0) {
        state = "empty";
    } else if (static_cast<std::int64_t>(passing) < need) {
        state = "short";
    }
    for (const auto& member : members.all)
        if (member.state != catalog::State::passing) {
            message += fmt::format("; on {} {}", member.node, member.why);
            break;
        }
    if (members.invalid_count > 0) message += "; " + members.invalid_text();
    status["state"] = state;
    status["message"] = message;
    co_return co_await write(ctx, kind, name, *object, std::move(status), fence);
}

void Checker::State::merge_pending(const std::string& key, const Check& check, Results& results) const {
    const auto waiting = pending.find(key);
    if (waiting == pending.end()) return;
    const auto found = waiting->second.find(check.id);
    if (found == waiting->second.end()) return;
    auto result = found->second;
    if (!result.error.empty()) return note_error(results, check, result.error);
    const auto before = results.find(check.id);
    if (before != results.end() && before->second.status == result.status && before->second.since != WallTime{})
        result.since = before->second.since;
    results[check.id] = result;
}

bool Checker::State::update_check(const std::string& key, const CheckedTarget& target, const Check& check, Results& results) {
    merge_pending(key, check, results);
    const auto refusal = refusal_of(check);
    if (!refusal.empty()) note_error(results, check, refusal);
    const auto at = results.find(check.id);
    bool is_probed = false;
    if (is_run_here(check)) {
        std::string error;
        is_probed = refusal.empty() && watch(key, target, check, at == results.end() ? nullptr : &at->second, error);
        note_watch_error(results, probe_key(key, check.id), check, std::move(error));
    } else if (check.kind == Check::Kind::ttl) {
        if (at == results.end()) last_report.try_emplace(probe_key(key, check.id), clock.steady()); // its ttl starts now
        const auto status = at == results.end() ? check.initial : at->second.status;
        set_timer(key, check.id, Timer::expiry,
                  status == CheckStatus::critical
                      ? std::nullopt
                      : std::optional(expiry(key, check, at == results.end() ? CheckResult{} : at->second)));
    }
    if (check.remove_after && at != results.end() && is_critical(at->second))
        set_timer(key, check.id, Timer::removal, clock.steady() + (at->second.since - clock.wall()) + *check.remove_after);
    else
        set_timer(key, check.id, Timer::removal, std::nullopt);
    return is_probed;
}

Results Checker::State::update_checks(const std::string& key, const CheckedTarget& target, const json::object& status) {
    note_secrets(key, target);
    Results results;
    for (const auto& [id, value] : object_at(status, "checks"))
        if (value.is_object()) results[std::string(id)] = CheckResult::from(value.get_object());
    stored[key] = results;
    std::set<std::string> probed, known;
    for (const auto& view : *target.checks) {
        known.insert(view.check.id);
        if (update_check(key, target, view.check, results)) probed.insert(view.check.id);
    }
    std::erase_if(results, [&](const auto& entry) { return !known.contains(entry.first); });
    for (const auto& check : probed_checks[key])
        if (!probed.contains(check)) prober.remove(probe_key(key, check));
    if (probed.empty())
        probed_checks.erase(key);
    else
        probed_checks[key] = std::move(probed);
    drop_timers(key, [&](const std::string& check) { return !known.contains(check); });
    return results;
}

void Checker::State::note_watch_error(Results& results, const std::string& probe, const Check& check, std::string error) {
    const auto before = watch_errors.find(probe);
    if (!error.empty()) {
        note_error(results, check, error);
        watch_errors[probe] = std::move(error);
        return;
    }
    if (before == watch_errors.end()) return;
    if (const auto result = results.find(check.id); result != results.end() && result->second.error == before->second)
        result->second.error.clear();
    watch_errors.erase(before);
}

void Checker::State::written(const std::string& key, Results results) {
    if (const auto at = pending.find(key); at != pending.end()) {
        // Results that arrived during the write and differ stay for the next reconciliation.
        std::erase_if(at->second, [&](const auto& entry) {
            const auto now = results.find(entry.first);
            if (now == results.end() || now->second.error != entry.second.error) return now == results.end();
            return !entry.second.error.empty() || now->second.status == entry.second.status;
        });
        if (at->second.empty())
            pending.erase(at);
        else
            controller.enqueue(key);
    }
    stored[key] = std::move(results);
}

void Checker::State::forget(const std::string& key) {
    if (const auto at = probed_checks.find(key); at != probed_checks.end())
        for (const auto& check : at->second) prober.remove(probe_key(key, check));
    probed_checks.erase(key);
    note_secrets(key, {});
    pending.erase(key);
    stored.erase(key);
    drop_timers(key, [](const std::string&) { return true; });
    const auto mine = key + "\n";
    for (auto at = last_report.lower_bound(mine); at != last_report.end() && at->first.starts_with(mine);)
        at = last_report.erase(at);
    for (auto at = watch_errors.lower_bound(mine); at != watch_errors.end() && at->first.starts_with(mine);)
        at = watch_errors.erase(at);
}

Task<Unit> Checker::State::write(Context ctx, const resource::Kind& kind, std::string name, const resource::Object& object,
                                 json::object status, store::Fence fence) {
    if (object.status == status) co_return Unit{};
    auto outcome = co_await resources.set_status(ctx, kind, std::move(name), std::move(status),
                                                 {.if_revision = object.revision, .fence = &fence});
    // After a conflict the change of the store causes another reconciliation.
    if (!outcome.ok() && outcome.error().code != Code::conflict && outcome.error().code != Code::not_found)
        co_return std::move(outcome).error();
    co_return Unit{};
}

bool Checker::State::should_be_removed(const InstanceView& view, const Results& results) const {
    const auto now = clock.wall();
    return std::any_of(view.checks.begin(), view.checks.end(), [&](const CheckView& check) {
        const auto at = results.find(check.check.id);
        return check.check.remove_after && at != results.end() && is_critical(at->second) &&
               now - at->second.since >= *check.check.remove_after;
    });
}

} // namespace orrery::catalog
