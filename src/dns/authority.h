#pragma once

#include "core/clock.h"
#include "dns/cookie.h"
#include "dns/dnssec.h"
#include "dns/dynamic_name.h"
#include "dns/message.h"
#include "dns/rate_limit.h"
#include "dns/server.h"
#include "dns/zone_file.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::dns {

/// An authoritative Responder for zones with static records and dynamic names, signed or unsigned.
///
/// Any number of threads may call `respond`: it reads one immutable snapshot, takes no lock and allocates nothing. `apply` builds
/// the next snapshot, in which only changed names are rebuilt, and publishes it atomically: a response uses either the old snapshot
/// or the new one. Concurrent calls of `apply` are serialized.
class Authority final : public Responder {
public:
    struct Options {
        std::string nsid;                         ///< name server identifier (RFC 5001), at most 64 bytes; empty: none
        std::string version, identity;            ///< answers to version.bind and id.server in class CH; empty: REFUSED
        std::uint16_t udp_size = 1232;            ///< maximum size of a UDP response
        std::vector<CookieSecret> cookie_secrets; ///< the first one makes cookies, all are accepted; empty: no cookies
        std::uint16_t tcp_keepalive = 300;        ///< idle timeout announced to TCP clients, in units of 100 ms
        std::vector<Prefix> transfer_to;          ///< networks of secondaries that may transfer zones
        RateLimit::Options rate_limit;
        std::uint32_t signature_lifetime = 4 * 86400;   ///< seconds
        std::uint32_t max_signatures_per_second = 2000; ///< on demand, per thread; UDP queries beyond it get TC
        std::size_t query_log_capacity = 0;             ///< queries that each thread buffers for `drain_query_log`; 0: no log
        std::uint32_t query_log_sample_every = 1;       ///< log one of every N queries
        const Clock* clock = nullptr;                   ///< for cookies, rate limits and signatures; null: the system clock
    };
    explicit Authority(Options options);
    ~Authority() override;

    /// A set of changes. Each affected zone gets `revision` plus its offset as its serial, so all servers that follow the same
    /// store have the same serial. If that is not later than the current serial (RFC 1982), the serial is incremented instead, so
    /// that secondaries miss no change.
    struct Update {
        std::uint64_t revision = 0;
        std::vector<Zone> zones;         ///< zones to add or replace; their dynamic names are kept
        std::vector<Name> removed_zones; ///< their dynamic names are removed too
        std::vector<std::pair<Name, DynamicName>> dynamic_names;
        std::vector<Name> removed_names; ///< dynamic names to remove
        /// Zones to sign with a key; a null key makes the zone unsigned. The parent zone must publish the DS record.
        std::vector<std::pair<Name, std::shared_ptr<const SigningKey>>> signing_keys;
    };
    /// Applies all changes or none. `invalid` names the zone or the name: a dynamic name outside all zones or below a delegation,
    /// a conflict with static addresses or a static CNAME, an alias at a zone's origin.
    Result<Unit> apply(Update update);

    void prefetch(std::span<const Bytes> queries) const noexcept override;
    std::size_t respond(Bytes query, const Client& client, std::span<std::uint8_t> out) const noexcept override;
    std::unique_ptr<Transfer> transfer(Bytes query, const Client& client) const noexcept override;

    /// While suspended, every query in class IN gets SERVFAIL (extended error "not ready", RFC 8914) and no zone is transferred:
    /// resolvers then query another server of the zone. Thread-safe.
    void suspend(bool suspended);
    bool is_suspended() const;

    /// Renews signatures that are past half of their lifetime, for at most `max_names` names; returns how many. Call it
    /// periodically. If transfers are allowed, a signed zone without a change for a quarter of the lifetime gets a new serial:
    /// otherwise the signatures at the secondaries would expire.
    std::size_t refresh_signatures(std::size_t max_names = 1000);
    /// RDATA of the DS record of a signed zone; `not_found`.
    Result<std::vector<std::uint8_t>> ds_of(const Name& origin) const;

    /// The current records of a zone, SOA first. A dynamic name has the records for clients without a matching prefix. `not_found`.
    Result<std::vector<ZoneRecord>> zone_records(const Name& origin) const;

    struct ZoneSerial {
        Name zone;
        std::uint32_t serial = 0;
        std::uint32_t offset = 0; ///< Zone::serial_offset
    };
    std::vector<ZoneSerial> serials() const;
    /// A counter that increases whenever a serial may have changed. Cheap to poll.
    std::uint64_t change_count() const;

    /// A query and its response, for the query log.
    struct LoggedQuery {
        WallTime time;
        Client client;
        Name name;
        std::uint16_t type = 0, dns_class = 0;
        Rcode rcode = Rcode::noerror;
        std::uint16_t size = 0; ///< of the response; 0: dropped by the rate limit
    };
    /// Visits and removes the buffered queries, in order for each answering thread; returns their number. One caller at a time.
    /// Queries that found a full buffer are counted in `Statistics::query_log_dropped`.
    std::size_t drain_query_log(const std::function<void(const LoggedQuery&)>& visit) const;

    struct ZoneCounts {
        std::uint64_t queries = 0, nxdomain = 0;
    };
    struct Statistics {
        std::uint64_t queries = 0, tcp = 0, truncated = 0, rate_limited = 0, slipped = 0, malformed = 0, with_client_subnet = 0,
                      valid_cookies = 0;
        std::uint64_t signed_on_demand = 0, signing_limited = 0, query_log_dropped = 0;
        std::map<std::uint16_t, std::uint64_t> by_type; ///< types over 257 are counted as 0xFFFF
        std::map<std::uint16_t, std::uint64_t> by_rcode;
        std::map<std::string, ZoneCounts> by_zone;
    };
    Statistics statistics() const;
    std::size_t name_count() const; ///< existing names, including empty non-terminals
    /// Number of replaced snapshots that readers may still use. For tests.
    std::size_t pending_garbage() const;

    static constexpr std::size_t max_candidates = 1024, max_answer_sets = 4096, max_rules = 1'000'000;

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::dns
