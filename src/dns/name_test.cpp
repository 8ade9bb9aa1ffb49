#include "dns/name_key.h"

#include <gtest/gtest.h>

#include <vector>

namespace orrery::dns {

TEST(Name, TextRoundTrip) {
    for (const auto* text : {".", "consul", "web.service.consul", "a\\.b.c", "x\\032y.z", "\\000.a"}) {
        const auto name = Name::from_text(text);
        ASSERT_TRUE(name.ok()) << text;
        EXPECT_EQ(name->to_text(), text);
    }
    EXPECT_EQ(Name::from_text("a.b.")->to_text(), "a.b");
    EXPECT_EQ(*Name::from_text("WeB.Consul"), *Name::from_text("web.cONSUL"));
    EXPECT_EQ(Name::from_text("WeB.Consul")->lowered(), "web.consul");
}

TEST(NameKey, LowersLettersAndKeepsAllOtherBytes) {
    for (std::size_t length = 1; length <= 24; ++length)
        for (std::size_t place = 0; place < length; ++place)
            for (int byte = 0; byte < 256; ++byte) {
                std::vector<std::uint8_t> wire(length + 2, 'm');
                wire.front() = static_cast<std::uint8_t>(length);
                wire[1 + place] = static_cast<std::uint8_t>(byte);
                wire.back() = 0;
                const NameKey key{Bytes(wire)};
                ASSERT_EQ(key.suffix()[1 + place], lower(wire[1 + place])) << length << ' ' << place << ' ' << byte;
                auto lowered = wire;
                lowered[1 + place] = lower(wire[1 + place]);
                ASSERT_EQ(key.hash(), NameKey{Bytes(lowered)}.hash());
                lowered[1 + place] ^= 1;
                ASSERT_NE(key.hash(), NameKey{Bytes(lowered)}.hash());
            }
}

TEST(Name, RejectsTooLongNamesAndEmptyLabels) {
    for (const std::string& text :
         {std::string("a..b"), std::string(".a"), std::string(64, 'a'), std::string("\\300.a"), std::string("a\\")})
        EXPECT_FALSE(Name::from_text(text).ok()) << text;
    std::string longest;
    for (int i = 0; i < 3; ++i) longest += std::string(63, 'a') + ".";
    longest += std::string(61, 'b');
    ASSERT_TRUE(Name::from_text(longest).ok());
    EXPECT_EQ(Name::from_text(longest)->size(), 255U);
    EXPECT_FALSE(Name::from_text(longest + "b").ok());
    EXPECT_FALSE(Name::from_text(longest + ".c").ok());
}

TEST(Name, LabelsAndParents) {
    const auto name = *Name::from_text("a.b.c");
    EXPECT_EQ(name.label_count(), 3U);
    EXPECT_EQ(name.labels().at(1), "b");
    EXPECT_EQ(name.parent(2).to_text(), "c");
    EXPECT_TRUE(name.parent(7).is_root());
    EXPECT_TRUE(name.is_within(*Name::from_text("B.C")));
    EXPECT_TRUE(name.is_within(Name()));
    EXPECT_FALSE(name.is_within(*Name::from_text("x.c")));
    EXPECT_FALSE(Name::from_text("bb.c")->is_within(*Name::from_text("b.c")));
    auto made = *Name::from_text("web");
    EXPECT_TRUE(made.append(*Name::from_text("service.consul")));
    EXPECT_TRUE(made.prepend("v1"));
    EXPECT_EQ(made.to_text(), "v1.web.service.consul");
    EXPECT_FALSE(made.prepend(""));
    EXPECT_FALSE(made.prepend(std::string(64, 'x')));
}

TEST(Name, AcceptsOnlyBackwardPointers) {
    //                                        0     1    2    3  4     5    6    7     8
    const std::vector<std::uint8_t> message{1, 'a', 0, 1, 'b', 0xC0, 0, 0xC0, 7, 0xC0, 9};
    std::size_t at = 3;
    Name name;
    ASSERT_TRUE(name.read(message, at, Name::Pointers::yes));
    EXPECT_EQ(name.to_text(), "b.a");
    EXPECT_EQ(at, 7U);
    at = 3;
    EXPECT_FALSE(name.read(message, at, Name::Pointers::no));
    at = 7; // to itself
    EXPECT_FALSE(name.read(message, at, Name::Pointers::yes));
    at = 10; // cut short
    EXPECT_FALSE(name.read(message, at, Name::Pointers::yes));
    const std::vector<std::uint8_t> bad{0x41, 'a', 0};
    at = 0;
    EXPECT_FALSE(name.read(bad, at, Name::Pointers::yes));
}

} // namespace orrery::dns
