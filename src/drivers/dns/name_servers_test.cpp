#include "core/test_fixture.h"
#include "dns/server.h"
#include "drivers/dns/name_servers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cstring>

namespace orrery::drivers::name_servers_test {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

namespace {

/// Answers for n<i>.test; other names make it misbehave as they say.
class ScriptedResponder final : public dns::Responder {
public:
    std::size_t respond(dns::Bytes bytes, const dns::Client& asker, std::span<std::uint8_t> out) const noexcept override {
        const auto reading = dns::read_query(bytes);
        if (reading.action != dns::ParsedQuery::Action::answer) return 0;
        ++questions;
        const auto first = std::string(reading.query.name.labels().front());
        if (first == "silent") return 0;
        if (first == "lossy" && questions % 2 == 1) return 0;
        if (first == "refused") return dns::write_error(out, reading.query, bytes, dns::Rcode::refused);
        dns::Writer writer(out, 1232, reading.query, bytes);
        const bool v4 = reading.query.type == dns::type::a;
        dns::Name target;
        std::ignore = target.prepend("other");
        using enum dns::Writer::Section;
        bool cut = false;
        if (first == "alias") {
            writer.name(answer, reading.query.name, dns::type::cname, 60, target);
            if (v4) writer.a(answer, target, 60, {192, 0, 2, 77}); // of another name: not of the one asked for
        } else if (first == "large" && asker.transport == dns::Client::Transport::udp) {
            cut = true;
        } else if (v4) {
            writer.a(answer, reading.query.name, 30, {192, 0, 2, 2});
            writer.a(answer, reading.query.name, 30, {192, 0, 2, 1});
        } else if (first == "both") {
            writer.aaaa(answer, reading.query.name, 30, {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
        }
        const auto size = writer.finish({.authoritative = first != "lame", .truncated = cut});
        if (first == "liar") out[13] = 'x'; // another question
        if (first == "forger") out[0] ^= 1; // another id
        return size;
    }
    mutable std::atomic<int> questions = 0;
};

struct Served {
    Served() : responder(std::make_shared<ScriptedResponder>()), server({.address = "127.0.0.1"}, responder) {
        EXPECT_TRUE(server.start().ok());
    }
    std::string address() const { return fmt::format("127.0.0.1:{}", server.port()); }
    std::shared_ptr<ScriptedResponder> responder;
    dns::Server server;
};

Task<std::vector<Result<gslb::Answered>>> ask(const Served& served, std::vector<std::string> names, Duration time) {
    const auto servers = name_servers();
    co_return co_await servers->ask(Context::background().with_timeout(time), served.address(), std::move(names));
}

} // namespace

TEST(DnsServerText, IsAnAddressAndAnOptionalPort) {
    for (const auto& [text, port] : std::vector<std::pair<std::string, int>>{{"192.0.2.53", 53},
                                                                             {"192.0.2.53:5353", 5353},
                                                                             {"2001:db8::53", 53},
                                                                             {"[2001:db8::53]", 53},
                                                                             {"[2001:db8::53]:5353", 5353}}) {
        const auto server = parse_dns_server(text);
        ASSERT_TRUE(server.ok()) << text;
        EXPECT_EQ(server->port(), port);
    }
    for (const auto* bad : {"", "ns1.example.org", "192.0.2.53:", "192.0.2.53:0", "192.0.2.53:70000", "[2001:db8::53",
                            "[2001:db8::53]x", "[2001:db8::53]:", "192.0.2.53:5x"})
        EXPECT_FALSE(parse_dns_server(bad).ok()) << bad;
}

CO_TEST(NameServers, ReturnTheRecordsOfTheAnswer) {
    Served served;
    auto answers = co_await ask(served, {"n1.test.", "both.test.", "alias.test.", "large.test."}, 5s);
    CO_ASSERT_OK(answers);
    for (const auto& answer : *answers) CO_ASSERT_OK(answer);
    EXPECT_EQ(text_of((*answers)[0]->sets), "A 192.0.2.1 192.0.2.2 (ttl 30)");
    EXPECT_EQ(text_of((*answers)[1]->sets), "A 192.0.2.1 192.0.2.2 (ttl 30), AAAA 2001:db8::1 (ttl 30)");
    EXPECT_EQ(text_of((*answers)[2]->sets), "CNAME other. (ttl 60)");
    EXPECT_EQ(text_of((*answers)[3]->sets), "A 192.0.2.1 192.0.2.2 (ttl 30)") << "over TCP";
    EXPECT_TRUE((*answers)[0]->authoritative);
}

CO_TEST(NameServers, MessagesThatAreNotTheAnswerAreIgnored) {
    Served served;
    auto answers = co_await ask(served, {"liar.test.", "forger.test.", "silent.test.", "refused.test.", "n1.test."}, 1s);
    CO_ASSERT_OK(answers);
    EXPECT_EQ((*answers)[0].error().code, Code::timeout);
    EXPECT_EQ((*answers)[1].error().code, Code::timeout);
    EXPECT_EQ((*answers)[2].error().code, Code::timeout);
    EXPECT_THAT((*answers)[3].error().message, HasSubstr("REFUSED"));
    EXPECT_TRUE((*answers)[4].ok()) << "others are not held up";
}

CO_TEST(NameServers, AreQueriedAgainAfterALostAnswer) {
    Served served;
    auto answers = co_await ask(served, {"lossy.test."}, 8s);
    CO_ASSERT_OK(answers);
    CO_ASSERT_OK((*answers)[0]);
    EXPECT_GE(served.responder->questions.load(), 3);
}

CO_TEST(NameServers, LimitsConcurrentQueries) {
    Served served;
    std::vector<std::string> names;
    for (int i = 0; i < 300; ++i) names.push_back(fmt::format("n{}.test.", i));
    auto answers = co_await ask(served, names, 30s);
    CO_ASSERT_OK(answers);
    EXPECT_EQ(std::count_if(answers->begin(), answers->end(), [](const auto& answer) { return answer.ok(); }), 300);
}

CO_TEST(NameServers, AMissingServerIsUnavailable) {
    std::string address;
    {
        Served served;
        address = served.address();
    }
    const auto servers = name_servers();
    auto answers = co_await servers->ask(Context::background().with_timeout(3s), address, {"n1.test."});
    CO_ASSERT_OK(answers);
    EXPECT_EQ((*answers)[0].error().code, Code::unavailable) << (*answers)[0].error().text();
}

} // namespace orrery::drivers::name_servers_test
