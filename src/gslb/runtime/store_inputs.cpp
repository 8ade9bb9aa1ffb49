#include "gslb/runtime/store_inputs.h"

#include "core/ids.h"
#include "core/json_fields.h"
#include "core/log.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::gslb {

namespace {

std::string label_of(const resource::Object& object, const std::string& label) {
    const auto found = object.labels.find(label);
    return found == object.labels.end() ? std::string() : found->second;
}

/// The answers before a restart, in the form of Decision::summary.
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

/// The field `decisions` of a status, without parsing all of it.
std::int64_t decisions_in(std::string_view stored) {
    constexpr std::string_view mark = ",\"decisions\":";
    const auto at = stored.rfind(mark);
    std::int64_t out = 0;
    if (at != std::string_view::npos) std::from_chars(stored.data() + at + mark.size(), stored.data() + stored.size(), out);
    return out;
}

} // namespace

StoreInputs::StoreInputs(store::Store& store, Engine& engine, Watcher& watcher, GeoDatabases* geo, std::function<bool()> leads,
                         std::function<void()> changed)
    : store_(store), engine_(engine), watcher_(watcher), geo_(geo), leads_(std::move(leads)), changed_(std::move(changed)) {
    watcher_.report_addresses_to([this](const std::string& name, Addresses addresses) { addresses_found(name, addresses); });
    if (geo_ != nullptr)
        geo_->report_to([this] {
            steer_all({.cause = Cause::config, .details = {{"geo_databases", "reloaded"}}});
            changed_();
        });
    // Dependencies come first, so that nothing is decided twice at the start.
    for (const auto* prefix : {"monitors/", "nodes/", "instances/", "pools/", "members/", "loadbalancers/"})
        observed_.push_back(
            store.observe(prefix, [this, name = std::string(prefix)](const store::Event& event) { apply_event(name, event); }));
}

StoreInputs::~StoreInputs() {
    watcher_.report_addresses_to({});
    if (geo_ != nullptr) geo_->report_to({});
}

