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
                        cds = 59, cdnskey = 60, svcb = 64, https = 65, nxname = 128, tkey = 249, tsig = 250;
}
namespace dns_class {
constexpr std::uint16_t in = 1, chaos = 3, any = 255;
}
enum class Rcode : std::uint16_t { noerror = 0, formerr = 1, servfail = 2, nxdomain = 3, notimp = 4, refused = 5, badvers = 16 };

struct Edns {
    std::uint16_t size = 512; ///< maximum UDP response size of the client; at least 512
    bool dnssec_ok = false;
    bool compact_ok = false; ///< RFC 9824: the client accepts NXDOMAIN with a compact denial
    Bytes options;           ///< refers to the query's bytes
};

/// A parsed query. Its EDNS options refer to the bytes it was read from.
struct Query {
    std::uint16_t id = 0;
    std::uint8_t opcode = 0;
    bool recursion_desired = false, checking_disabled = false;
    Name name; ///< in the case of the query
    std::uint16_t type = 0, dns_class = 0;
    std::size_t question_end = 12; ///< end of the question section; 12: the query has no question
    std::optional<Edns> edns;
};

/// The result of read_query: what a server must do with the packet.
struct ParsedQuery {
    enum class Action { answer, reject, drop };
    Action action = Action::drop;
    Rcode rcode = Rcode::noerror; ///< for `reject`
    Query query;                  ///< as far as it could be parsed: at least the id, unless `drop`
};
/// Parses a query by the rules of an authoritative server (RFC 1035, 6891, 8906): one question without compression pointers, at
/// most one OPT record, no option beyond its end. Other sections are skipped and trailing bytes are ignored. A query without a
/// question is rejected, but its OPT record is parsed: RFC 7873 allows a query for a cookie alone. Allocates nothing, never reads
/// past the end.
ParsedQuery read_query(Bytes bytes);

/// Writes a response into a buffer of fixed size, with name compression (RFC 1035 section 4.1.4). A record that does not fit is not
/// written, and the function returns false. Sections must be written in their order. Allocates nothing.
class Writer {
public:
    enum class Section : std::uint8_t { answer, authority, additional };

    /// Reserves the header and copies the question section byte for byte. The message has at most `limit` bytes.
    Writer(std::span<std::uint8_t> out, std::size_t limit, const Query& query, Bytes query_bytes);

    // Space for the OPT record that `finish` writes is reserved.
    bool a(Section section, const Name& owner, std::uint32_t ttl, std::array<std::uint8_t, 4> address);
    bool aaaa(Section section, const Name& owner, std::uint32_t ttl, const std::array<std::uint8_t, 16>& address);
    bool name(Section section, const Name& owner, std::uint16_t type, std::uint32_t ttl, const Name& target); ///< NS, CNAME, PTR
    bool srv(Section section, const Name& owner, std::uint32_t ttl, std::uint16_t priority, std::uint16_t weight,
             std::uint16_t port, const Name& target);
    bool txt(Section section, const Name& owner, std::uint32_t ttl,
             std::string_view text); ///< split into strings of at most 255 bytes
    struct Soa {
        Name mname, rname;
        std::uint32_t serial = 0, refresh = 3600, retry = 600, expire = 86400, minimum = 0;
    };
    bool soa(Section section, const Name& owner, std::uint32_t ttl, const Soa& soa);
    /// A record with encoded RDATA.
    bool raw(Section section, const Name& owner, std::uint16_t type, std::uint16_t dns_class, std::uint32_t ttl, Bytes data);

    std::uint16_t count(Section section) const { return counts_[static_cast<std::size_t>(section)]; }
    std::size_t size() const { return at_; }
    std::size_t remaining() const { return limit_ > at_ ? limit_ - at_ : 0; } ///< bytes
    /// Encoded records whose owners are pointers to the query name (offset 12) or uncompressed.
    bool records(Section section, Bytes bytes, std::uint16_t count);
    /// Removes all records: for responses that must be complete or empty.
    void clear();
    /// Reserves space for this many bytes of EDNS options.
    void reserve_for_options(std::size_t bytes);

    struct Header {
        Rcode rcode = Rcode::noerror;
        bool authoritative = true;
        bool truncated = false;
        std::uint16_t edns_size = 1232; ///< maximum UDP query size of this server
        Bytes options{};                ///< of the OPT record; at most the reserved size
    };
    /// Writes the header, adds an OPT record if the query had one, and returns the size of the message.
    std::size_t finish(const Header& header);

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
    std::size_t limit_, at_ = 12, body_at_ = 12, reserved_ = 0;
    std::array<std::uint16_t, 3> counts_{};
    std::array<std::uint16_t, 96> name_offsets_; ///< offsets of names that compression pointers may refer to
    std::size_t name_count_ = 0, question_name_count_ = 0;
    const Query& query_;
};

/// Writes a response without records.
std::size_t write_error(std::span<std::uint8_t> out, const Query& query, Bytes query_bytes, Rcode rcode);

/// A record of a parsed message.
struct Record {
    Name owner;
    std::uint16_t type = 0, dns_class = 0;
    std::uint32_t ttl = 0;
    std::vector<std::uint8_t> data; ///< RDATA; names in it (NS, CNAME, PTR, SOA, MX, SRV) are uncompressed
    std::string to_text() const;    ///< "web.consul 0 A 192.0.2.1"
};
/// A parsed message, for tests, probes and transfers.
struct Message {
    std::uint16_t id = 0;
    bool response = false, authoritative = false, truncated = false, recursion_desired = false, recursion_available = false;
    std::uint8_t opcode = 0;
    Rcode rcode = Rcode::noerror; ///< including the extended bits of OPT
    Name name;
    std::uint16_t type = 0, dns_class = 0;
    bool has_question = false;
    std::vector<Record> answer, authority, additional; ///< without OPT
    std::optional<std::uint16_t> edns_size;
    bool dnssec_ok = false;
    std::vector<std::uint8_t> options; ///< of OPT
};
/// `invalid` if the message is incomplete or malformed.
Result<Message> read_message(Bytes bytes);
/// Encodes a query, for tests and probes.
std::vector<std::uint8_t> write_query(std::uint16_t id, const Name& name, std::uint16_t type,
                                      std::optional<std::uint16_t> edns_size = std::nullopt);

} // namespace orrery::dns
