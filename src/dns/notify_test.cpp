#include "dns/authority_fixture.h"
#include "dns/notify.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

namespace orrery::dns {

namespace {

using Udp = asio::ip::udp;
using namespace std::chrono_literals;

std::vector<std::uint8_t> reply_to(std::vector<std::uint8_t> message, Rcode rcode = Rcode::noerror) {
    message[2] |= 0x80;
    message[3] = static_cast<std::uint8_t>(rcode);
    return message;
}

/// A schedule with a manual clock.
struct Telling {
    NotifySchedule schedule;
    SteadyTime now{};
    std::uint16_t ids = 100;
    std::vector<NotifySchedule::Request> sent, checked;
    std::string due() { // "a b", and "-c" for an abandoned one
        const auto what = schedule.due(now, 64, [this] { return ++ids; });
        sent = what.notify;
        checked = what.check;
        std::string out;
        for (const auto& one : what.notify) out += one.zone.to_text() + " ";
        for (const auto& one : what.given_up) out += "-" + one.to_text() + " ";
        if (!out.empty()) out.pop_back();
        return out;
    }
};

} // namespace

TEST(NotifySchedule, DetectsASecondaryWithALaterSerial) {
    Telling telling;
    const auto zone = name("a.test");
    const auto answer = [&](std::uint32_t serial, bool authoritative = true) {
        auto query = NotifySchedule::serial_query(telling.checked.at(0));
        const auto parsed = read_query(query);
        Octets out(512);
        Writer writer(out, out.size(), parsed.query, query);
        Writer::Soa soa;
        soa.serial = serial;
        EXPECT_TRUE(writer.soa(Writer::Section::answer, zone, 60, soa));
        out.resize(writer.finish({.authoritative = authoritative}));
        return out;
    };
    const auto check = [&](std::uint32_t serial, bool authoritative = true) {
        telling.now += NotifySchedule::check_every;
        EXPECT_EQ(telling.due(), "");
        EXPECT_EQ(telling.checked.size(), 1U);
        return telling.schedule.handle_serial_response(answer(serial, authoritative));
    };
    telling.schedule.update_zones({{zone, 11}}, telling.now);
    EXPECT_EQ(telling.due(), "a.test");
    ASSERT_TRUE(telling.schedule.handle_response(reply_to(NotifySchedule::message(telling.sent[0]))));
    EXPECT_EQ(telling.due(), "");
    EXPECT_TRUE(telling.checked.empty()) << "it gets some time for the transfer";
    EXPECT_TRUE(check(11));
    EXPECT_TRUE(telling.schedule.zones_ahead(11).empty());
    EXPECT_TRUE(check(127));
    ASSERT_EQ(telling.schedule.zones_ahead(12).size(), 1U);
    EXPECT_EQ(telling.schedule.zones_ahead(12)[0].secondary_serial, 127U);
    EXPECT_EQ(telling.schedule.zones_ahead(12)[0].our_serial, 12U);
    EXPECT_TRUE(telling.schedule.zones_ahead(128).empty()) << "another server of ours gave it that: the next change here is later";
    EXPECT_TRUE(check(0x90000000U));
    EXPECT_TRUE(telling.schedule.zones_ahead(12).empty()) << "before ours, as serials wrap (RFC 1982)";
    EXPECT_TRUE(check(127, false));
    EXPECT_TRUE(telling.schedule.zones_ahead(12).empty()) << "no authority for the zone";
    EXPECT_FALSE(telling.schedule.handle_serial_response(Octets{}));
    // With an offset the zone is ahead again.
    EXPECT_TRUE(check(127));
    telling.schedule.update_zones({{zone, 211, 200}}, telling.now);
    EXPECT_TRUE(telling.schedule.zones_ahead(12).empty());
}

TEST(NotifySchedule, RetriesEveryChangeUntilThereIsAResponse) {
    Telling telling;
    const auto a = name("a.test"), b = name("b.test");
    telling.schedule.update_zones({{a, 1}, {b, 1}}, telling.now);
    EXPECT_EQ(telling.due(), "a.test b.test");
    const auto first = telling.sent;
    EXPECT_EQ(telling.schedule.pending(), 2U);
    const auto message = NotifySchedule::message(first[0]);
    EXPECT_EQ(message, (Octets{0, 101, 0x24, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 4, 't', 'e', 's', 't', 0, 0, 6, 0, 1}));
    ASSERT_TRUE(telling.schedule.handle_response(reply_to(message)));
    EXPECT_FALSE(telling.schedule.handle_response(reply_to(message))); // once is enough
    // Packets that are no responses to a pending notification.
    EXPECT_FALSE(telling.schedule.handle_response(NotifySchedule::message(first[1])));
    EXPECT_FALSE(telling.schedule.handle_response(reply_to(NotifySchedule::message({b, 7}))));
    EXPECT_FALSE(telling.schedule.handle_response(reply_to(NotifySchedule::message({name("c.test"), first[1].id}))));
    EXPECT_FALSE(telling.schedule.handle_response(reply_to(write_query(first[1].id, b, type::soa))));
    EXPECT_FALSE(telling.schedule.handle_response(Octets{}));
    EXPECT_EQ(telling.due(), "");
    // Retries after 1, 2, 4, 8, 16 and 32 s, then gives up.
    for (const auto after : {1s, 2s, 4s, 8s, 16s}) {
        telling.now += after;
        EXPECT_EQ(telling.due(), "b.test") << after.count();
        EXPECT_EQ(telling.due(), "");
    }
    telling.now += 32s;
    EXPECT_EQ(telling.due(), "-b.test");
    telling.now += 1h;
    EXPECT_EQ(telling.due(), "");
    EXPECT_EQ(telling.schedule.pending(), 0U);
    // The next change is sent again.
    telling.schedule.update_zones({{a, 1}, {b, 2}}, telling.now);
    EXPECT_EQ(telling.due(), "b.test");
    // A refusal ends the retries, even if the response omits the question.
    auto refused = reply_to(NotifySchedule::message(telling.sent[0]), Rcode::refused);
    refused.resize(12);
    refused[5] = 0;
    const auto answer = telling.schedule.handle_response(refused);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->rcode, Rcode::refused);
    EXPECT_EQ(answer->zone, b);
    telling.now += 1h;
    EXPECT_EQ(telling.due(), "");
}

