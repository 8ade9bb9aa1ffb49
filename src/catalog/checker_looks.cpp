#include "catalog/checker_state.h"
#include "catalog/json_read.h"
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

} // namespace

Task<Unit> Checker::State::look_at(Context ctx, std::string key, store::Fence fence) {
    begin_term();
    if (key.starts_with("instances/")) co_return co_await look_at_instance(std::move(ctx), std::move(key), fence);
    if (key.starts_with("catalognodes/")) co_return co_await look_at_node(std::move(ctx), std::move(key), fence);
    if (key.starts_with("nodes/")) {
        for (const auto& instance : catalog.instances_on(key.substr(6))) controller.poke("instances/" + instance->resource);
        co_return Unit{};
    }
    co_return co_await look_at_service(std::move(ctx), std::move(key), fence);
}

Task<Unit> Checker::State::look_at_instance(Context ctx, std::string key, store::Fence fence) {
    const auto name = key.substr(key.find('/') + 1);
    const auto view = catalog.find_resource(name);
    if (!view) {
        forget(key);
        co_return Unit{};
    }
    const auto& kind = *resources.registry().find("Instance");
    CO_TRY(auto object, resources.get(kind, name));
    auto results = settle(key, {view->node, view->address, view->port, &view->checks}, object.status);
    if (should_be_removed(*view, results)) {
        log::info(ctx, "instance {} of {} on {} was critical for longer than it may: it is removed", view->id, view->service,
                  view->node);
        CO_TRY(std::ignore,
               co_await resources.remove(ctx, kind, name, {.because = "critical for longer than remove_after", .fence = &fence}));
        co_return Unit{};
    }
    InstanceView judged = *view;
    for (auto& check : judged.checks)
        if (const auto at = results.find(check.check.id); at != results.end()) check.result = at->second;
    judge(judged);
    json::object status{{"state", name_of(judged.state)}, {"why", judged.why}};
    const bool same_state = text_at(object.status, "state") == name_of(judged.state) && object.status.contains("since");
    status["since"] = same_state ? object.status.at("since") : json::value(to_rfc3339(clock.wall()));
    status["checks"] = to_json(results);
    CO_TRY(std::ignore, co_await write(ctx, kind, name, object, std::move(status), fence));
    written(key, std::move(results));
    co_return Unit{};
}

Task<Unit> Checker::State::look_at_node(Context ctx, std::string key, store::Fence fence) {
    const auto name = key.substr(key.find('/') + 1);
    const auto& kind = *resources.registry().find("CatalogNode");
    const auto view = catalog.find_node_resource(name);
    if (!view || !resources.exists(kind, name)) {
        forget(key);
        co_return Unit{};
    }
    for (const auto& instance : catalog.instances_on(view->name)) controller.poke("instances/" + instance->resource);
    CO_TRY(auto object, resources.get(kind, name));
    auto results = settle(key, {view->name, view->address, 0, &view->checks}, object.status);
    CO_TRY(std::ignore, co_await write(ctx, kind, name, object, json::object{{"checks", to_json(results)}}, fence));
    written(key, std::move(results));
    co_return Unit{};
}

