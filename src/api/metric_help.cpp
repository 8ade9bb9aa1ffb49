#include "api/metrics.h"

#include <map>

/// HELP texts of metrics, one line each, as promtool check metrics requires.
namespace orrery::api {

std::string metric_help(std::string_view name) {
    static const std::map<std::string_view, std::string_view> known = {
        {"orrery_checks_late_total", "Service checks that were skipped because the previous check still ran."},
        {"orrery_checks_local_errors_total", "Service checks that failed with a local error of this server."},
        {"orrery_checks_running", "Service checks in progress."},
        {"orrery_checks_total", "Service checks completed."},
        {"orrery_checks_watched", "Service checks that this server runs."},
        {"orrery_component_failed", "1 while a component of this server is failed or restarting."},
        {"orrery_component_failures_total", "Failures of a component of this server."},
        {"orrery_dns_rate_limited_total",
         "DNS queries for catalog names dropped because the client network was over dns.rate_limit."},
        {"orrery_dns_slipped_total",
         "DNS queries for catalog names answered with TC because the client network was over dns.rate_limit."},
        {"orrery_event_streams", "Open event streams."},
        {"orrery_gslb_decided_total", "Decisions about load balancers."},
        {"orrery_gslb_failed_writes_total", "Failed writes of decisions and statuses; they are retried."},
        {"orrery_gslb_probes_skipped_total", "Probes of members that were skipped because the previous probe still ran."},
        {"orrery_gslb_probes_total", "Probes of members completed."},
        {"orrery_gslb_probe_targets", "Addresses of members that this server probes."},
        {"orrery_gslb_members_unchecked", "Members with a check that cannot run on this server."},
        {"orrery_gslb_records_lost_total", "Decision records that were lost before they could be written."},
        {"orrery_gslb_records_waiting", "Decision records queued for writing."},
        {"orrery_http_connections", "Open connections of HTTP clients."},
        {"orrery_jobs_active", "Jobs that have not ended."},
        {"orrery_jobs_attempts_running", "Attempts of tasks in progress."},
        {"orrery_jobs_cycles_total", "Cycles of the job engine."},
        {"orrery_jobs_transitions_total", "State transitions of tasks."},
        {"orrery_leader", "1 on the leader, otherwise 0."},
        {"orrery_store_changes_written_total", "Key changes written to the store."},
        {"orrery_store_commits_total", "Group commits to disk."},
        {"orrery_store_commit_failures_total", "Group commits that failed."},
        {"orrery_store_compacted_revision", "Changes up to this revision are compacted: a watch cannot start before it."},
        {"orrery_store_copy_age_seconds", "Time since the in-memory copy of the store was last verified against etcd."},
        {"orrery_store_etcd_connected", "1 while the watch on etcd is open, else 0."},
        {"orrery_store_etcd_watch_stalls_total", "etcd watches abandoned because they delivered no changes."},
        {"orrery_store_history_bytes", "Memory used by the history of changes."},
        {"orrery_store_history_events", "Changes in the history, which watches can start from."},
        {"orrery_store_keys", "Keys in the store."},
        {"orrery_store_leases", "Active leases."},
        {"orrery_store_queued_bytes", "Bytes of queued writes."},
        {"orrery_store_queued_writes", "Writes queued for the next group commit."},
        {"orrery_store_revision", "Revision of this server's copy of the store."},
        {"orrery_store_superseded_rows", "Log rows of the store that wait for deletion."},
        {"orrery_store_superseded_rows_deleted_total", "Superseded log rows deleted."},
        {"orrery_store_wal_checkpoints_total", "Checkpoints of the write-ahead log."},
        {"orrery_store_watches", "Open watches."},
        {"orrery_store_watches_overrun_total", "Watches ended because they fell behind the history."},
        {"orrery_zone_rate_limit",
         "Configured maximum of UDP responses per second to one network, for each kind of response; 0: no limit."},
        {"orrery_zone_rate_limited_total", "DNS queries dropped because the client network was over dns.rate_limit."},
        {"orrery_zone_secondaries_ahead",
         "Zones that a secondary does not transfer because its serial is later than that of this server."},
        {"orrery_zone_slipped_total", "DNS queries answered with TC because the client network was over dns.rate_limit."},
        {"orrery_zone_suspended", "1 while DNS queries get SERVFAIL because the local copy of the store is stale, otherwise 0."},
        {"process_cpu_seconds_total", "Total user and system CPU time spent in seconds."},
        {"process_open_fds", "Number of open file descriptors."},
        {"process_resident_memory_bytes", "Resident memory size in bytes."},
        {"process_start_time_seconds", "Start time of the process since the Unix epoch in seconds."},
    };
    if (const auto found = known.find(name); found != known.end()) return std::string(found->second);
    // Other names explain themselves: "orrery_dns_queries_total" gives "Dns queries total."
    constexpr std::string_view prefix = "orrery_";
    std::string out(name.starts_with(prefix) ? name.substr(prefix.size()) : name);
    for (char& c : out)
        if (c == '_') c = ' ';
    if (!out.empty() && out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 'a' + 'A');
    return out + ".";
}

} // namespace orrery::api
