#include "core/test_fixture.h"
#include "drivers/dns/resolved_names.h"

#include <boost/asio/post.hpp>
#include <gmock/gmock.h>

namespace orrery::drivers {

using namespace std::chrono_literals;

namespace {

asio::awaitable<void> let_all_run() {
    for (int i = 0; i < 20; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
}

dns::Message addresses(std::vector<std::uint8_t> last) {
    dns::Message out;
    for (const auto byte : last) {
        dns::Record record;
        record.type = dns::type::a;
        record.dns_class = dns::dns_class::in;
        record.data = {192, 0, 2, byte};
        out.answer.push_back(std::move(record));
    }
    return out;
}

} // namespace

TEST(ResolvConf, NamesItsServers) {
    const auto servers = servers_of_resolv_conf(
        "# none\nsearch example.org\nnameserver 192.0.2.53\nnameserver\t2001:db8::53 ; two\nnameserver no\n");
    ASSERT_EQ(servers.size(), 2u);
    EXPECT_EQ(text_of(servers[0]), "192.0.2.53");
    EXPECT_EQ(text_of(servers[1]), "2001:db8::53");
}

CO_TEST(ResolvedNames, DistinguishesNoAnswerFromNoRecords) {
    VirtualClock clock;
    Result<dns::Message> answer = Error{Code::timeout, "no answer"};
    int asked = 0;
    ResolvedNames names(loop.get_executor(), clock, {.servers = {*parse_dns_server("192.0.2.53")}},
                        [&](Context, DnsServer, dns::Name, std::uint16_t) -> Task<dns::Message> {
                            ++asked;
                            co_return answer;
                        });
    TaskGroup group(loop.get_executor());
    group.spawn(names.run(Context::make("test")));
    std::vector<std::string> notified;
    const auto subscription = names.subscribe([&](const std::string& name) { notified.push_back(name); });
    auto handle = names.follow("db.example.org", "A");
    co_await let_all_run();
    EXPECT_EQ(names.find("db.example.org", "A").error().code, Code::unavailable);
    const auto step = [&]() -> asio::awaitable<void> {
        clock.advance(2s);
        co_await let_all_run();
    };
    answer = dns::Message{};
    answer->rcode = dns::Rcode::nxdomain;
    co_await step();
    EXPECT_TRUE(names.find("db.example.org", "A")->empty());
    answer = addresses({2, 1, 2});
    co_await step();
    CO_ASSERT(names.find("db.example.org", "A")->size() == 2);
    EXPECT_EQ(names.find("db.example.org", "A")->at(0).address, "192.0.2.1");
    EXPECT_EQ(notified.size(), 2u);
    co_await step();
    EXPECT_EQ(notified.size(), 2u) << "the same answer is no news";
    answer->rcode = dns::Rcode::servfail;
    co_await step();
    EXPECT_EQ(names.find("db.example.org", "A").error().message, "192.0.2.53 answers SERVFAIL");
    handle.reset();
    co_await step();
    const auto before = asked;
    co_await step();
    co_await step();
    EXPECT_EQ(asked, before) << "no follower is left";
    co_await group.stop();
}

} // namespace orrery::drivers
