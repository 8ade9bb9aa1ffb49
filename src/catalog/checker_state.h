#pragma once

#include "catalog/checker.h"
#include "resource/controller.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

/// The inside of Checker, shared by the files that implement it: terms (checker.cpp), one look at one key (checker_looks.cpp),
/// probes and what they find (checker_probes.cpp), time that runs out (checker_timers.cpp), what others say (checker_reports.cpp).
/// Nobody else includes it.
namespace orrery::catalog {

using Results = std::map<std::string, CheckResult>;

/// A check of an instance or of a node, with where it stands.
struct Place {
    std::string node, address; ///< where it is looked at, unless the check says otherwise
    std::uint16_t port = 0;
    const std::vector<CheckView>* checks = nullptr;
};

/// Whether this server looks by itself; others tell it of ttl and external checks.
inline bool is_run_here(const Check& check) {
    return check.kind == Check::Kind::tcp || check.kind == Check::Kind::http || check.kind == Check::Kind::command;
}

struct Checker::State {
    State(asio::any_io_executor executor, resource::Resources& resources_, Catalog& catalog_, store::Leadership& leadership_,
          Clock& clock_, Options options_)
        : resources(resources_),
          catalog(catalog_),
          leadership(leadership_),
          clock(clock_),
          options(std::move(options_)),
          group(executor),
          timers_changed(executor),
          prober(executor, clock_, {.at_once = options.at_once},
                 [this](const std::string& key, const health::Verdict& verdict, const health::Observation& seen, bool) {
                     found(key, verdict, seen);
                 }),
          controller(
              resources_.store(), leadership_, clock_, {"instances/", "catalognodes/", "services/", "nodes/"},
              [this](Context ctx, std::string key, store::Fence fence) { return look_at(std::move(ctx), std::move(key), fence); },
              {.at_once = 64}) {}

    // --- terms (checker.cpp)
    void begin_term();
    void end_term();
    asio::awaitable<void> follow_terms(Context ctx);

    // --- probes and what they find (checker_probes.cpp)
    static std::string probe_key(std::string_view resource_key, std::string_view check) {
        return fmt::format("{}\n{}", resource_key, check);
    }
    void found(const std::string& key, const health::Verdict& verdict, const health::Observation& seen);
    const CheckResult* known_result(const std::string& resource_key, std::string_view check) const;
    /// False for a check that cannot be made into a probe: there is nowhere to look yet.
    bool watch(const std::string& key, const Place& place, const Check& check, const CheckResult* known);

    // --- one look at one key (checker_looks.cpp)
    Task<Unit> look_at(Context ctx, std::string key, store::Fence fence);
    Task<Unit> look_at_instance(Context ctx, std::string key, store::Fence fence);
    Task<Unit> look_at_node(Context ctx, std::string key, store::Fence fence);
    Task<Unit> look_at_service(Context ctx, std::string key, store::Fence fence);
    /// Sees to it that what should be looked at is, and what should expire will; returns all results there are now.
    Results settle(const std::string& key, const Place& place, const json::object& status);
    Task<Unit> write(Context ctx, const resource::Kind& kind, std::string name, const resource::Object& object, json::object status,
                     store::Fence fence);
    void written(const std::string& key, Results results);
    void forget(const std::string& key);
    bool should_be_removed(const InstanceView& view, const Results& results) const;

    // --- time that runs out (checker_timers.cpp)
    enum class Timer { expiry, removal };
    using TimerKey = std::tuple<std::string, std::string, Timer>;
    /// When a ttl is over: exactly, where we heard the word ourselves; with a quarter more where another server did and only wrote
    /// down now and then; and never before a whole ttl of our own leading is over, because we could not hear before.
    SteadyTime expiry(const std::string& key, const Check& check, const CheckResult& result) const;
    void set_timer(const std::string& key, const std::string& check, Timer what, std::optional<SteadyTime> when);
    /// Of one resource, those whose check is `gone`.
    void drop_timers(const std::string& key, const std::function<bool(const std::string& check)>& gone);
    asio::awaitable<void> run_timers(Context ctx);

    resource::Resources& resources;
    Catalog& catalog;
    store::Leadership& leadership;
    Clock& clock;
    Options options;
    TaskGroup group;
    Notifier timers_changed;
    bool in_term = false;
    SteadyTime term_began{};
    std::map<std::string, std::set<std::string>> watched; ///< resource key → checks that the prober has
    std::map<std::string, Results> pending;               ///< what was found and is not written yet
    std::map<std::string, Results> stored;                ///< what is written, by resource key
    std::map<TimerKey, SteadyTime> timers;
    std::set<std::pair<SteadyTime, TimerKey>> due; ///< the same, by time
    std::map<std::string, SteadyTime> heard;       ///< ttl checks: when somebody told this server
    std::map<std::string, std::string> service_specs;
    std::shared_ptr<void> subscription;
    health::Prober prober;
    resource::Controller controller;
};

} // namespace orrery::catalog
