#pragma once

#include "dns/name.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orrery::dns {

/// A member that a dynamic name may answer with: its IPv4 address, its IPv6 address, or both.
struct Candidate {
    std::optional<std::array<std::uint8_t, 4>> v4;
    std::optional<std::array<std::uint8_t, 16>> v6;
    std::uint32_t weight = 1;   ///< 0: selected only if the weights of all candidates are 0
    std::uint64_t identity = 0; ///< equal for the same member on all servers and after a restart, so that sticky clients keep it
    std::uint32_t domain = 0;   ///< failure domain; a subset is spread over domains first. 0: a domain of its own
};

/// How an AnswerSet selects candidates for one response.
enum class SelectionPolicy {
    all,            ///< every candidate, in order
    round_robin,    ///< every candidate; each response starts with the next one
    weighted,       ///< one candidate, with probability weight / sum of weights
    weighted_many,  ///< each candidate with probability weight / highest weight, so the heaviest are always included
    subset,         ///< `max_answers` random candidates with equal probability, spread over failure domains
    sticky,         ///< `max_answers` by weighted rendezvous hashing of the client's prefix: losing a member moves only its clients
    sticky_by_name, ///< as `sticky`, with the query name as the key: names below a wildcard are spread over the candidates
};

/// Limit of `AnswerSet::candidates`: `select_candidates` returns 16-bit indexes.
constexpr std::size_t max_selectable = 0xFFFF;

/// The records that one class of clients gets for a dynamic name. The gslb module decides everything in it; the DNS server only
/// applies the selection policy.
struct AnswerSet {
    SelectionPolicy policy = SelectionPolicy::all;
    std::vector<Candidate> candidates; ///< at most `max_selectable`
    std::uint32_t ttl = 30;
    std::size_t max_answers = 0; ///< 0: unlimited
    std::optional<Name> alias;   ///< a CNAME instead of addresses; `candidates` must be empty
    enum class Empty { nodata, servfail, refuse };
    Empty when_empty = Empty::nodata; ///< the response if `candidates` is empty
    std::string extended_error; ///< text of an extended DNS error (RFC 8914), such as "panic: no pool is usable"; max. 64 bytes
};

/// The inputs of a selection: random state and properties of the query.
struct SelectionInput {
    std::uint64_t random = 0;
    std::uint32_t rotation = 0;        ///< response counter, for `round_robin`
    std::uint64_t client_hash = 0;     ///< hash of the client's prefix (/24, /56), for `sticky`
    std::uint64_t query_name_hash = 0; ///< `name_hash` of the query name, for `sticky_by_name`
};

/// A case-insensitive hash of a name. The result is the same on every server and after a restart.
std::uint64_t name_hash(const Name& name);

/// Writes the indexes of the selected candidates to `selected` and returns their number. A pure function: the same input gives the
/// same candidates in the DNS server and in explanations of a decision.
std::size_t select_candidates(const AnswerSet& answer_set, const SelectionInput& input, std::span<std::uint16_t> selected);

enum class AddressFamily { ipv4, ipv6 };
/// Must a query for one address family select among the candidates that have an address of that family? Without this filter, a
/// selection could be empty although another candidate has an address. Sticky policies are not filtered, so that a client keeps the
/// same member for both families.
bool needs_family_filter(const AnswerSet& answer_set, AddressFamily family);
/// A copy with the candidates that the filter keeps.
AnswerSet filter_by_family(const AnswerSet& answer_set, AddressFamily family);

} // namespace orrery::dns
