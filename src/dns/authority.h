#pragma once

#include "core/clock.h"
#include "dns/choice.h"
#include "dns/cookie.h"
#include "dns/dnssec.h"
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

/// Answers authoritatively for zones: static records, and beside them dynamic names, each a choice that was decided elsewhere.
///
/// `respond` may be called from any number of threads; it reads one immutable snapshot, takes no lock, allocates nothing. `apply`
/// makes the next snapshot, in which only what changed is made anew, and puts it in the place of the old: an answer is wholly of
/// one or wholly of the other. Calls of `apply` wait for each other.
class Authority final : public Responder {
public:
    struct Options {
        std::string nsid;                  ///< what we call ourselves to who asks with NSID; at most 64 bytes, none if empty
        std::string version, identity;     ///< version.bind and id.server in class CH; refused where empty
        std::uint16_t udp_size = 1232;     ///< the largest answer over UDP
        std::vector<CookieSecret> cookies; ///< the first makes them, all are honoured; none: no cookies
        std::uint16_t tcp_keepalive = 300; ///< tenths of a second, told to who asks; what the server grants
        std::vector<Prefix> transfer_to;   ///< secondaries that may take zones over TCP
        RateLimit::Options rate_limit;
        std::uint32_t signature_life = 4 * 86400; ///< seconds
        std::uint32_t signatures_a_second = 2000; ///< on demand, for each thread; beyond that clients are sent to TCP
        std::size_t query_log = 0;                ///< so many questions of each thread wait for `take_queries`; 0: none are kept
        std::uint32_t query_log_every = 1;        ///< of the questions of a thread, each so-many-th is kept
        const Clock* clock = nullptr;             ///< of cookies and limits; the machine's if not given
    };
    explicit Authority(Options options);
    ~Authority() override;

    /// What changes at once. Zones that are touched get the revision as their serial, the same on every server that follows the
    /// same store; one more than they had, where that is not later (RFC 1982): secondaries miss no change.
    struct Update {
        std::uint64_t revision = 0;
        std::vector<Zone> zones;         ///< new, or in the place of what they were; dynamic names in them stay
        std::vector<Name> without_zones; ///< with their dynamic names
        std::vector<std::pair<Name, Tailored>> names;
        std::vector<Name> without_names;
        /// Zones to be signed with these keys from now on; with no key, no longer. The zone's parent has to have its DS.
        std::vector<std::pair<Name, std::shared_ptr<const SigningKey>>> keys;
    };
    /// All of it or nothing. `invalid` names the zone or the name: one that is in no zone, or hidden by a delegation; addresses or
    /// an alias where the zone has some already; an alias at a zone's origin.
    Result<Unit> apply(Update update);

    void expect(std::span<const Bytes> queries) const noexcept override;
    std::size_t respond(Bytes query, const Asker& asker, std::span<std::uint8_t> out) const noexcept override;
    std::unique_ptr<Transfer> transfer(Bytes query, const Asker& asker) const noexcept override;

    /// Makes signatures anew that are past half their life, `most` names at a time; to be called now and then. How many names it
    /// did. A signed zone that secondaries may take, and that has not changed for a quarter of that life, gets another serial: what
    /// they have would run out.
    std::size_t refresh_signatures(std::size_t most = 1000);
    /// The DS record's data for the parent of a signed zone; `not_found`.
    Result<std::vector<std::uint8_t>> ds_of(const Name& origin) const;

    /// The records of a zone as they are now, its SOA first; of a dynamic name those that clients of no prefix may get. `not_found`
    /// where there is no such zone.
    Result<std::vector<ZoneRecord>> zone_records(const Name& origin) const;

    struct ZoneSerial {
        Name zone;
        std::uint32_t serial = 0;
    };
    std::vector<ZoneSerial> serials() const;
    /// Counts up whenever a serial may have changed: cheap to look at.
    std::uint64_t changes() const;

    /// A question and what became of it.
    struct Asked {
        WallTime time;
        Asker asker;
        Name name;
        std::uint16_t type = 0, dns_class = 0;
        Rcode rcode = Rcode::noerror;
        std::uint16_t size = 0; ///< of the answer; 0: there was none, the client is over its limit
    };
    /// Hands over the questions kept since the last time, in order for each thread that answered, and returns how many. What found
    /// no room was counted, and nothing else: who answers never waits. One caller at a time.
    std::size_t take_queries(const std::function<void(const Asked&)>& see) const;

    struct ZoneCounts {
        std::uint64_t queries = 0, nxdomain = 0;
    };
    struct Statistics {
        std::uint64_t queries = 0, tcp = 0, truncated = 0, limited = 0, slipped = 0, malformed = 0, with_subnet = 0,
                      valid_cookies = 0;
        std::uint64_t signed_on_demand = 0, unsigned_for_load = 0, unlogged = 0;
        std::map<std::uint16_t, std::uint64_t> by_type; ///< those over 257 as 0xFFFF
        std::map<std::uint16_t, std::uint64_t> by_rcode;
        std::map<std::string, ZoneCounts> by_zone;
    };
    Statistics statistics() const;
    std::size_t name_count() const; ///< of names there is something at
    /// Zones, dynamic names and what is still waiting for readers to leave, for tests.
    std::size_t waiting_garbage() const;

    static constexpr std::size_t max_candidates = 1024, max_choices = 4096, max_rules = 1'000'000;

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::dns
