#include "gslb/world.h"

#include "core/ids.h"
#include "core/log.h"
#include "gslb/read.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::gslb {

namespace {

Health health_named(std::string_view text) {
    for (const auto one : {Health::up, Health::degraded, Health::down})
        if (name_of(one) == text) return one;
    return Health::unknown;
}

std::string label_of(const resource::Object& object, const std::string& label) {
    const auto found = object.labels.find(label);
    return found == object.labels.end() ? std::string() : found->second;
}

/// What was answered before a restart, in the words of Decision::summary.
std::optional<json::object> summary_in(const json::object& status) {
    const auto state = text_at(status, "state");
    if (state.empty()) return std::nullopt;
    json::object out{{"condition", state}};
    out["pool"] = text_at(status, "pool");
    out["answers"] = array_at(status, "answers");
    out["ttl"] = count_at(status, "ttl", 0);
    out["panic"] = flag_at(status, "panic");
    return out;
}

/// Of a status, without reading all of it.
std::int64_t decisions_in(std::string_view stored) {
    constexpr std::string_view mark = ",\"decisions\":";
    const auto at = stored.rfind(mark);
    std::int64_t out = 0;
    if (at != std::string_view::npos) std::from_chars(stored.data() + at + mark.size(), stored.data() + stored.size(), out);
    return out;
}

} // namespace

World::World(store::Store& store, Engine& engine, Watcher& watcher, Places* places, std::function<bool()> leads,
             std::function<void()> changed)
    : store_(store), engine_(engine), watcher_(watcher), places_(places), leads_(std::move(leads)), changed_(std::move(changed)) {
    watcher_.report_places_to([this](const std::string& name, Addresses addresses) { found_at(name, addresses); });
    if (places_ != nullptr)
        places_->report_to([this] {
            steer_all({.cause = "config", .what = {{"geo_databases", "read again"}}});
            changed_();
        });
    // What others depend on comes first, so that nothing is decided twice at the start.
    for (const auto* prefix : {"monitors/", "nodes/", "instances/", "pools/", "members/", "loadbalancers/"})
        observed_.push_back(
            store.observe(prefix, [this, name = std::string(prefix)](const store::Event& event) { take(name, event); }));
}

World::~World() {
    watcher_.report_places_to({});
    if (places_ != nullptr) places_->report_to({});
}

void World::take(const std::string& prefix, const store::Event& event) {
    const auto name = event.key.substr(prefix.size());
    const auto* record = event.record.get();
    if (record != nullptr && event.previous && resource::same_but_for_status(*event.previous, *record)) {
        // Mostly what this server wrote itself. What the leader remembers of a pool, and how many decisions it has counted, is all
        // that concerns another.
        if (leads_()) return;
        if (prefix == "loadbalancers/") engine_.follow_count(name, decisions_in(record->value));
        if (prefix != "pools/") return;
        pool(name, record, {});
        changed_();
        return;
    }
    const auto by = author_of(event);
    if (prefix == "monitors/") monitor(name, record);
    if (prefix == "nodes/") node(name, record, by);
    if (prefix == "instances/") instance(name, record, by);
    if (prefix == "pools/") pool(name, record, by);
    if (prefix == "members/") member(name, record, by);
    if (prefix == "loadbalancers/") load_balancer(name, record, by);
    changed_();
}

namespace {

std::optional<resource::Object> read(const store::Record* record) {
    if (record == nullptr) return std::nullopt;
    auto object = resource::from_stored(*record);
    if (object.ok()) return std::move(*object);
    log::error(Context::background(), "{}", object.error().text());
    return std::nullopt;
}

} // namespace

