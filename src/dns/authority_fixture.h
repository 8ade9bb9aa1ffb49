#pragma once

#include "dns/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

/// Shared by the tests of Authority: a sample zone, an authority that serves it, and queries.
namespace orrery::dns {

inline constexpr std::string_view example = R"($TTL 300
@       IN SOA ns1 hostmaster 1 3600 600 86400 60
        NS ns1
        NS ns2.other.test.
        MX 10 mail
        TXT "v=spf1 -all"
ns1     A 192.0.2.53
        AAAA 2001:db8::53
mail    A 192.0.2.25
www     A 192.0.2.1
        A 192.0.2.2
alias   CNAME www
chain   CNAME alias
out     CNAME www.other.test.
dangling CNAME nothing
loop    CNAME loop2
loop2   CNAME loop
to-dynamic CNAME app
to-cut  CNAME host.sub
a.b.c   A 192.0.2.9
*.wild  A 192.0.2.77
        TXT "from afar"
deep.sure.wild A 192.0.2.78
*.walias CNAME www
sub     NS ns.sub
        NS ns1
ns.sub  A 192.0.2.99
odd     TYPE731 \# 3 0A0B0C
big     A 10.0.0.1
)";

inline Name name(std::string_view text) { return *Name::from_text(text); }

inline Zone example_zone(std::string_view more = {}) {
    std::string text(example);
    for (int i = 2; i <= 60; ++i) text += "big A 10.0.0." + std::to_string(i) + "\n";
    text += more;
    auto zone = parse_zone(text, name("example.test"));
    EXPECT_TRUE(zone.ok()) << zone.error().text();
    return std::move(*zone);
}

inline AnswerSet addresses(std::vector<int> last, SelectionPolicy policy = SelectionPolicy::all, std::uint32_t ttl = 30) {
    AnswerSet out;
    out.policy = policy;
    out.ttl = ttl;
    for (const int one : last)
        out.candidates.push_back({.v4 = std::array<std::uint8_t, 4>{198, 51, 100, static_cast<std::uint8_t>(one)},
                                  .identity = static_cast<std::uint64_t>(one)});
    return out;
}

inline Prefix prefix(std::array<std::uint8_t, 4> address, std::uint8_t length) {
    Prefix out{.length = length};
    std::copy(address.begin(), address.end(), out.address.begin());
    return out;
}

using Octets = std::vector<std::uint8_t>;

/// A query with optional deviations from a normal one.
struct TestQuery {
    std::string of;
    std::uint16_t type = type::a;
    std::optional<std::uint16_t> edns{};
    Octets options{};
    std::uint16_t dns_class = 1;
    std::uint32_t opt_ttl = 0;
    bool tcp = false;
    std::array<std::uint8_t, 4> from{203, 0, 113, 5};

    Octets bytes() const {
        auto out = write_query(0x1234, name(of), type, edns);
        const auto end = 12 + name(of).size() + 4;
        out[end - 2] = static_cast<std::uint8_t>(dns_class >> 8);
        out[end - 1] = static_cast<std::uint8_t>(dns_class);
        if (edns) {
            for (std::size_t i = 0; i < 4; ++i) out[end + 5 + i] = static_cast<std::uint8_t>(opt_ttl >> 8 * (3 - i));
            out[end + 9] = static_cast<std::uint8_t>(options.size() >> 8);
            out[end + 10] = static_cast<std::uint8_t>(options.size());
            out.insert(out.end(), options.begin(), options.end());
        }
        return out;
    }
    Client client() const {
        Client out{.transport = tcp ? Client::Transport::tcp : Client::Transport::udp};
        std::copy(from.begin(), from.end(), out.address.begin());
        return out;
    }
};

struct AuthorityFixture {
    explicit AuthorityFixture(Authority::Options options = {}, std::string_view more = {}) : authority(std::move(options)) {
        Authority::Update update{.revision = 7};
        update.zones.push_back(example_zone(more));
        const auto done = authority.apply(std::move(update));
        EXPECT_TRUE(done.ok()) << done.error().text();
    }
    Result<Unit> set(std::string_view of, DynamicName dynamic_name, std::uint64_t revision = 8) {
        Authority::Update update{.revision = revision};
        update.dynamic_names.emplace_back(name(of), std::move(dynamic_name));
        return authority.apply(std::move(update));
    }
    Octets raw(const Octets& query, const Client& client = {}) const {
        Octets out(client.transport == Client::Transport::tcp ? 65535 : 4096);
        out.resize(authority.respond(query, client, out));
        return out;
    }
    Message ask(const TestQuery& question) const {
        const auto out = raw(question.bytes(), question.client());
        auto message = read_message(out);
        EXPECT_TRUE(message.ok()) << question.of << ": " << out.size() << " bytes";
        if (!message.ok()) return {};
        EXPECT_TRUE(message->response);
        EXPECT_EQ(message->id, 0x1234);
        EXPECT_FALSE(message->recursion_available);
        EXPECT_EQ(message->edns_size.has_value(), question.edns.has_value());
        return std::move(*message);
    }
    Authority authority;
};

inline std::vector<std::string> texts(const std::vector<Record>& records) {
    std::vector<std::string> out;
    for (const auto& record : records) out.push_back(record.to_text());
    return out;
}

/// Rcode, flags and records of a response: "NOERROR aa | answer | authority | additional".
inline std::string summary(const Message& message) {
    std::string out = message.rcode == Rcode::noerror    ? "NOERROR"
                      : message.rcode == Rcode::nxdomain ? "NXDOMAIN"
                      : message.rcode == Rcode::refused  ? "REFUSED"
                      : message.rcode == Rcode::formerr  ? "FORMERR"
                      : message.rcode == Rcode::notimp   ? "NOTIMP"
                      : message.rcode == Rcode::servfail ? "SERVFAIL"
                      : message.rcode == Rcode::badvers  ? "BADVERS"
                                                         : "?";
    if (message.authoritative) out += " aa";
    if (message.truncated) out += " tc";
    for (const auto* section : {&message.answer, &message.authority, &message.additional}) {
        out += " |";
        for (const auto& record : *section) out += " " + record.to_text() + ",";
    }
    return out;
}

inline const std::string no_data = "NOERROR aa | | example.test 60 SOA ns1.example.test, |";
inline const std::string no_name = "NXDOMAIN aa | | example.test 60 SOA ns1.example.test, |";

inline Octets subnet(std::uint16_t family, std::uint8_t source, Octets address, std::uint8_t scope = 0) {
    Octets out{0, 8, 0, static_cast<std::uint8_t>(4 + address.size()), 0, static_cast<std::uint8_t>(family), source, scope};
    out.insert(out.end(), address.begin(), address.end());
    return out;
}

} // namespace orrery::dns