void StoreInputs::apply_event(const std::string& prefix, const store::Event& event) {
    const auto name = event.key.substr(prefix.size());
    const auto* record = event.record.get();
    if (record != nullptr && event.previous && resource::same_but_for_status(*event.previous, *record)) {
        // A status change, usually written by this server. A follower needs the leader's state of a pool and its number of
        // decisions.
        if (leads_()) return;
        if (prefix == "loadbalancers/") engine_.follow_count(name, decisions_in(record->value));
        if (prefix != "pools/") return;
        pool(name, record, {});
        changed_();
        return;
    }
    const auto by = may_change_members(prefix, name) ? author_of(event) : Trigger{};
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

/// Whether a change of the resource can change a load balancer: only then its author matters. Most nodes and instances of a site
/// have no member.
bool StoreInputs::may_change_members(std::string_view prefix, const std::string& name) const {
    const auto has_members = [](const auto& members_of, const std::string& key) {
        const auto found = members_of.find(key);
        return found != members_of.end() && !found->second.empty();
    };
    if (prefix == "monitors/") return false;
    if (prefix == "instances/") return has_members(of_instance_, name);
    if (prefix != "nodes/" || has_members(on_node_, name)) return true;
    return std::any_of(of_instance_.begin(), of_instance_.end(), [&](const auto& one) {
        const auto where = instances_.find(one.first);
        return !one.second.empty() && where != instances_.end() && where->second.node == name;
    });
}

Trigger StoreInputs::author_of(const store::Event& event) {
    if (!event.record || !event.previous) return {};
    const auto object = read(event.record.get());
    if (!object) return {};
    if (authors_.revision != event.revision) {
        authors_ = {.revision = event.revision, .by_subject = {}};
        constexpr std::size_t most = 1024; // of one transaction
        for (const auto& written : store_.range("events/", most, "events/" + time_ordered_bound(object->updated_at)).records) {
            if (written->modified != event.revision) continue;
            const auto audit = read(written.get());
            if (!audit) continue;
            authors_.by_subject.try_emplace(text_at(audit->spec, "subject"), Trigger{.actor = text_at(audit->spec, "actor"),
                                                                                     .reason = text_at(audit->spec, "reason")});
        }
    }
    const auto found = authors_.by_subject.find(fmt::format("{}/{}", object->kind, object->name));
    return found == authors_.by_subject.end() ? Trigger{} : found->second;
}

void StoreInputs::load_balancer(const std::string& name, const store::Record* record, const Trigger& by) {
    const auto object = read(record);
    if (!object) {
        seen_.erase("loadbalancers/" + name);
        steered_.erase(name);
        return engine_.remove_load_balancer(name);
    }
    auto spec = LoadBalancerSpec::from(name, object->spec);
    std::function<void()> restore_lb;
    if (seen_.insert("loadbalancers/" + name).second)
        restore_lb = [this, name, status = object->status] {
            engine_.restore_lb(name, LoadBalancerState::from(object_at(status, "internal_state")),
                               static_cast<std::int64_t>(number_at(status, "decisions", 0)), summary_in(status));
        };
    if (spec.steering == Steering::geo) {
        auto& steered = steered_[name];
        steered.spec = std::move(spec);
        if (restore_lb) steered.restore_lb = std::move(restore_lb);
        return steer(name, steered, by);
    }
    if (const auto was = steered_.extract(name); was && was.mapped().restore_lb) restore_lb = std::move(was.mapped().restore_lb);
    auto clients = ClientClasses::of(spec.classes);
    engine_.set_load_balancer(std::move(spec), std::move(clients), by);
    if (restore_lb) restore_lb();
}

void StoreInputs::steer(const std::string& name, Steered& steered, const Trigger& trigger) {
    auto spec = steered.spec;
    ClientClasses clients;
    if (geo_ == nullptr) {
        spec.geo_source = "no geo database: this server loads none";
    } else {
        auto sorted = geo_->classify(GeoQuery::of(spec, pools_));
        if (!sorted) return;
        steered.sorted = std::move(sorted);
        spec.classes = steered.sorted->classes;
        spec.geo_source = steered.sorted->message;
        clients = steered.sorted->clients;
    }
    engine_.set_load_balancer(std::move(spec), std::move(clients), trigger);
    if (const auto restore_lb = std::exchange(steered.restore_lb, nullptr)) restore_lb();
}

void StoreInputs::steer_all(const Trigger& trigger, const std::string& pool) {
    for (auto& [name, steered] : steered_)
        if (pool.empty() || std::any_of(steered.spec.pools.begin(), steered.spec.pools.end(),
                                        [&](const LoadBalancerSpec::Use& use) { return use.pool == pool; }))
            steer(name, steered, trigger);
}

void StoreInputs::pool(const std::string& name, const store::Record* record, const Trigger& by) {
    const auto object = read(record);
    if (!object) {
        pools_.erase(name);
        seen_.erase("pools/" + name);
        engine_.remove_pool(name, {});
    } else {
        auto spec = PoolSpec::from(name, object->spec);
        if (seen_.insert("pools/" + name).second)
            engine_.restore_pool(name, PoolState::from(object_at(object->status, "internal_state")));
        else if (!leads_())
            engine_.follow_pool(name, PoolState::from(object_at(object->status, "internal_state")));
        const auto known = pools_.find(name);
        const bool changed = known == pools_.end() || known->second.site != spec.site || known->second.monitors != spec.monitors;
        const bool moved = known == pools_.end() || known->second.location != spec.location;
        pools_.insert_or_assign(name, spec);
        engine_.set_pool(std::move(spec), by);
        if (moved) steer_all(by, name);
        if (!changed) return;
    }
    for (const auto& one : in_pool_[name]) {
        update_member(one, by);
        watch(one);
    }
}

void StoreInputs::follow() {
    for (const auto& [name, spec] : pools_)
        if (const auto object = read(store_.find("pools/" + name).get()))
            engine_.follow_pool(name, PoolState::from(object_at(object->status, "internal_state")));
    changed_();
}

void StoreInputs::member(const std::string& name, const store::Record* record, const Trigger& by) {
    if (const auto known = members_.find(name); known != members_.end()) {
        in_pool_[known->second.pool].erase(name);
        on_node_[known->second.node].erase(name);
        of_instance_[known->second.instance].erase(name);
    }
    const auto object = read(record);
    if (!object) {
        members_.erase(name);
        watched_.erase(name);
        last_known_.erase(name);
        found_.erase(name);
        watcher_.forget(name);
        return engine_.remove_member(name, {});
    }
    auto spec = MemberSpec::from(name, object->spec);
    if (!members_.contains(name)) {
        last_known_[name] = health::health_state_from(text_at(object->status, "verdict"));
        // The addresses before a restart, used while the source cannot be queried.
        if (!spec.balancer.empty())
            for (const auto& address : texts_at(object->status, "addresses")) std::ignore = found_[name].add(address);
    } else if (members_.at(name).balancer != spec.balancer) {
        found_.erase(name);
    }
    in_pool_[spec.pool].insert(name);
    on_node_[spec.node].insert(name);
    of_instance_[spec.instance].insert(name);
    members_.insert_or_assign(name, std::move(spec));
    update_member(name, by);
    watch(name);
}

void StoreInputs::monitor(const std::string& name, const store::Record* record) {
    const auto object = read(record);
    if (!object) {
        monitors_.erase(name);
        engine_.remove_monitor(name);
    } else {
        if (const auto known = monitors_.find(name); known != monitors_.end() && known->second == object->spec) return;
        monitors_.insert_or_assign(name, object->spec);
        engine_.set_monitor(MonitorSpec::from(name, object->spec));
    }
    update_calculated_monitors();
    for (const auto& [key, spec] : members_) watch(key);
}

void StoreInputs::node(const std::string& name, const store::Record* record, const Trigger& by) {
    NodeAddress now;
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
    update_members_on(name, by);
}

void StoreInputs::instance(const std::string& name, const store::Record* record, const Trigger& by) {
    InstanceAddress now;
    if (const auto object = read(record))
        now = {text_at(object->spec, "address"), text_at(object->spec, "node"),
               static_cast<std::uint16_t>(count_at(object->spec, "port", 0, 65535))};
    if (const auto known = instances_.find(name); known != instances_.end() && known->second == now) return;
    if (record == nullptr)
        instances_.erase(name);
    else
        instances_.insert_or_assign(name, std::move(now));
    const auto members = of_instance_.find(name);
    if (members == of_instance_.end()) return;
    for (const auto& member : members->second) {
        update_member(member, by);
        watch(member);
    }
}

void StoreInputs::update_members_on(const std::string& node, const Trigger& by) {
    std::set<std::string> members;
    if (const auto found = on_node_.find(node); found != on_node_.end()) members = found->second;
    for (const auto& [instance, of] : of_instance_)
        if (const auto where = instances_.find(instance); where != instances_.end() && where->second.node == node)
            members.insert(of.begin(), of.end());
    for (const auto& member : members) {
        update_member(member, by);
        watch(member);
    }
}

/// Resolves the addresses and site of a member: its own, or those of its Instance or Node.
void StoreInputs::update_member(const std::string& name, const Trigger& by) {
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
        // The node is in maintenance: drain the member, unless it has an override of its own.
        if (found->second.maintenance && spec.override_.action == Override::Action::none)
            out.spec.override_ = {.action = Override::Action::drain,
                                  .reason = fmt::format("Node {} is in maintenance{}{}", node,
                                                        found->second.reason.empty() ? "" : ": ", found->second.reason)};
    } else if (!node.empty() && address.empty()) {
        out.no_address = fmt::format("Node {} does not exist", node);
    }
    if (!spec.balancer.empty()) {
        if (const auto found = found_.find(name); found != found_.end())
            out.addresses = found->second;
        else
            out.no_address = fmt::format("Source {} has not reported the addresses of {}", text_at(spec.balancer, "source"),
                                         text_at(spec.balancer, "id"));
    }
    if (!address.empty() && !out.addresses.add(address).ok())
        out.no_address =
            fmt::format("the address of {} {} is not an IP address: \"{}\"", spec.instance.empty() ? "Node" : "Instance",
                        spec.instance.empty() ? node : spec.instance, address);
    if (out.site.empty())
        if (const auto pool = pools_.find(spec.pool); pool != pools_.end()) out.site = pool->second.site;
    engine_.set_member(std::move(out), by);
}