Trigger World::author_of(const store::Event& event) {
    if (!event.record || !event.previous) return {};
    const auto object = read(event.record.get());
    if (!object) return {};
    if (authors_.revision != event.revision) {
        authors_ = {.revision = event.revision, .by_subject = {}};
        constexpr std::size_t most = 1024; // that were written at the same moment
        for (const auto& written : store_.range("events/", most, "events/" + time_ordered_bound(object->updated_at)).records) {
            if (written->modified != event.revision) continue;
            const auto audit = read(written.get());
            if (!audit) continue;
            authors_.by_subject.try_emplace(text_at(audit->spec, "subject"), Trigger{.actor = text_at(audit->spec, "actor"),
                                                                                     .reason = text_at(audit->spec, "because")});
        }
    }
    const auto found = authors_.by_subject.find(fmt::format("{}/{}", object->kind, object->name));
    return found == authors_.by_subject.end() ? Trigger{} : found->second;
}

void World::load_balancer(const std::string& name, const store::Record* record, const Trigger& by) {
    const auto object = read(record);
    if (!object) {
        seen_.erase("loadbalancers/" + name);
        steered_.erase(name);
        return engine_.remove_rule(name);
    }
    auto rule = Rule::from(name, object->spec);
    std::function<void()> remember;
    if (seen_.insert("loadbalancers/" + name).second)
        remember = [this, name, status = object->status] {
            engine_.remember(name, Memory::from(object_at(status, "memory")),
                             static_cast<std::int64_t>(number_at(status, "decisions", 0)), summary_in(status));
        };
    if (rule.steering == Steering::geo) {
        auto& steered = steered_[name];
        steered.rule = std::move(rule);
        if (remember) steered.remember = std::move(remember);
        return steer(name, steered, by);
    }
    if (const auto was = steered_.extract(name); was && was.mapped().remember) remember = std::move(was.mapped().remember);
    auto clients = Clients::of(rule.classes);
    engine_.set_rule(std::move(rule), std::move(clients), by);
    if (remember) remember();
}

void World::steer(const std::string& name, Steered& steered, const Trigger& trigger) {
    auto rule = steered.rule;
    Clients clients;
    if (places_ == nullptr) {
        rule.places = "where clients are is not known here";
    } else {
        auto sorted = places_->sort(GeoQuestion::of(rule, pools_));
        if (!sorted) return;
        steered.sorted = std::move(sorted);
        rule.classes = steered.sorted->classes;
        rule.places = steered.sorted->words;
        clients = steered.sorted->clients;
    }
    engine_.set_rule(std::move(rule), std::move(clients), trigger);
    if (const auto remember = std::exchange(steered.remember, nullptr)) remember();
}

void World::steer_all(const Trigger& trigger, const std::string& pool) {
    for (auto& [name, steered] : steered_)
        if (pool.empty() || std::any_of(steered.rule.pools.begin(), steered.rule.pools.end(),
                                        [&](const Rule::Use& use) { return use.pool == pool; }))
            steer(name, steered, trigger);
}

void World::pool(const std::string& name, const store::Record* record, const Trigger& by) {
    const auto object = read(record);
    if (!object) {
        pools_.erase(name);
        seen_.erase("pools/" + name);
        engine_.remove_pool(name, {});
    } else {
        auto spec = PoolSpec::from(name, object->spec);
        if (seen_.insert("pools/" + name).second)
            engine_.remember_pool(name, PoolMemory::from(object_at(object->status, "memory")));
        else if (!leads_())
            engine_.follow_pool(name, PoolMemory::from(object_at(object->status, "memory")));
        const auto known = pools_.find(name);
        const bool elsewhere = known == pools_.end() || known->second.site != spec.site || known->second.monitors != spec.monitors;
        const bool moved = known == pools_.end() || known->second.location != spec.location;
        pools_.insert_or_assign(name, spec);
        engine_.set_pool(std::move(spec), by);
        if (moved) steer_all(by, name);
        if (!elsewhere) return;
    }
    for (const auto& one : in_pool_[name]) {
        place(one, by);
        watch(one);
    }
}

void World::follow() {
    for (const auto& [name, spec] : pools_)
        if (const auto object = read(store_.find("pools/" + name).get()))
            engine_.follow_pool(name, PoolMemory::from(object_at(object->status, "memory")));
    changed_();
}

