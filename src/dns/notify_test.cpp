#include "dns/authority_testing.h"
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

/// A plan, and hands that turn.
struct Telling {
    NotifyPlan plan;
    SteadyTime now{};
    std::uint16_t ids = 100;
    std::vector<NotifyPlan::News> sent;
    std::string due() { // "a b", and "-c" for what was given up
        const auto what = plan.due(now, 64, [this] { return ++ids; });
        sent = what.send;
        std::string out;
        for (const auto& one : what.send) out += one.zone.to_text() + " ";
        for (const auto& one : what.given_up) out += "-" + one.to_text() + " ";
        if (!out.empty()) out.pop_back();
        return out;
    }
};

} // namespace

TEST(NotifyPlan, TellsOfEveryChangeUntilItIsAnswered) {
    Telling telling;
    const auto a = name("a.test"), b = name("b.test");
    telling.plan.see({{a, 1}, {b, 1}}, telling.now);
    EXPECT_EQ(telling.due(), "a.test b.test");
    const auto first = telling.sent;
    EXPECT_EQ(telling.plan.waiting(), 2U);
    const auto message = NotifyPlan::message(first[0]);
    EXPECT_EQ(message, (Octets{0, 101, 0x24, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 4, 't', 'e', 's', 't', 0, 0, 6, 0, 1}));
    ASSERT_TRUE(telling.plan.take(reply_to(message)));
    EXPECT_FALSE(telling.plan.take(reply_to(message))); // once is enough
    // What is no answer to what we said.
    EXPECT_FALSE(telling.plan.take(NotifyPlan::message(first[1])));
    EXPECT_FALSE(telling.plan.take(reply_to(NotifyPlan::message({b, 7}))));
    EXPECT_FALSE(telling.plan.take(reply_to(NotifyPlan::message({name("c.test"), first[1].id}))));
    EXPECT_FALSE(telling.plan.take(reply_to(write_query(first[1].id, b, type::soa))));
    EXPECT_FALSE(telling.plan.take(Octets{}));
    EXPECT_EQ(telling.due(), "");
    // After 1, 2, 4, 8, 16 and 32 s: again, and at last no more.
    for (const auto after : {1s, 2s, 4s, 8s, 16s}) {
        telling.now += after;
        EXPECT_EQ(telling.due(), "b.test") << after.count();
        EXPECT_EQ(telling.due(), "");
    }
    telling.now += 32s;
    EXPECT_EQ(telling.due(), "-b.test");
    telling.now += 1h;
    EXPECT_EQ(telling.due(), "");
    EXPECT_EQ(telling.plan.waiting(), 0U);
    // The next change is another matter.
    telling.plan.see({{a, 1}, {b, 2}}, telling.now);
    EXPECT_EQ(telling.due(), "b.test");
    // Who refuses is not asked again, even where it leaves out what was refused.
    auto refused = reply_to(NotifyPlan::message(telling.sent[0]), Rcode::refused);
    refused.resize(12);
    refused[5] = 0;
    const auto answer = telling.plan.take(refused);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->rcode, Rcode::refused);
    EXPECT_EQ(answer->zone, b);
    telling.now += 1h;
    EXPECT_EQ(telling.due(), "");
}

TEST(NotifyPlan, ManyChangesAreToldAsOne) {
    Telling telling;
    const auto a = name("a.test");
    for (std::uint32_t serial = 1; serial <= 100; ++serial) { // one each 100 ms
        telling.plan.see({{a, serial}}, telling.now);
        telling.now += 100ms;
        if (const auto told = telling.due(); !told.empty()) {
            EXPECT_EQ(told, "a.test");
            EXPECT_TRUE(telling.plan.take(reply_to(NotifyPlan::message(telling.sent[0]))));
        }
    }
    EXPECT_LE(telling.ids, 103); // of 10 s
    telling.now += 5s;
    EXPECT_EQ(telling.due(), "a.test"); // the last of them is told, too
    telling.plan.see({}, telling.now);
    telling.now += 1h;
    EXPECT_EQ(telling.due(), "");
}

