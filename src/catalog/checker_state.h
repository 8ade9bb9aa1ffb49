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

/// The implementation of Checker, shared by its source files: terms (checker.cpp), reconciliation of one key
/// (checker_reconcile.cpp), probes and their results (checker_probes.cpp), timers (checker_timers.cpp), reports of clients
/// (checker_reports.cpp).
namespace orrery::catalog {

using Results = std::map<std::string, CheckResult>;

/// The checks of an instance or of a node, with its address.
struct CheckedTarget {
    std::string node, address; ///< the default target of its checks
    std::uint16_t port = 0;
    const std::vector<CheckView>* checks = nullptr;
};

/// Whether this server runs the check; clients report the results of ttl and external checks.
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
                 [this](const std::string& key, const health::HealthStateMachine& verdict, const health::Observation& seen, bool) {
                     found(key, verdict, seen);
                 }),
          controller(
              resources_.store(), leadership_, clock_, {"instances/", "catalognodes/", "services/", "nodes/", "secrets/"},
              [this](Context ctx, std::string key, store::Fence fence) { return reconcile(std::move(ctx), std::move(key), fence); },
              {.max_concurrent = 64}) {}

    // --- terms (checker.cpp)
    void begin_term();
    void end_term();
    asio::awaitable<void> end_first_round(SteadyTime term);
    asio::awaitable<void> follow_terms(Context ctx);

    // --- probes and their results (checker_probes.cpp)
    static std::string probe_key(std::string_view resource_key, std::string_view check) {
        return fmt::format("{}\n{}", resource_key, check);
    }
    void found(const std::string& key, const health::HealthStateMachine& verdict, const health::Observation& seen);
    const CheckResult* known_result(const std::string& resource_key, std::string_view check) const;
    /// Starts to probe. False when it cannot: the address is not known yet, or `error` has the cause.
    bool watch(const std::string& key, const CheckedTarget& target, const Check& check, const CheckResult* known,
               std::string& error);
    /// The probe of an http check, with the values of the Secrets that it references.
    Result<health::ProbePtr> http_probe_of(const Check& check, std::string url) const;
    void note_secrets(const std::string& key, const CheckedTarget& target);

    // --- reconciliation of one key (checker_reconcile.cpp)
    Task<Unit> reconcile(Context ctx, std::string key, store::Fence fence);
    Task<Unit> reconcile_instance(Context ctx, std::string key, store::Fence fence);
    Task<Unit> reconcile_node(Context ctx, std::string key, store::Fence fence);
    Task<Unit> reconcile_service(Context ctx, std::string key, store::Fence fence);
    /// Starts, changes and stops the probes and timers of all checks of a resource, and returns the current results.
    Results update_checks(const std::string& key, const CheckedTarget& target, const json::object& status);
    /// The same for one check; true if it is probed.
    bool update_check(const std::string& key, const CheckedTarget& target, const Check& check, Results& results);
    /// Merges the result that is not stored yet.
    void merge_pending(const std::string& key, const Check& check, Results& results) const;
    /// Records that a probe could not be created, or removes the error once it can.
    void note_watch_error(Results& results, const std::string& probe, const Check& check, std::string error);
    Task<Unit> write(Context ctx, const resource::Kind& kind, std::string name, const resource::Object& object, json::object status,
                     store::Fence fence);
    void written(const std::string& key, Results results);
    void forget(const std::string& key);
    bool should_be_removed(const InstanceView& view, const Results& results) const;

    // --- timers (checker_timers.cpp)
    enum class Timer { expiry, removal };
    using TimerKey = std::tuple<std::string, std::string, Timer>;
    /// The time at which a ttl expires. Exact if this server received the last report; a quarter later if another server received
    /// it, because that server does not store each report; and never before this server has been the leader for a whole ttl.
    SteadyTime expiry(const std::string& key, const Check& check, const CheckResult& result) const;
    void set_timer(const std::string& key, const std::string& check, Timer type, std::optional<SteadyTime> when);
    /// Removes the timers of one resource whose check satisfies `is_removed`.
    void drop_timers(const std::string& key, const std::function<bool(const std::string& check)>& is_removed);
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
    std::map<std::string, std::set<std::string>> probed_checks; ///< resource key → checks that are probed
    std::map<std::string, std::set<std::string>> secret_users;  ///< Secret → keys of resources whose checks use it
    std::map<std::string, Results> pending;                     ///< results that are not stored yet, by resource key
    std::map<std::string, Results> stored;                      ///< stored results, by resource key
    std::map<std::string, std::string> watch_errors;            ///< probe key → why the probe cannot be created
    std::map<TimerKey, SteadyTime> timers;
    std::set<std::pair<SteadyTime, TimerKey>> due; ///< `timers` by time
    std::map<std::string, SteadyTime> last_report; ///< ttl checks: time of the last report to this server
    std::map<std::string, std::string> service_specs;
    std::shared_ptr<void> subscription;
    health::Prober prober;
    resource::Controller controller;
};

} // namespace orrery::catalog