Task<Unit> Checker::State::look_at_service(Context ctx, std::string key, store::Fence fence) {
    const auto name = key.substr(key.find('/') + 1);
    const auto& kind = *resources.registry().find("Service");
    const auto record = resources.find(kind, name);
    const auto object = record ? resources.get(kind, name) : Result<resource::Object>();
    auto& seen = service_specs[name];
    const auto spec = object.ok() ? json::serialize(object->spec) : std::string();
    if (seen != spec) { // its checks may be others now
        seen = spec;
        for (const auto& instance : catalog.instances(name)) controller.poke("instances/" + instance->resource);
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
    std::string why =
        wanted ? fmt::format("{} of {} wanted pass", passing, need) : fmt::format("{} pass; no number is wanted", passing);
    if (registered == 0 && need == 0) {
        state = "idle";
        why = "nobody registered it";
    } else if (passing == 0) {
        state = "empty";
    } else if (static_cast<std::int64_t>(passing) < need) {
        state = "short";
    }
    for (const auto& member : members.all)
        if (member.state != catalog::State::passing) {
            why += fmt::format("; on {} {}", member.node, member.why);
            break;
        }
    status["state"] = state;
    status["why"] = why;
    co_return co_await write(ctx, kind, name, *object, std::move(status), fence);
}

Results Checker::State::settle(const std::string& key, const Place& place, const json::object& status) {
    Results results;
    for (const auto& [id, value] : object_at(status, "checks"))
        if (value.is_object()) results[std::string(id)] = CheckResult::from(value.get_object());
    stored[key] = results;
    const auto waiting = pending.find(key);
    std::set<std::string> here, known;
    for (const auto& view : *place.checks) {
        const auto& check = view.check;
        known.insert(check.id);
        if (waiting != pending.end())
            if (const auto news = waiting->second.find(check.id); news != waiting->second.end()) {
                const auto before = results.find(check.id);
                auto result = news->second;
                if (before != results.end() && before->second.status == result.status) result.since = before->second.since;
                results[check.id] = result;
            }
        const auto at = results.find(check.id);
        if (is_run_here(check)) {
            if (watch(key, place, check, at == results.end() ? nullptr : &at->second)) here.insert(check.id);
        } else if (check.kind == Check::Kind::ttl) {
            if (at == results.end()) heard.try_emplace(probe_key(key, check.id), clock.steady()); // its time begins now
            const auto stands = at == results.end() ? check.initial : at->second.status;
            set_timer(key, check.id, Timer::expiry,
                      stands == CheckStatus::critical
                          ? std::nullopt
                          : std::optional(expiry(key, check, at == results.end() ? CheckResult{} : at->second)));
        }
        if (check.remove_after && at != results.end() && at->second.status == CheckStatus::critical)
            set_timer(key, check.id, Timer::removal, clock.steady() + (at->second.since - clock.wall()) + *check.remove_after);
        else
            set_timer(key, check.id, Timer::removal, std::nullopt);
    }
    std::erase_if(results, [&](const auto& entry) { return !known.contains(entry.first); });
    for (const auto& gone : watched[key])
        if (!here.contains(gone)) prober.remove(probe_key(key, gone));
    if (here.empty())
        watched.erase(key);
    else
        watched[key] = std::move(here);
    drop_timers(key, [&](const std::string& check) { return !known.contains(check); });
    return results;
}

void Checker::State::written(const std::string& key, Results results) {
    if (const auto at = pending.find(key); at != pending.end()) {
        // What came in meanwhile, and says something else, stays for the next look.
        std::erase_if(at->second, [&](const auto& entry) {
            const auto now = results.find(entry.first);
            return now == results.end() || now->second.status == entry.second.status;
        });
        if (at->second.empty())
            pending.erase(at);
        else
            controller.poke(key);
    }
    stored[key] = std::move(results);
}

void Checker::State::forget(const std::string& key) {
    if (const auto at = watched.find(key); at != watched.end())
        for (const auto& check : at->second) prober.remove(probe_key(key, check));
    watched.erase(key);
    pending.erase(key);
    stored.erase(key);
    drop_timers(key, [](const std::string&) { return true; });
    const auto mine = key + "\n";
    for (auto at = heard.lower_bound(mine); at != heard.end() && at->first.starts_with(mine);) at = heard.erase(at);
}

Task<Unit> Checker::State::write(Context ctx, const resource::Kind& kind, std::string name, const resource::Object& object,
                                 json::object status, store::Fence fence) {
    if (object.status == status) co_return Unit{};
    auto outcome = co_await resources.set_status(ctx, kind, std::move(name), std::move(status),
                                                 {.if_revision = object.revision, .fence = &fence});
    // Somebody wrote meanwhile: the change of the store brings us here again.
    if (!outcome.ok() && outcome.error().code != Code::conflict && outcome.error().code != Code::not_found)
        co_return std::move(outcome).error();
    co_return Unit{};
}

bool Checker::State::should_be_removed(const InstanceView& view, const Results& results) const {
    const auto now = clock.wall();
    return std::any_of(view.checks.begin(), view.checks.end(), [&](const CheckView& check) {
        const auto at = results.find(check.check.id);
        return check.check.remove_after && at != results.end() && at->second.status == CheckStatus::critical &&
               now - at->second.since >= *check.check.remove_after;
    });
}

} // namespace orrery::catalog