void World::member(const std::string& name, const store::Record* record, const Trigger& by) {
    if (const auto known = members_.find(name); known != members_.end()) {
        in_pool_[known->second.pool].erase(name);
        on_node_[known->second.node].erase(name);
        of_instance_[known->second.instance].erase(name);
    }
    const auto object = read(record);
    if (!object) {
        members_.erase(name);
        watched_.erase(name);
        remembered_.erase(name);
        found_.erase(name);
        watcher_.forget(name);
        return engine_.remove_member(name, {});
    }
    auto spec = MemberSpec::from(name, object->spec);
    if (!members_.contains(name)) {
        remembered_[name] = health_named(text_at(object->status, "verdict"));
        // Where it was before a restart: it is answered there though nobody can be asked.
        if (!spec.balancer.empty())
            for (const auto& address : texts_at(object->status, "addresses")) std::ignore = found_[name].add(address);
    } else if (members_.at(name).balancer != spec.balancer) {
        found_.erase(name);
    }
    in_pool_[spec.pool].insert(name);
    on_node_[spec.node].insert(name);
    of_instance_[spec.instance].insert(name);
    members_.insert_or_assign(name, std::move(spec));
    place(name, by);
    watch(name);
}

void World::monitor(const std::string& name, const store::Record* record) {
    const auto object = read(record);
    if (!object) {
        monitors_.erase(name);
        engine_.remove_monitor(name);
    } else {
        if (const auto known = monitors_.find(name); known != monitors_.end() && known->second == object->spec) return;
        monitors_.insert_or_assign(name, object->spec);
        engine_.set_monitor(MonitorSpec::from(name, object->spec));
    }
    tell_engine_of_monitors();
    for (const auto& [key, spec] : members_) watch(key);
}

void World::node(const std::string& name, const store::Record* record, const Trigger& by) {
    Place now;
    if (const auto object = read(record)) {
        const auto& maintenance = object_at(object->spec, "maintenance");
        now = {text_at(object->spec, "address"), label_of(*object, "site"), label_of(*object, "rack"),
               flag_at(maintenance, "enabled"), text_at(maintenance, "reason")};
    }
    if (const auto known = nodes_.find(name); known != nodes_.end() && known->second == now) return;
    if (record == nullptr)
        nodes_.erase(name);
    else
        nodes_.insert_or_assign(name, std::move(now));
    place_those_on(name, by);
}

void World::instance(const std::string& name, const store::Record* record, const Trigger& by) {
    InstancePlace now;
    if (const auto object = read(record))
        now = {text_at(object->spec, "address"), text_at(object->spec, "node"),
               static_cast<std::uint16_t>(count_at(object->spec, "port", 0, 65535))};
    if (const auto known = instances_.find(name); known != instances_.end() && known->second == now) return;
    if (record == nullptr)
        instances_.erase(name);
    else
        instances_.insert_or_assign(name, std::move(now));
    for (const auto& member : of_instance_[name]) {
        place(member, by);
        watch(member);
    }
}

void World::place_those_on(const std::string& node, const Trigger& by) {
    auto members = on_node_[node];
    for (const auto& [instance, where] : instances_)
        if (where.node == node) members.insert(of_instance_[instance].begin(), of_instance_[instance].end());
    for (const auto& member : members) {
        place(member, by);
        watch(member);
    }
}

