#include "dns/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::dns {

namespace {

using ::testing::ElementsAre;
using Section = Writer::Section;

Name named(std::string_view text) { return *Name::from_text(text); }

std::vector<std::uint8_t> bytes_of(std::initializer_list<int> values) {
    std::vector<std::uint8_t> out;
    for (const int value : values) out.push_back(static_cast<std::uint8_t>(value));
    return out;
}

std::string words(const ParsedQuery& parsed) {
    if (parsed.action == ParsedQuery::Action::drop) return "drop";
    if (parsed.action == ParsedQuery::Action::reject) return "refuse " + std::to_string(static_cast<int>(parsed.rcode));
    return "answer " + parsed.query.name.to_text();
}

std::vector<std::string> parts(const std::vector<Record>& records) {
    std::vector<std::string> out;
    for (const auto& record : records) out.push_back(record.to_text());
    return out;
}

} // namespace

TEST(ReadQuery, AcceptsRejectsOrDrops) {
    const auto good = write_query(7, named("Web.consul"), type::a, 1232);
    const auto parsed = read_query(good);
    EXPECT_EQ(words(parsed), "answer Web.consul");
    ASSERT_TRUE(parsed.query.edns.has_value());
    EXPECT_EQ(parsed.query.edns->size, 1232);
    EXPECT_TRUE(parsed.query.recursion_desired);

    const auto changed = [&](std::size_t at, std::uint8_t value) {
        auto copy = good;
        copy[at] = value;
        return words(read_query(copy));
    };
    EXPECT_EQ(changed(2, 0x80), "drop");                 // an answer
    EXPECT_EQ(changed(2, 0x28), "refuse 4");             // UPDATE
    EXPECT_EQ(changed(2, 0x10), "refuse 4");             // STATUS
    EXPECT_EQ(changed(5, 0), "refuse 1");                // no question
    EXPECT_EQ(changed(5, 2), "refuse 1");                // two
    EXPECT_EQ(changed(12, 0xC0), "refuse 1");            // a pointer in the question
    EXPECT_EQ(changed(12, 0x43), "refuse 1");            // an unknown type of label
    EXPECT_EQ(changed(12, 0x3F), "refuse 1");            // a label over the end
    EXPECT_EQ(changed(11, 2), "refuse 1");               // a record that is not there
    EXPECT_EQ(changed(good.size() - 5, 1), "refuse 16"); // EDNS version 1
    EXPECT_EQ(changed(good.size() - 1, 4), "refuse 1");  // options over the end

    auto junk = good;
    junk.insert(junk.end(), 40, 0xFF);
    EXPECT_EQ(words(read_query(junk)), "answer Web.consul");
    auto twice = good;
    twice[11] = 2;
    twice.insert(twice.end(), good.end() - 11, good.end());
    EXPECT_EQ(words(read_query(twice)), "refuse 1");
    auto option = good;
    option[option.size() - 1] = 5;
    for (const int byte : {0, 8, 0, 1, 0}) option.push_back(static_cast<std::uint8_t>(byte));
    EXPECT_EQ(words(read_query(option)), "answer Web.consul");
    option[option.size() - 2] = 9; // longer than the options
    EXPECT_EQ(words(read_query(option)), "refuse 1");
    auto small = write_query(7, named("a"), type::a, 100);
    EXPECT_EQ(read_query(small).query.edns->size, 512);
    EXPECT_EQ(words(read_query(bytes_of({0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0}))), "drop");
}

TEST(ReadQuery, NeverReadsPastTheEnd) {
    auto whole = write_query(7, named("some.longer.name.of.a.service.consul"), type::srv, 4096);
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const std::vector<std::uint8_t> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
        EXPECT_NE(words(read_query(cut)), "answer some.longer.name.of.a.service.consul") << size;
        EXPECT_FALSE(read_message(cut).ok());
    }
}

TEST(Writer, CompressesNamesAndCopiesTheQuestion) {
    const auto query = write_query(0x1234, named("WEB.service.consul"), type::srv, 1232);
    const auto parsed = read_query(query);
    std::vector<std::uint8_t> out(1232);
    Writer writer(out, 1232, parsed.query, query);
    const auto target = [](std::string_view node) { return named(std::string(node) + ".node.dc1.consul"); };
    for (const auto* node : {"n1", "n2"}) EXPECT_TRUE(writer.srv(Section::answer, parsed.query.name, 0, 1, 1, 80, target(node)));
    EXPECT_TRUE(writer.soa(Section::authority, named("consul"), 0,
                           {.mname = named("ns.consul"), .rname = named("hostmaster.consul"), .serial = 5}));
    for (const auto* node : {"n1", "n2"}) {
        EXPECT_TRUE(writer.a(Section::additional, target(node), 0, {192, 0, 2, 1}));
        EXPECT_TRUE(writer.txt(Section::additional, target(node), 0, "k=v"));
    }
    out.resize(writer.finish({.rcode = Rcode::nxdomain}));
    EXPECT_LT(out.size(), 260U);
    EXPECT_TRUE(
        std::equal(query.begin() + 12, query.begin() + static_cast<std::ptrdiff_t>(parsed.query.question_end), out.begin() + 12));
    const auto message = read_message(out);
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(message->id, 0x1234);
    EXPECT_TRUE(message->authoritative && message->response && message->recursion_desired && !message->recursion_available);
    EXPECT_EQ(message->rcode, Rcode::nxdomain);
    EXPECT_EQ(message->edns_size, 1232);
    EXPECT_THAT(parts(message->answer), ElementsAre("WEB.service.consul 0 SRV 1 1 80 n1.node.dc1.consul",
                                                    "WEB.service.consul 0 SRV 1 1 80 n2.node.dc1.consul"));
    EXPECT_THAT(parts(message->authority), ElementsAre("consul 0 SOA ns.consul"));
    EXPECT_THAT(parts(message->additional), ElementsAre("n1.node.dc1.consul 0 A 192.0.2.1", "n1.node.dc1.consul 0 TXT \"k=v\"",
                                                        "n2.node.dc1.consul 0 A 192.0.2.1", "n2.node.dc1.consul 0 TXT \"k=v\""));
}

TEST(Writer, RespectsTheLimitAndWritesCompleteRecordsOnly) {
    const auto query = write_query(1, named("many.service.consul"), type::a, 512);
    const auto parsed = read_query(query);
    for (std::size_t limit = 60; limit <= 512; ++limit) {
        std::vector<std::uint8_t> out(512);
        Writer writer(out, limit, parsed.query, query);
        std::uint8_t written = 0;
        while (writer.a(Section::answer, parsed.query.name, 0, {10, 0, 0, written})) ++written;
        out.resize(writer.finish({.truncated = true}));
        EXPECT_LE(out.size(), limit);
        const auto message = read_message(out);
        ASSERT_TRUE(message.ok()) << limit;
        EXPECT_EQ(message->answer.size(), written);
        EXPECT_EQ(message->edns_size, 1232);
        EXPECT_TRUE(message->truncated);
    }
}

TEST(Writer, WritesAnErrorResponse) {
    auto query = write_query(9, named("a.consul"), type::a, 512);
    query[query.size() - 5] = 1; // EDNS version 1
    const auto parsed = read_query(query);
    std::vector<std::uint8_t> out(512);
    out.resize(write_error(out, parsed.query, query, parsed.rcode));
    const auto message = read_message(out);
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(message->rcode, Rcode::badvers);
    EXPECT_FALSE(message->authoritative);
}

} // namespace orrery::dns