TEST(NotifySchedule, CoalescesFrequentChanges) {
    Telling telling;
    const auto a = name("a.test");
    for (std::uint32_t serial = 1; serial <= 100; ++serial) { // one each 100 ms
        telling.schedule.update_zones({{a, serial}}, telling.now);
        telling.now += 100ms;
        if (const auto notified = telling.due(); !notified.empty()) {
            EXPECT_EQ(notified, "a.test");
            EXPECT_TRUE(telling.schedule.handle_response(reply_to(NotifySchedule::message(telling.sent[0]))));
        }
    }
    EXPECT_LE(telling.ids, 103); // of 10 s
    telling.now += 5s;
    EXPECT_EQ(telling.due(), "a.test"); // the last of them is notified, too
    telling.schedule.update_zones({}, telling.now);
    telling.now += 1h;
    EXPECT_EQ(telling.due(), "");
}

TEST(NotifySchedule, LimitsTheMessagesPerCall) {
    NotifySchedule schedule;
    std::vector<Authority::ZoneSerial> zones;
    for (int i = 0; i < 100; ++i) zones.push_back({name("z" + std::to_string(i) + ".test"), 1});
    schedule.update_zones(zones, {});
    std::uint16_t id = 0;
    EXPECT_EQ(schedule.due({}, 64, [&] { return ++id; }).notify.size(), 64U);
    EXPECT_EQ(schedule.due({}, 64, [&] { return ++id; }).notify.size(), 36U);
}

TEST(Notifier, NotifiesASecondaryOverUdp) {
    asio::io_context loop;
    VirtualClock clock;
    const auto authority = std::make_shared<Authority>(Authority::Options{.clock = &clock});
    Udp::socket secondary(loop, Udp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
    secondary.non_blocking(true);
    Notifier notifier(loop.get_executor(), clock, authority,
                      {.secondaries = {secondary.local_endpoint()}, .from = asio::ip::make_address("127.0.0.2")});
    TaskGroup group(loop.get_executor());
    group.spawn(notifier.run(Context::background()));
    Udp::endpoint from;
    const auto notified = [&] {
        clock.advance(250ms);
        loop.restart();
        loop.poll();
        Octets packet(512);
        boost::system::error_code error;
        packet.resize(secondary.receive_from(asio::buffer(packet), from, 0, error));
        return packet;
    };
    loop.poll();
    EXPECT_TRUE(notified().empty()); // no zone, no news
    Authority::Update update{.revision = 7};
    update.zones.push_back(example_zone());
    ASSERT_TRUE(authority->apply(std::move(update)).ok());
    auto packet = notified();
    ASSERT_FALSE(packet.empty());
    EXPECT_EQ(from.address().to_string(), "127.0.0.2");
    auto message = read_message(packet);
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(message->opcode, 4);
    EXPECT_EQ(message->name, name("example.test"));
    secondary.send_to(asio::buffer(reply_to(packet)), from);
    EXPECT_TRUE(notified().empty());
    EXPECT_EQ(notifier.counts().confirmed, 1U);
    EXPECT_EQ(notifier.counts().pending, 0U);
    // A change of a dynamic name changes the serial, even with a revision that was used before.
    for (int i = 1; i <= 2; ++i) {
        Authority::Update names{.revision = 7};
        names.dynamic_names.emplace_back(name("app.example.test"), DynamicName{.answer_sets = {addresses({i})}});
        ASSERT_TRUE(authority->apply(std::move(names)).ok());
        clock.advance(5s);
        packet = notified();
        ASSERT_FALSE(packet.empty()) << i;
        secondary.send_to(asio::buffer(reply_to(packet, i == 1 ? Rcode::noerror : Rcode::refused)), from);
        EXPECT_TRUE(notified().empty());
    }
    EXPECT_EQ(notifier.counts().sent, 3U);
    EXPECT_EQ(notifier.counts().confirmed, 2U);
    EXPECT_EQ(notifier.counts().refused, 1U);
    asio::co_spawn(loop, group.stop(), asio::detached);
    loop.restart();
    loop.run();
}

TEST(Notifier, ParsesAddressesOfSecondaries) {
    const auto text = [](std::string_view of) {
        const auto done = Notifier::parse(of);
        return done.ok() ? done->address().to_string() + " " + std::to_string(done->port()) : done.error().message;
    };
    EXPECT_EQ(text("192.0.2.53"), "192.0.2.53 53");
    EXPECT_EQ(text("192.0.2.53:5353"), "192.0.2.53 5353");
    EXPECT_EQ(text("2001:db8::53"), "2001:db8::53 53");
    EXPECT_EQ(text("[2001:db8::53]"), "2001:db8::53 53");
    EXPECT_EQ(text("[2001:db8::53]:5353"), "2001:db8::53 5353");
    for (const auto* wrong :
         {"", "ns1.example.test", "192.0.2.53:", "192.0.2.53:0", "192.0.2.53:70000", "[2001:db8::53", "[::1]x", "0.0.0.0"})
        EXPECT_EQ(text(wrong), "\"" + std::string(wrong) + "\" is not an address of a secondary");
}

} // namespace orrery::dns
