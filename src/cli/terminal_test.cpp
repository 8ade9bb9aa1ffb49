#include "cli/api.h"
#include "cli/table.h"
#include "cli/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::cli {
namespace {

using namespace std::chrono_literals;

TEST(DisplayWidth, CountsWhatATerminalShows) {
    EXPECT_EQ(display_width("abc"), 3);
    EXPECT_EQ(display_width("naïve"), 5);
    EXPECT_EQ(display_width("e\u0301"), 1); // combining
    EXPECT_EQ(display_width("日本"), 4);
    EXPECT_EQ(display_width("→…"), 2);
    EXPECT_EQ(display_width("\xff\xfe"), 2); // not UTF-8: one replacement each
    EXPECT_EQ(display_width(""), 0);
}

TEST(DisplayWidth, CutsOnlyBetweenCharacters) {
    EXPECT_EQ(fit("abcdef", 6), "abcdef");
    EXPECT_EQ(fit("abcdef", 4), "abc…");
    EXPECT_EQ(fit("日本語", 4), "日…"); // a wide one that would not fit whole is left out
    EXPECT_EQ(fit("abc", 1), "…");
    EXPECT_EQ(fit("abc", 0), "");
}

TEST(Printable, EscapesControlCharacters) {
    EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
    EXPECT_EQ(printable("two\nlines\t"), "two\\nlines\\t");
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\x9b31m"); // the one-character form of the same power
    EXPECT_EQ(printable("x\u202Ey"), "x�y");
    EXPECT_EQ(printable("Zürich → 日本"), "Zürich → 日本");
    EXPECT_EQ(printable("\xe2\x82"), "��");
}

TEST(Ages, AreShort) {
    EXPECT_EQ(short_age(5s), "5s");
    EXPECT_EQ(short_age(90s), "90s");
    EXPECT_EQ(short_age(10min), "10m");
    EXPECT_EQ(short_age(26h), "26h");
    EXPECT_EQ(short_age(24h * 400), "400d");
    EXPECT_EQ(short_age(24h * 800), "2y");
    EXPECT_EQ(short_age(-5s), "0s"); // a clock that stepped back
    const auto now = *from_rfc3339("2026-11-16T12:00:00Z");
    EXPECT_EQ(relative_time(now + 11h, now), "in 11h");
    EXPECT_EQ(relative_time(now - 3h, now), "3h ago");
    EXPECT_EQ(relative_time(now, now), "now");
}

TEST(Table, AlignsAndFollowsTheWidth) {
    Table table({"NAME", "ADDRESS", "LABELS"});
    table.add({{"n1"}, {"192.0.2.1"}, {"role=compute,zone=a,rack=r12"}});
    table.add({{"köln-2"}, {"192.0.2.200"}, {"-"}});
    EXPECT_EQ(table.render(0, false), "NAME    ADDRESS      LABELS\n"
                                      "n1      192.0.2.1    role=compute,zone=a,rack=r12\n"
                                      "köln-2  192.0.2.200  -\n");
    EXPECT_EQ(table.render(33, false), "NAME    ADDRESS      LABELS\n"
                                       "n1      192.0.2.1    role=comput…\n"
                                       "köln-2  192.0.2.200  -\n");
    EXPECT_EQ(table.render(33, false, 1), "NAME  ADDRESS    LABELS\n"
                                          "n1    192.0.2.1  role=compute,zo…\n");
    for (int width = 1; width < 60; ++width) EXPECT_FALSE(table.render(width, true).empty());
}

TEST(Table, CutsAddressesLast) {
    Table table({"NAME", "ADDRESS", "MAINTENANCE", "LABELS", "AGE", "SSH", "PORT", "KEY"});
    table.add({{"store-3"},
               {"192.0.2.23"},
               {"true"},
               {"rack=b1,role=storage,site=munich"},
               {"0s"},
               {"deploy"},
               {"2222"},
               {"ssh-deploy"}});
    EXPECT_EQ(table.render(60, false), "NAME     ADDRESS     MAINTENAN…  LAB…  AGE  SSH   PORT  KEY\n"
                                       "store-3  192.0.2.23  true        rac…  0s   dep…  2222  ssh…\n");
}

TEST(Table, ColoursDoNotChangeTheColumns) {
    Table table({"A", "B"});
    table.add({{"x", Style::green}, {"y"}});
    EXPECT_EQ(table.render(0, true), "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\n\x1b[32mx\x1b[0m  y\n");
}

std::string joined(const std::vector<ServerEvent>& events) {
    std::string out;
    for (const auto& event : events) out += event.id + "/" + event.event + "/" + event.data + ";";
    return out;
}

TEST(EventParser, ParsesAStreamInPiecesOfAnySize) {
    const std::string text = "retry: 1000\nid: 1-s\nevent: started\ndata: {}\n\n: heartbeat\nid: 5-s\n\nevent: created\r\nid: "
                             "6-s\r\ndata: a\r\ndata: b\r\n\r\ndata:c\n\n";
    const std::string expected = "1-s/started/{};6-s/created/a\nb;6-s//c;";
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        EventParser parser;
        auto first = parser.feed(std::string_view(text).substr(0, cut));
        auto second = parser.feed(std::string_view(text).substr(cut));
        ASSERT_TRUE(first.ok() && second.ok());
        EXPECT_EQ(joined(*first) + joined(*second), expected) << cut;
    }
    EventParser parser;
    ASSERT_TRUE(parser.feed("id: 5-s\n: heartbeat\n\n").ok());
    EXPECT_EQ(parser.last_id(), "5-s"); // the place moves on with a heart-beat too
}

TEST(EventParser, RejectsAnEventWithoutEnd) {
    EventParser parser;
    const std::string piece(1U << 20U, 'x');
    Result<std::vector<ServerEvent>> last = std::vector<ServerEvent>{};
    for (int i = 0; i < 40 && last.ok(); ++i) last = parser.feed(piece);
    ASSERT_FALSE(last.ok());
    EXPECT_EQ(last.error().code, Code::too_large);
}

} // namespace
} // namespace orrery::cli
