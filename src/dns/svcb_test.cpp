#include "dns/message.h"
#include "dns/rdata.h"
#include "dns/zone_file.h"

#include <gtest/gtest.h>

namespace orrery::dns {

namespace {

Result<Zone> zone_with(const std::string& record) {
    return parse_zone("@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n" + record + "\n", *Name::from_text("example.test"));
}

/// The RDATA of the only record at "svc", in presentation format.
std::string round_trip(const std::string& data, const std::string& type = "HTTPS") {
    const auto zone = zone_with("svc 60 " + type + " " + data);
    if (!zone.ok()) return zone.error().message;
    for (const auto& record : zone->records)
        if (record.type == type::https || record.type == type::svcb) return svcb_text(record.data);
    return "no record";
}

} // namespace

TEST(ServiceBinding, TextRoundTrip) {
    EXPECT_EQ(round_trip("0 svc.example.net."), "0 svc.example.net.");
    EXPECT_EQ(round_trip("1 ."), "1 .");
    EXPECT_EQ(round_trip("16 foo port=53", "SVCB"), "16 foo.example.test. port=53");
    EXPECT_EQ(round_trip("1 . port=8443 alpn=\"h2,h3\" ipv6hint=2001:db8::1,2001:db8::53:1 ipv4hint=192.0.2.1"),
              "1 . alpn=h2,h3 port=8443 ipv4hint=192.0.2.1 ipv6hint=2001:db8::1,2001:db8::53:1");
    EXPECT_EQ(round_trip("1 . mandatory=ipv4hint,alpn alpn=h2 no-default-alpn ipv4hint=192.0.2.1"),
              "1 . mandatory=alpn,ipv4hint alpn=h2 no-default-alpn ipv4hint=192.0.2.1");
    EXPECT_EQ(round_trip("1 . key667=hello"), "1 . key667=hello");
    EXPECT_EQ(round_trip("1 . key667=\"hello\\210qoo\""), "1 . key667=hello\\210qoo");
    EXPECT_EQ(round_trip("1 . ech=AEn+DQBF dohpath=\"/dns-query{?dns}\""), "1 . ech=AEn+DQBF dohpath=/dns-query{?dns}");
    // RFC 9460, figure 10: a comma and a backslash in a protocol's name.
    EXPECT_EQ(round_trip(R"(16 foo.example.org. alpn="f\\\\oo\\,bar,h2")", "SVCB"), R"(16 foo.example.org. alpn=f\\\\oo\\,bar,h2)");
    EXPECT_EQ(round_trip(R"(16 foo.example.org. alpn=f\\\092oo\092,bar,h2)", "SVCB"),
              R"(16 foo.example.org. alpn=f\\\\oo\\,bar,h2)");
    // The output parses again.
    EXPECT_EQ(round_trip(R"(16 foo.example.org. alpn=f\\\\oo\\,bar,h2)", "SVCB"), R"(16 foo.example.org. alpn=f\\\\oo\\,bar,h2)");
}

TEST(ServiceBinding, EncodesTheTestVectorsOfTheRfc) {
    // RFC 9460, figure 9.
    const auto zone = zone_with("svc 60 SVCB 16 foo.example.org. alpn=h2,h3-19 mandatory=ipv4hint,alpn ipv4hint=192.0.2.1");
    ASSERT_TRUE(zone.ok()) << zone.error().message;
    const std::vector<std::uint8_t> wanted{0,   16,  3, 'f', 'o', 'o', 7,   'e', 'x', 'a', 'm', 'p', 'l', 'e', 3, 'o',
                                           'r', 'g', 0, 0,   0,   0,   4,   0,   1,   0,   4,   0,   1,   0,   9, 2,
                                           'h', '2', 5, 'h', '3', '-', '1', '9', 0,   4,   0,   4,   192, 0,   2, 1};
    bool found = false;
    for (const auto& record : zone->records)
        if (record.type == type::svcb) {
            EXPECT_EQ(record.data, wanted);
            found = true;
            EXPECT_EQ((Record{*Name::from_text("a.test"), type::svcb, 1, 60, record.data}.to_text()),
                      "a.test 60 SVCB 16 foo.example.org. mandatory=alpn,ipv4hint alpn=h2,h3-19 ipv4hint=192.0.2.1");
        }
    EXPECT_TRUE(found);
}

TEST(ServiceBinding, ErrorsNameTheProblem) {
    const auto wrong = [](const std::string& data) { return round_trip(data); };
    EXPECT_NE(wrong("1").find("needs a priority and a target"), std::string::npos);
    EXPECT_NE(wrong("x .").find("priority"), std::string::npos);
    EXPECT_NE(wrong("0 . port=1").find("has no parameters"), std::string::npos);
    EXPECT_NE(wrong("1 . port=70000").find("a port from 0 to 65535"), std::string::npos);
    EXPECT_NE(wrong("1 . alpn=h2 alpn=h3").find("duplicate key alpn"), std::string::npos);
    EXPECT_NE(wrong("1 . prot=1").find("is not a key"), std::string::npos);
    EXPECT_NE(wrong("1 . mandatory=alpn").find("mandatory names alpn"), std::string::npos);
    EXPECT_NE(wrong("1 . no-default-alpn").find("needs alpn"), std::string::npos);
    EXPECT_NE(wrong("1 . ipv4hint=2001:db8::1").find("of its family"), std::string::npos);
    EXPECT_NE(wrong("1 . alpn=").find("protocols"), std::string::npos);
    EXPECT_NE(wrong("1 . key65535=x").find("is not a key"), std::string::npos);
    // Invalid RDATA in the generic hex form is rejected too.
    EXPECT_NE(wrong("\\# 5 0001000003").find("not valid data of type HTTPS"), std::string::npos);
    EXPECT_EQ(wrong("\\# 9 000100000300020035"), "1 . port=53");
}

} // namespace orrery::dns
