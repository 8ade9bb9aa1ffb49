#pragma once

#include "core/task.h"
#include "store/mirror.h"
#include "store/store.h"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::store {

struct EtcdOptions {
    std::vector<std::string> endpoints; ///< "host:port", tried in turn
    std::string prefix = "/orrery/";    ///< all keys stand below it; other people's keys beside it are not touched
    bool tls = false;                   ///< certificates and host names are then verified
    std::filesystem::path ca;           ///< PEM; empty: the system's
    std::filesystem::path certificate;  ///< PEM, shown to etcd where set, with `key`
    std::filesystem::path key;
    std::string user;                                   ///< empty: no login
    std::filesystem::path password_file;                ///< first line
    Duration dial_timeout = std::chrono::seconds(3);    ///< for a member to show that it can serve
    Duration request_timeout = std::chrono::seconds(2); ///< for one answer of one member, before it is asked again or another is
    Duration give_up = std::chrono::seconds(15);        ///< for the whole of a request whose context has no deadline
    Duration patience = std::chrono::seconds(3);        ///< how long a fresh loss is waited out before writes are refused at once
    bool allow_incomplete = false;                      ///< open even what an interrupted migration left; for clearing it away
    Mirror::Options mirror;
};

/// "etcd://h1:2379,h2:2379/prefix", or etcds:// for TLS; the port is 2379 and the prefix /orrery/ where left out. `invalid` says
/// what is wrong.
Result<EtcdOptions> parse_etcd_url(std::string_view url);

/// A store on an etcd 3 cluster (3.4 or later). Lists all below the prefix, then follows a watch; ready when it returns. Fails with
/// `unavailable` when no member can serve within the context's deadline (else three dial timeouts).
///
/// Each write is applied exactly once or not at all, also when the answer is lost: it carries a mark that comes back by the watch
/// and a fence that stops a late copy (etcd/README.md). Only when neither can be had in time is the outcome reported as unknown:
/// `outcome_unknown` tells such an error from others.
///
/// The loss of a member is waited out for `patience`; a lost cluster refuses writes at once with `unavailable`; reads go on at the
/// revision seen last.
Task<std::unique_ptr<Store>> open_etcd(Context ctx, asio::any_io_executor executor, EtcdOptions options);

/// Whether the write that gave this error may have been applied all the same.
bool outcome_unknown(const Error& error);

} // namespace orrery::store
