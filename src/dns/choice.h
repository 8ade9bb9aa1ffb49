#pragma once

#include "dns/client_map.h"
#include "dns/name.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orrery::dns {

/// One of the things a dynamic name may answer with: the addresses of one member, of either family or both.
struct Candidate {
    std::optional<std::array<std::uint8_t, 4>> v4;
    std::optional<std::array<std::uint8_t, 16>> v6;
    std::uint32_t weight = 1;   ///< 0: chosen only where all others are 0 too
    std::uint64_t identity = 0; ///< the same for the same member on every server and after every restart: sticky clients stay
    std::uint32_t domain = 0;   ///< failure domain; picks of several spread over these first. 0: of its own
};

enum class Picking {
    all,     ///< every candidate, in order
    rotate,  ///< every candidate, each answer begins at the next
    one,     ///< one, with probability weight / sum
    many,    ///< each with probability weight / greatest weight, so that the heaviest are always there
    subset,  ///< `most` at random, equal chances, spread over domains
    sticky,  ///< `most` by weighted rendezvous of the client's prefix: only a lost member's clients move
    by_name, ///< the same of the name that is asked for: all clients of a name get the same, the names of a wildcard are spread
};

/// Places are 16 bits wide; no name has so many members.
constexpr std::size_t most_candidates = 0xFFFF;

/// What a name answers a class of clients with. Whoever makes it has decided everything but the draw.
struct Choice {
    Picking picking = Picking::all;
    std::vector<Candidate> candidates; ///< no more than most_candidates
    std::uint32_t ttl = 30;
    std::size_t most = 0;      ///< at most so many answers; 0: no limit
    std::optional<Name> alias; ///< a CNAME in place of addresses; candidates are empty then
    enum class Empty { nodata, servfail, refuse };
    Empty when_empty = Empty::nodata; ///< where there is no candidate at all
    std::string remark;               ///< why it is not what it should be, told to who asks with EDNS (RFC 8914); at most 64 bytes
};

/// What is left to chance and to the client.
struct Draw {
    std::uint64_t random = 0;
    std::uint32_t turn = 0;          ///< counts answers, for `rotate`
    std::uint64_t client_prefix = 0; ///< hash of the client's prefix (/24, /56), for `sticky`
    std::uint64_t name = 0;          ///< `hash_of` the name that was asked for, for `by_name`
};
/// The same for the same name in any case, on every server and after every restart.
std::uint64_t hash_of(const Name& name);
/// Which candidates to answer with, as places in `candidates`, into `picked`; returns how many. Pure: the same draw gives the same
/// picks, here and wherever a decision is explained or played again. A and AAAA of one draw come from the same candidates.
std::size_t pick(const Choice& choice, const Draw& draw, std::span<std::uint16_t> picked);

struct Prefix {
    std::array<std::uint8_t, 16> address{}; ///< IPv4 in its first four bytes
    bool v6 = false;
    std::uint8_t length = 0;
    bool operator==(const Prefix&) const = default;
};

/// A dynamic name: one choice for all, or another for some clients. The longest prefix that holds the client wins.
struct Tailored {
    std::vector<Choice> choices; ///< the first is for clients of no prefix
    struct Rule {
        Prefix prefix;
        std::uint32_t choice = 0;
    };
    std::vector<Rule> by_client;
    /// Instead of `by_client`: one table for any number of names, however large it is.
    std::shared_ptr<const ClientTable> clients;
};

} // namespace orrery::dns