/// Where a member is: as it says itself, or as its Instance or Node says.
void World::place(const std::string& name, const Trigger& by) {
    const auto& spec = members_.at(name);
    MemberInput out{.spec = spec, .addresses = spec.addresses, .site = spec.site, .rack = spec.rack};
    auto node = spec.node;
    std::string address;
    if (!spec.instance.empty()) {
        const auto found = instances_.find(spec.instance);
        if (found == instances_.end()) {
            out.no_address = fmt::format("Instance {} does not exist", spec.instance);
        } else {
            address = found->second.address;
            node = found->second.node;
            if (out.spec.port == 0) out.spec.port = found->second.port;
        }
    }
    if (const auto found = nodes_.find(node); found != nodes_.end()) {
        if (address.empty() && spec.addresses.empty()) address = found->second.address;
        if (out.site.empty()) out.site = found->second.site;
        if (out.rack.empty()) out.rack = found->second.rack;
        // People work on the machine: no new clients, unless somebody said something else of this very member.
        if (found->second.maintenance && spec.override_.what == Override::What::none)
            out.spec.override_ = {.what = Override::What::drain,
                                  .reason = fmt::format("Node {} is in maintenance{}{}", node,
                                                        found->second.reason.empty() ? "" : ": ", found->second.reason)};
    } else if (!node.empty() && address.empty()) {
        out.no_address = fmt::format("Node {} does not exist", node);
    }
    if (!spec.balancer.empty()) {
        if (const auto found = found_.find(name); found != found_.end())
            out.addresses = found->second;
        else
            out.no_address =
                fmt::format("Source {} has not said where {} is", text_at(spec.balancer, "source"), text_at(spec.balancer, "id"));
    }
    if (!address.empty() && !out.addresses.add(address).ok())
        out.no_address = fmt::format("{} {} has no IP address but \"{}\"", spec.instance.empty() ? "Node" : "Instance",
                                     spec.instance.empty() ? node : spec.instance, address);
    if (out.site.empty())
        if (const auto pool = pools_.find(spec.pool); pool != pools_.end()) out.site = pool->second.site;
    engine_.set_member(std::move(out), by);
}

void World::found_at(const std::string& name, Addresses addresses) {
    const auto known = members_.find(name);
    if (known == members_.end() || known->second.balancer.empty()) return;
    auto& found = found_[name];
    if (found == addresses) return;
    found = addresses;
    place(name);
    watch(name);
    changed_();
}

Watcher::Target::Check World::check_of(const std::string& monitor, const json::object& spec) const {
    Watcher::Target::Check out{monitor, spec, {}};
    for (const auto& part : texts_at(spec, "of"))
        if (const auto found = monitors_.find(part); found != monitors_.end()) out.parts.push_back({part, found->second, {}});
    return out;
}

void World::tell_engine_of_monitors() {
    for (const auto& [name, spec] : monitors_) {
        if (text_at(spec, "kind") != "calculated") continue;
        std::optional<MonitorSpec> slowest;
        for (const auto& part : check_of(name, spec).parts)
            if (auto one = MonitorSpec::from(name, part.spec); !slowest || one.slowest() > slowest->slowest())
                slowest = std::move(one);
        if (slowest) engine_.set_monitor(std::move(*slowest));
    }
}

void World::watch(const std::string& name) {
    const auto* member = engine_.member(name);
    if (member == nullptr) return;
    Watcher::Target target{.addresses = member->addresses, .port = member->spec.port};
    std::vector<std::string> wanted;
    if (const auto pool = pools_.find(member->spec.pool); pool != pools_.end()) wanted = pool->second.monitors;
    wanted.insert(wanted.end(), member->spec.monitors.begin(), member->spec.monitors.end());
    std::set<std::string> taken;
    if (!member->spec.balancer.empty()) target.checks.push_back({"octavia", member->spec.balancer, {}});
    for (const auto& monitor : wanted)
        if (const auto found = monitors_.find(monitor); found != monitors_.end() && taken.insert(monitor).second)
            target.checks.push_back(check_of(monitor, found->second));
    if (target.checks.empty() || (target.addresses.empty() && member->spec.balancer.empty())) {
        if (watched_.erase(name) > 0) watcher_.forget(name);
        engine_.set_signal(name, {}, "config");
        return;
    }
    if (const auto known = watched_.find(name); known != watched_.end() && known->second == target) return;
    watched_.insert_or_assign(name, target);
    if (const auto before = remembered_.extract(name)) target.remembered = before.mapped();
    if (member->signal == Signal{})
        engine_.set_signal(name, {.standing = target.remembered, .monitored = true, .stale = target.remembered != Health::unknown},
                           "config");
    watcher_.watch(name, std::move(target));
}

} // namespace orrery::gslb
