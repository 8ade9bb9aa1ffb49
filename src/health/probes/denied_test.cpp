#include "core/test_fixture.h"
#include "health/probe_spec.h"
#include "health/probes/command_probe.h"
#include "health/probes/plugin_probe.h"
#include "health/probes/programs.h"
#include "health/vantages/health_aggregator.h"
#include "net/http_server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

namespace {

net::OutboundRulesPtr rules_with(std::vector<std::string> allow = {}) {
    return *net::OutboundRules::make({.allow = std::move(allow)});
}

/// A listener at which no connection may arrive.
struct Untouched {
    explicit Untouched(asio::io_context& loop) : acceptor(loop, {asio::ip::make_address("127.0.0.1"), 0}) {
        acceptor.non_blocking(true);
    }
    std::uint16_t port() { return acceptor.local_endpoint().port(); }
    bool was_touched() {
        boost::system::error_code error;
        acceptor.accept(error);
        return !error;
    }
    asio::ip::tcp::acceptor acceptor;
};

asio::awaitable<Observation> probe_denied(Engine& engine, ProbePtr probe) {
    co_return co_await probe_once(engine, std::move(probe), Context::background().with_timeout(5s));
}

} // namespace

CO_TEST(DeniedProbe, SendsNothingAndIsNoEvidence) {
    Engine engine;
    Untouched target(loop);
    const ProbeDeps deps{.outbound = rules_with()};
    for (const auto* address : {"127.0.0.1", "localhost", "0.0.0.0", "::ffff:127.0.0.1", "127.1"})
        for (const auto* kind : {"tcp", "tls", "http", "https", "grpc", "udp", "dns", "icmp"}) {
            json::object spec{{"kind", kind}};
            if (std::string_view(kind) == "udp") spec["send"] = "x";
            if (std::string_view(kind) == "dns") spec["name"] = "example.org";
            const auto probe = probe_from(spec, address, target.port(), deps);
            CO_ASSERT_OK(probe);
            const auto seen = co_await probe_denied(engine, *probe);
            EXPECT_EQ(seen.outcome, Outcome::local_error) << kind << " " << address << ": " << seen.text;
            EXPECT_TRUE(seen.cannot_run) << kind << " " << address << ": " << seen.text;
            EXPECT_THAT(seen.text, HasSubstr("outbound rule \"loopback\"")) << kind << " " << address;
            EXPECT_THAT(seen.text, HasSubstr("net.outbound.allow")) << kind << " " << address;
        }
    EXPECT_FALSE(target.was_touched());
}

CO_TEST(DeniedProbe, IsMadeWhenConfigurationOpensTheAddress) {
    Engine engine;
    Untouched target(loop);
    for (const auto* address : {"127.0.0.1", "localhost"}) {
        const auto probe = probe_from({{"kind", "tcp"}}, address, target.port(),
                                      {.outbound = rules_with({fmt::format("127.0.0.1:{}", target.port())})});
        CO_ASSERT_OK(probe);
        const auto seen = co_await probe_denied(engine, *probe);
        EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
        EXPECT_FALSE(seen.cannot_run);
    }
}

CO_TEST(DeniedProbe, DoesNotFollowARedirectToADeniedAddress) {
    Engine engine;
    Untouched target(loop);
    const auto there = fmt::format("http://127.0.0.1:{}/", target.port());
    net::HttpServer server(loop.get_executor(), {},
                           [&there](Context ctx, net::Request&, net::BodyReader&, net::ResponseWriter& out) -> Task<Unit> {
                               net::Response moved{302, {}, "not here"};
                               moved.headers.set("Location", there);
                               co_return co_await out.send(ctx, std::move(moved));
                           });
    CO_ASSERT_OK(server.start());
    const auto probe = probe_from({{"kind", "http"}, {"follow_redirects", 3}}, "127.0.0.1", server.port(),
                                  {.outbound = rules_with({fmt::format("127.0.0.1:{}", server.port())})});
    CO_ASSERT_OK(probe);
    const auto seen = co_await probe_denied(engine, *probe);
    EXPECT_EQ(seen.outcome, Outcome::local_error) << seen.text;
    EXPECT_THAT(seen.text, HasSubstr("outbound rule \"loopback\""));
    EXPECT_FALSE(target.was_touched());
    co_await server.stop(0s);
}

CO_TEST(DeniedProbe, AProgramIsNotRunForADeniedAddress) {
    Programs programs(loop.get_executor());
    const ProbeDeps deps{.programs = &programs, .program_paths = {{"true", "/bin/true"}}, .outbound = rules_with()};
    const auto denied = probe_from({{"kind", "exec"}, {"command", {"true"}}}, "169.254.169.254", 80, deps);
    CO_ASSERT(!denied.ok());
    EXPECT_EQ(denied.error().code, Code::unsupported);
    EXPECT_THAT(denied.error().message, HasSubstr("metadata service"));
    CO_ASSERT_OK(probe_from({{"kind", "exec"}, {"command", {"true"}}}, "192.0.2.1", 80, deps));
}

namespace {

class NodesNeverAsked final : public CommandRunner {
public:
    Task<Ended> run(Context, std::string, std::vector<std::string>, std::string) override {
        ++runs;
        co_return Ended{0, ""};
    }
    int runs = 0;
};

} // namespace

CO_TEST(DeniedProbe, IsAnErrorOfEveryVantageOfThisServerAndCanariesAreExempt) {
    VirtualClock clock;
    NodesNeverAsked nodes;
    Untouched gateway(loop);
    HealthAggregator aggregator(loop.get_executor(), clock, {.deps = {.outbound = rules_with()}}, {});
    aggregator.set_nodes({"node-1"}, nodes);
    CO_ASSERT_OK(aggregator.set("m", {.probe = {{"kind", "icmp"}}, .address = "127.0.0.1"}));
    CO_ASSERT_OK(aggregator.set_canaries({{.probe = {{"kind", "tcp"}}, .address = "127.0.0.1", .port = gateway.port()}}));
    TaskGroup group(loop.get_executor());
    group.spawn(aggregator.run(Context::background()));
    for (int i = 0; i < 2000 && (aggregator.counts().probes < 3 || !gateway.was_touched()); ++i) {
        clock.advance(100ms);
        co_await asio::steady_timer(loop, 1ms).async_wait(asio::use_awaitable);
    }
    const auto health = aggregator.health("m");
    CO_ASSERT(health.has_value());
    EXPECT_EQ(health->state, HealthState::unknown);
    EXPECT_THAT(health->decision.error, HasSubstr("outbound rule \"loopback\""));
    EXPECT_EQ(nodes.runs, 0);
    co_await group.stop();
}

CO_TEST(Programs, AnAccountThatMayNotBeUsedRunsNothing) {
    Programs programs(loop.get_executor(), 4,
                      Error{Code::denied, "this process may not start programs as nobody", "see the manual"});
    const auto probe = plugin_probe(programs, {.argv = {"/bin/true"}});
    CO_ASSERT_OK(probe);
    const auto seen = co_await (*probe)->run(Context::background().with_timeout(5s));
    EXPECT_EQ(seen.outcome, Outcome::local_error);
    EXPECT_TRUE(seen.cannot_run);
    EXPECT_EQ(seen.text, "/bin/true: this process may not start programs as nobody; see the manual");
}

} // namespace orrery::health