TEST(NotifyPlan, NoMoreAtOnceThanIsGood) {
    NotifyPlan plan;
    std::vector<Authority::ZoneSerial> zones;
    for (int i = 0; i < 100; ++i) zones.push_back({name("z" + std::to_string(i) + ".test"), 1});
    plan.see(zones, {});
    std::uint16_t id = 0;
    EXPECT_EQ(plan.due({}, 64, [&] { return ++id; }).send.size(), 64U);
    EXPECT_EQ(plan.due({}, 64, [&] { return ++id; }).send.size(), 36U);
}

TEST(Notify, TellsASecondaryOverUdp) {
    asio::io_context loop;
    VirtualClock clock;
    const auto authority = std::make_shared<Authority>(Authority::Options{.clock = &clock});
    Udp::socket secondary(loop, Udp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
    secondary.non_blocking(true);
    Notify notify(loop.get_executor(), clock, authority,
                  {.secondaries = {secondary.local_endpoint()}, .from = asio::ip::make_address("127.0.0.2")});
    TaskGroup group(loop.get_executor());
    group.spawn(notify.run(Context::background()));
    Udp::endpoint from;
    const auto told = [&] {
        clock.advance(250ms);
        loop.restart();
        loop.poll();
        Octets packet(512);
        boost::system::error_code error;
        packet.resize(secondary.receive_from(asio::buffer(packet), from, 0, error));
        return packet;
    };
    loop.poll();
    EXPECT_TRUE(told().empty()); // no zone, no news
    Authority::Update update{.revision = 7};
    update.zones.push_back(example_zone());
    ASSERT_TRUE(authority->apply(std::move(update)).ok());
    auto packet = told();
    ASSERT_FALSE(packet.empty());
    EXPECT_EQ(from.address().to_string(), "127.0.0.2");
    auto message = read_message(packet);
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(message->opcode, 4);
    EXPECT_EQ(message->name, name("example.test"));
    secondary.send_to(asio::buffer(reply_to(packet)), from);
    EXPECT_TRUE(told().empty());
    EXPECT_EQ(notify.counts().confirmed, 1U);
    EXPECT_EQ(notify.counts().waiting, 0U);
    // A dynamic name changes the zone, and so does a change that comes with a revision that was there before.
    for (int i = 1; i <= 2; ++i) {
        Authority::Update names{.revision = 7};
        names.names.emplace_back(name("app.example.test"), Tailored{.choices = {addresses({i})}});
        ASSERT_TRUE(authority->apply(std::move(names)).ok());
        clock.advance(5s);
        packet = told();
        ASSERT_FALSE(packet.empty()) << i;
        secondary.send_to(asio::buffer(reply_to(packet, i == 1 ? Rcode::noerror : Rcode::refused)), from);
        EXPECT_TRUE(told().empty());
    }
    EXPECT_EQ(notify.counts().sent, 3U);
    EXPECT_EQ(notify.counts().confirmed, 2U);
    EXPECT_EQ(notify.counts().refused, 1U);
    asio::co_spawn(loop, group.stop(), asio::detached);
    loop.restart();
    loop.run();
}

TEST(Notify, ReadsWhereASecondaryIs) {
    const auto text = [](std::string_view of) {
        const auto done = Notify::parse(of);
        return done.ok() ? done->address().to_string() + " " + std::to_string(done->port()) : done.error().message;
    };
    EXPECT_EQ(text("192.0.2.53"), "192.0.2.53 53");
    EXPECT_EQ(text("192.0.2.53:5353"), "192.0.2.53 5353");
    EXPECT_EQ(text("2001:db8::53"), "2001:db8::53 53");
    EXPECT_EQ(text("[2001:db8::53]"), "2001:db8::53 53");
    EXPECT_EQ(text("[2001:db8::53]:5353"), "2001:db8::53 5353");
    for (const auto* wrong :
         {"", "ns1.example.test", "192.0.2.53:", "192.0.2.53:0", "192.0.2.53:70000", "[2001:db8::53", "[::1]x", "0.0.0.0"})
        EXPECT_EQ(text(wrong), "\"" + std::string(wrong) + "\" is no address of a secondary");
}

} // namespace orrery::dns