void StoreInputs::addresses_found(const std::string& name, Addresses addresses) {
    const auto known = members_.find(name);
    if (known == members_.end() || known->second.balancer.empty()) return;
    auto& found = found_[name];
    if (found == addresses) return;
    found = addresses;
    update_member(name);
    watch(name);
    changed_();
}

Watcher::Target::Check StoreInputs::check_of(const std::string& monitor, const json::object& spec) const {
    Watcher::Target::Check out{monitor, spec, {}};
    for (const auto& part : texts_at(spec, "of"))
        if (const auto found = monitors_.find(part); found != monitors_.end()) out.parts.push_back({part, found->second, {}});
    return out;
}

void StoreInputs::update_calculated_monitors() {
    for (const auto& [name, spec] : monitors_) {
        if (!is_calculated(spec)) continue;
        std::optional<MonitorSpec> slowest;
        for (const auto& part : check_of(name, spec).parts)
            if (auto one = MonitorSpec::from(name, part.spec); !slowest || one.max_detection_time() > slowest->max_detection_time())
                slowest = std::move(one);
        if (slowest) engine_.set_monitor(std::move(*slowest));
    }
}

void StoreInputs::watch(const std::string& name) {
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
        engine_.set_member_health(name, {}, Cause::config);
        return;
    }
    if (const auto known = watched_.find(name); known != watched_.end() && known->second == target) return;
    watched_.insert_or_assign(name, target);
    if (const auto before = last_known_.extract(name)) target.last_known = before.mapped();
    if (member->health == MemberHealth{})
        engine_.set_member_health(
            name, {.state = target.last_known, .monitored = true, .stale = target.last_known != HealthState::unknown},
            Cause::config);
    watcher_.watch(name, std::move(target));
}

} // namespace orrery::gslb
