#pragma once

#include "dns/name.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::dns {

namespace type {
constexpr std::uint16_t a = 1, ns = 2, cname = 5, soa = 6, ptr = 12, mx = 15, txt = 16, aaaa = 28, srv = 33, opt = 41, ixfr = 251,
                        axfr = 252, mailb = 253, maila = 254, any = 255, hinfo = 13, ds = 43, rrsig = 46, nsec = 47, dnskey = 48,
                        cds = 59, cdnskey = 60, nxname = 128, tkey = 249, tsig = 250;
}
namespace dns_class {
constexpr std::uint16_t in = 1, chaos = 3, any = 255;
}
enum class Rcode : std::uint16_t { noerror = 0, formerr = 1, servfail = 2, nxdomain = 3, notimp = 4, refused = 5, badvers = 16 };

struct Edns {
    std::uint16_t size = 512; ///< what the asker can take; at least 512
    bool dnssec_ok = false;
    bool compact_ok = false; ///< RFC 9824: knows that a denial can say NXDOMAIN and be compact
    Bytes options;           ///< of the query's bytes
};

/// A query as it came. Refers to nothing but, for its options, the bytes it was read from.
struct Query {
    std::uint16_t id = 0;
    std::uint8_t opcode = 0;
    bool recursion_desired = false, checking_disabled = false;
    Name name; ///< as asked, case included
    std::uint16_t type = 0, dns_class = 0;
    std::size_t question_end = 12; ///< where the question ends in the bytes; 12: there is none to repeat
    std::optional<Edns> edns;
};

/// What a server does with the bytes: answer the query, answer with just this code, or nothing.
struct Reading {
    enum class What { answer, refuse, drop };
    What what = What::drop;
    Rcode rcode = Rcode::noerror; ///< of a refusal
    Query query;                  ///< as far as it was read: at least its id, unless dropped
};
/// Reads a query by the rules of an authoritative server (RFC 1035, 6891, 8906): one question, no pointers in it, at most one OPT,
/// no option that runs over; what is in other sections is skipped, what comes after is ignored. Without a question it is refused,
/// but its OPT is there to see: RFC 7873 lets cookies be asked for so. Allocates nothing, never reads past the end.
Reading read_query(Bytes bytes);

/// Writes an answer into a buffer of fixed size, with names compressed (RFC 1035 4.1.4). A record that does not fit is not written
/// at all. Sections are written in their order. Allocates nothing.
class Writer {
public:
    enum class Section : std::uint8_t { answer, authority, additional };

    /// Writes the head and repeats the question byte for byte. At most `limit` bytes are written.
    Writer(std::span<std::uint8_t> out, std::size_t limit, const Query& query, Bytes query_bytes);

    /// What `finish` will need for the OPT record is kept free.
    bool a(Section section, const Name& owner, std::uint32_t ttl, std::array<std::uint8_t, 4> address);
    bool aaaa(Section section, const Name& owner, std::uint32_t ttl, const std::array<std::uint8_t, 16>& address);
    bool name(Section section, const Name& owner, std::uint16_t type, std::uint32_t ttl, const Name& target); ///< NS, CNAME, PTR
    bool srv(Section section, const Name& owner, std::uint32_t ttl, std::uint16_t priority, std::uint16_t weight,
             std::uint16_t port, const Name& target);
    bool txt(Section section, const Name& owner, std::uint32_t ttl, std::string_view text); ///< in strings of at most 255
    struct Soa {
        Name mname, rname;
        std::uint32_t serial = 0, refresh = 3600, retry = 600, expire = 86400, minimum = 0;
    };
    bool soa(Section section, const Name& owner, std::uint32_t ttl, const Soa& soa);
    /// A record whose data is made already.
    bool raw(Section section, const Name& owner, std::uint16_t type, std::uint16_t dns_class, std::uint32_t ttl, Bytes data);

    std::uint16_t count(Section section) const { return counts_[static_cast<std::size_t>(section)]; }
    std::size_t size() const { return at_; }
    std::size_t room() const { return limit_ > at_ ? limit_ - at_ : 0; } ///< for more
    /// Records made before, whole, whose owners point to the question (offset 12) or nowhere.
    bool records(Section section, Bytes bytes, std::uint16_t count);
    /// Forgets all records: for answers that must be whole or not there.
    void clear();
    /// Keeps room for this many bytes of EDNS options, which `finish` is given.
    void keep_for_options(std::size_t bytes);

    struct Finish {
        Rcode rcode = Rcode::noerror;
        bool authoritative = true;
        bool truncated = false;
        std::uint16_t edns_size = 1232; ///< what we can take
        Bytes options{};                ///< of the OPT record; not more than was kept room for
    };
    /// Completes the head, adds OPT where the query had one, and returns the size of the message.
    std::size_t finish(const Finish& finish);

private:
    struct Mark {
        std::size_t at;
        std::size_t names;
    };
    bool begin(const Name& owner, std::uint16_t type, std::uint16_t dns_class, std::uint32_t ttl);
    bool end(Section section, Mark mark, std::size_t length_at, bool fits);
    bool put(const void* data, std::size_t size);
    bool put16(std::uint16_t value);
    bool put32(std::uint32_t value);
    bool put_name(const Name& name, bool compress = true);

    std::span<std::uint8_t> out_;
    std::size_t limit_, at_ = 12, body_at_ = 12, kept_ = 0;
    std::array<std::uint16_t, 3> counts_{};
    std::array<std::uint16_t, 96> names_; ///< where names begin that later ones may point to
    std::size_t name_count_ = 0, question_names_ = 0;
    const Query& query_;
};

/// An answer with nothing in it but its code.
std::size_t write_refusal(std::span<std::uint8_t> out, const Query& query, Bytes query_bytes, Rcode rcode);

/// A whole message, read for tests, probes and transfers. Bounded like all else.
struct Record {
    Name owner;
    std::uint16_t type = 0, dns_class = 0;
    std::uint32_t ttl = 0;
    std::vector<std::uint8_t> data; ///< names in it (NS, CNAME, PTR, SOA, MX, SRV) without compression
    std::string to_text() const;    ///< "web.consul 0 A 192.0.2.1"
};
struct Message {
    std::uint16_t id = 0;
    bool response = false, authoritative = false, truncated = false, recursion_desired = false, recursion_available = false;
    std::uint8_t opcode = 0;
    Rcode rcode = Rcode::noerror; ///< with the extension of OPT
    Name name;
    std::uint16_t type = 0, dns_class = 0;
    bool has_question = false;
    std::vector<Record> answer, authority, additional; ///< without OPT
    std::optional<std::uint16_t> edns_size;
    bool dnssec_ok = false;
    std::vector<std::uint8_t> options; ///< of OPT
};
/// `invalid` for anything that is not whole.
Result<Message> read_message(Bytes bytes);
/// A query, for tests and probes.
std::vector<std::uint8_t> write_query(std::uint16_t id, const Name& name, std::uint16_t type,
                                      std::optional<std::uint16_t> edns_size = std::nullopt);

} // namespace orrery::dns
