#pragma once

#include "core/task.h"
#include "store/copy_age.h"
#include "store/mirror.h"
#include "store/store.h"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::store {

struct EtcdOptions {
    std::vector<std::string> endpoints; ///< "host:port", tried in order
    std::string prefix = "/orrery/";    ///< all keys are below it; other keys are not touched
    bool tls = false;                   ///< with verification of certificates and host names
    bool allow_plaintext = false;       ///< permit connections without `tls` to other hosts than loopback
    std::filesystem::path ca;           ///< PEM; empty: the trust store of the system
    std::filesystem::path certificate;  ///< PEM client certificate, with `key`; empty: none
    std::filesystem::path key;
    std::string user;                                   ///< empty: no login
    std::filesystem::path password_file;                ///< first line
    Duration dial_timeout = std::chrono::seconds(3);    ///< for the first response of a member
    Duration request_timeout = std::chrono::seconds(2); ///< for one response of one member, before a retry
    Duration give_up = std::chrono::seconds(15);        ///< for a whole request whose context has no deadline
    Duration retry_time = std::chrono::seconds(3);      ///< how long writes are retried in an outage before they are refused
    Duration verify_every = std::chrono::seconds(1);    ///< how often the copy is compared with the cluster's revision
    Duration stale_after = stale_copy_age;              ///< a copy not verified for this long is stale: `health` reports it
    bool allow_incomplete = false;                      ///< open also the target of an interrupted migration, to clear it
    Mirror::Options mirror;
};

/// "etcd://h1:2379,h2:2379/prefix", or etcds:// for TLS; the default port is 2379, the default prefix /orrery/. `invalid` with
/// the reason.
Result<EtcdOptions> parse_etcd_url(std::string_view url);
/// `invalid` with a remedy for an endpoint beyond loopback without TLS, unless `allow_plaintext`. `open_etcd` checks it too.
Result<Unit> check_etcd_plaintext(const EtcdOptions& options);

/// A store on an etcd 3 cluster (3.4 or later). Lists all keys below the prefix, then watches them; the copy is complete when it
/// returns. `unavailable`: no member responded before the deadline of the context (default: three dial timeouts).
///
/// Each write is applied exactly once or not at all, even if the response is lost (etcd/README.md). If that cannot be determined in
/// time, the outcome is reported as unknown: see `outcome_unknown`.
///
/// Writes are retried during an outage of up to `retry_time` and then refused with `unavailable`; reads continue at the last
/// received revision. The copy is verified every `verify_every`: a dead connection or a stalled watch is replaced by a new one.
/// `copy_age` is the time since the last verification.
Task<std::unique_ptr<Store>> open_etcd(Context ctx, asio::any_io_executor executor, EtcdOptions options);

/// True if the write that returned this error may have been applied.
bool outcome_unknown(const Error& error);

} // namespace orrery::store
