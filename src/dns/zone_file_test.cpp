#include "dns/message.h"
#include "dns/zone_file.h"

#include <gtest/gtest.h>

namespace orrery::dns {

namespace {

const std::string zone_head = "$TTL 1h\n@ SOA ns h 1 1d 2h 4w 1h30m\n NS ns\nns A 192.0.2.1\n";

Result<Zone> zone(std::string_view text) { return parse_zone(text, *Name::from_text("example.test")); }
std::string why(std::string_view text) {
    const auto parsed = zone(text);
    return parsed.ok() ? "fine" : parsed.error().message;
}
std::string last(std::string_view text) {
    const auto parsed = zone(zone_head + std::string(text));
    if (!parsed.ok()) return parsed.error().message;
    const auto& record = parsed->records.back();
    return Record{record.owner, record.type, 1, record.ttl, record.data}.to_text();
}
std::string hex(std::string_view text) {
    const auto parsed = zone(zone_head + std::string(text));
    if (!parsed.ok()) return parsed.error().message;
    std::string out;
    for (const auto byte : parsed->records.back().data) {
        out += "0123456789abcdef"[byte >> 4];
        out += "0123456789abcdef"[byte & 15];
    }
    return out;
}

} // namespace

TEST(ZoneFile, ParsesTheSyntaxOfRfc1035) {
    const auto parsed = zone(zone_head);
    ASSERT_TRUE(parsed.ok()) << parsed.error().text();
    ASSERT_EQ(parsed->records.size(), 3U);
    EXPECT_EQ(parsed->records[0].ttl, 3600U);
    EXPECT_EQ((std::vector<std::uint8_t>(parsed->records[0].data.end() - 16, parsed->records[0].data.end())),
              (std::vector<std::uint8_t>{0, 1, 0x51, 0x80, 0, 0, 0x1c, 0x20, 0, 0x24, 0xea, 0, 0, 0, 0x15, 0x18}));
    EXPECT_EQ(last("www 60 IN A 192.0.2.7 ; a comment"), "www.example.test 60 A 192.0.2.7");
    EXPECT_EQ(last("www IN 60 A 192.0.2.7"), "www.example.test 60 A 192.0.2.7");
    EXPECT_EQ(last("www.example.test. A 192.0.2.7"), "www.example.test 3600 A 192.0.2.7");
    EXPECT_EQ(last("w A 192.0.2.7\n  A 192.0.2.8"), "w.example.test 3600 A 192.0.2.8");
    EXPECT_EQ(last("$ORIGIN sub\nw CNAME @"), "w.sub.example.test 3600 CNAME sub.example.test");
    EXPECT_EQ(last("m MX (\n 10 ; first\n mail )"), "m.example.test 3600 TYPE15 21 bytes");
    EXPECT_EQ(last("t TXT \"a;b\" c\\\"d \"\\065\""), "t.example.test 3600 TXT \"a;b\" \"c\"d\" \"A\"");
    EXPECT_EQ(last("_http._tcp SRV 0 5 80 www"), "_http._tcp.example.test 3600 SRV 0 5 80 www.example.test");
    EXPECT_EQ(last("*.w AAAA 2001:db8::1"), "*.w.example.test 3600 AAAA 2001:db8:0:0:0:0:0:1");
    EXPECT_EQ(last("\\$x A 192.0.2.7"), "$x.example.test 3600 A 192.0.2.7");
    EXPECT_EQ(last("a\\.b A 192.0.2.7"), "a\\.b.example.test 3600 A 192.0.2.7");
}

TEST(ZoneFile, ParsesKnownAndUnknownTypes) {
    EXPECT_EQ(hex("x TYPE731 \\# 4 0102 0304"), "01020304");
    EXPECT_EQ(hex("x A \\# 4 C0000207"), "c0000207");
    EXPECT_EQ(hex("x TYPE731 \\# 0"), "");
    EXPECT_EQ(hex("x CAA 0 issue \"ca.test\""), "000569737375656361"
                                                "2e74657374");
    EXPECT_EQ(hex("x DS 60485 5 1 ( 2BB183AF5F22588179A53B0A\n 98631FAD1A292118 )"),
              "ec4505012bb183af5f22588179a53b0a98631fad1a292118");
    EXPECT_EQ(hex("x TLSA 3 1 1 00ff"), "03010100ff");
    EXPECT_EQ(hex("x SSHFP 4 2 0a0b"), "04020a0b");
    EXPECT_EQ(hex("x NAPTR 1 2 \"u\" \"E2U+sip\" \"!^.*$!sip:a@b!\" ."), "0001000201750745"
                                                                         "32552b7369700e215e2e2a24217369703a614062"
                                                                         "2100");
    EXPECT_EQ(hex("x DNSKEY 257 3 13 AQID\n"), "0101030d010203");
    EXPECT_EQ(hex("x DNSKEY 257 3 13 AQ ID BA==\n"), "0101030d01020304");
    EXPECT_EQ(hex("x URI 1 2 \"http://a/\""), "00010002687474703a2f2f612f");
    EXPECT_EQ(hex("x HINFO a \"b c\""), "0161036220"
                                        "63");
    EXPECT_EQ(type_from_name("mx"), type::mx);
    EXPECT_EQ(type_from_name("TYPE15"), type::mx);
    EXPECT_EQ(type_from_name("TYPE70000"), 0);
    EXPECT_EQ(type_name(731), "TYPE731");
}

TEST(ZoneFile, ErrorsNameLineAndColumn) {
    EXPECT_EQ(why(zone_head + "www A 192.0.2.256"), "line 5, column 7: \"192.0.2.256\" is not a valid IPv4 address");
    EXPECT_EQ(why(zone_head + "www A 192.0.2.1 192.0.2.2"),
              "line 5, column 17: \"192.0.2.2\" is after the last field of a record of type A");
    EXPECT_EQ(why(zone_head + "www FOO 1"), "line 5, column 5: \"FOO\" is not a record type");
    EXPECT_EQ(why(zone_head + "www 60 IN"), "line 5, column 8: the record ends before its type");
    EXPECT_EQ(why(zone_head + "www MX 10"), "line 5, column 8: a record of type MX needs more fields");
    EXPECT_EQ(why(zone_head + "www MX ten mail"), "line 5, column 8: \"ten\" is not a valid integer from 0 to 65535");
    EXPECT_EQ(why(zone_head + "www TXT \"a"), "line 5, column 9: unclosed string");
    EXPECT_EQ(why(zone_head + "www MX ( 10 mail"), "line 5, column 8: unclosed parenthesis");
    EXPECT_EQ(why(zone_head + "www MX 10 mail )"), "line 5, column 16: unmatched closing parenthesis");
    EXPECT_EQ(why(zone_head + "$INCLUDE other"), "line 5, column 1: $INCLUDE is not supported");
    EXPECT_EQ(why(zone_head + "$FOO other"), "line 5, column 1: \"$FOO\" is not a directive");
    EXPECT_EQ(why(zone_head + "www CH A 192.0.2.1"), "line 5, column 5: class CH is not supported");
    EXPECT_EQ(why(zone_head + "www RRSIG A"), "line 5, column 5: RRSIG records are made by the server");
    EXPECT_EQ(why(zone_head + "a..b A 192.0.2.1"), "line 5, column 1: \"a..b\" is not a domain name: empty label");
    EXPECT_EQ(why(zone_head + "x TYPE731 \\# 5 0102"), "line 5, column 16: the length is 5, but there are 2 bytes");
    EXPECT_EQ(why(zone_head + "x A \\# 3 010203"), "line 5, column 10: these bytes are not valid data of type A");
    EXPECT_EQ(why(zone_head + "x TXT " + std::string(300, 'a')),
              "line 5, column 7: a string has 300 bytes, at most 255 are allowed: split it in two");
    EXPECT_EQ(why("www A 192.0.2.1"), "line 1, column 5: the record has no TTL");
    EXPECT_EQ(why(" A 192.0.2.1"), "line 1, column 2: the first record has no owner");
    EXPECT_EQ(why("$TTL 60\nwww A 192.0.2.1"), "the zone example.test has no SOA");
    EXPECT_EQ(why("$TTL 60\n@ SOA a b 1 1 1 1 1"), "the zone example.test has no NS at its origin");
    EXPECT_EQ(why(zone_head + "@ SOA a b 1 1 1 1 1"), "line 5: there is a second SOA");
    EXPECT_EQ(why(zone_head + "w CNAME a\nw A 192.0.2.1"), "line 6: w.example.test has a CNAME and other records");
    EXPECT_EQ(why(zone_head + "w CNAME a\nw CNAME b"), "line 6: w.example.test has a second CNAME");
    EXPECT_EQ(why(zone_head + "@ CNAME a"), "line 5: the origin of a zone cannot have a CNAME");
    EXPECT_EQ(why(zone_head + "w 60 A 192.0.2.1\nw 61 A 192.0.2.2"),
              "line 6: w.example.test A has TTL 61, but an earlier record has TTL 60: all records of an RRset need the same TTL");
    EXPECT_EQ(why(zone_head + "www.other.test. A 192.0.2.1"), "line 5: www.other.test is not within example.test");
    EXPECT_EQ(zone(zone_head + "w A 192.0.2.1\nW A 192.0.2.1")->records.size(), 4U);
    // A truncated file is rejected or a valid zone; the parser never reads past the end.
    const auto text = zone_head + "t TXT \"a\\065\" ( b ) \\# c\n";
    for (std::size_t i = 0; i < text.size(); ++i) std::ignore = zone(std::string_view(text).substr(0, i));
}

} // namespace orrery::dns
