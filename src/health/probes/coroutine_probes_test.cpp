#include "core/test_fixture.h"
#include "dns/message.h"
#include "health/probes/dns_probe.h"
#include "health/probes/grpc_probe.h"
#include "health/probes/icmp_probe.h"
#include "health/probes/udp_probe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

namespace {

/// Answers datagrams on its own thread; an empty answer is not sent.
class DatagramPeer {
public:
    using Answer = std::function<std::string(std::string_view, int nth)>;
    explicit DatagramPeer(Answer answer) : answer_(std::move(answer)) {
        fd_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0) std::abort();
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this] {
            char buffer[2048];
            for (int nth = 0;; ++nth) {
                sockaddr_in from{};
                socklen_t from_size = sizeof from;
                const auto count = ::recvfrom(fd_, buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &from_size);
                if (count < 0 || std::string_view(buffer, static_cast<std::size_t>(count)) == "the end") return;
                const auto answer = answer_(std::string_view(buffer, static_cast<std::size_t>(count)), nth);
                if (!answer.empty()) ::sendto(fd_, answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from), from_size);
            }
        });
    }
    ~DatagramPeer() {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port_);
        ::sendto(fd_, "the end", 7, 0, reinterpret_cast<sockaddr*>(&address), sizeof address);
        thread_.join();
        ::close(fd_);
    }
    std::uint16_t port() const { return port_; }

private:
    Answer answer_;
    int fd_ = -1;
    std::uint16_t port_ = 0;
    std::thread thread_;
};

asio::awaitable<Observation> run_alone(ProbePtr probe, Duration time = 5s) {
    co_return co_await probe->run(Context::make("test").with_timeout(time));
}

} // namespace

CO_TEST(UdpProbe, WaitsForTheExpectedAnswerAndRetries) {
    DatagramPeer peer([](std::string_view asked, int nth) { return nth == 0 ? std::string() : "echo " + std::string(asked); });
    auto seen = co_await run_alone(udp_probe({"127.0.0.1", peer.port(), "ping", *Pattern::make("echo ping", "")}), 900ms);
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text; // the first was lost
    seen = co_await run_alone(udp_probe({"127.0.0.1", peer.port(), "ping", *Pattern::make("pong", "")}));
    EXPECT_EQ(seen.outcome, Outcome::bad_body) << seen.text;
    DatagramPeer mute([](std::string_view, int) { return std::string(); });
    seen = co_await run_alone(udp_probe({"127.0.0.1", mute.port(), "ping", {}}), 60ms);
    EXPECT_EQ(seen.outcome, Outcome::timeout_read) << seen.text;
    std::uint16_t closed = 0;
    {
        DatagramPeer gone([](std::string_view, int) { return std::string(); });
        closed = gone.port();
    }
    seen = co_await run_alone(udp_probe({"127.0.0.1", closed, "ping", {}}));
    EXPECT_EQ(seen.outcome, Outcome::refused) << seen.text;
}

CO_TEST(DnsProbe, JudgesCodesAndRecords) {
    DatagramPeer server([](std::string_view asked, int) {
        const dns::Bytes bytes(reinterpret_cast<const std::uint8_t*>(asked.data()), asked.size());
        const auto reading = dns::read_query(bytes);
        std::vector<std::uint8_t> out(1232);
        dns::Writer writer(out, out.size(), reading.query, bytes);
        const bool known = reading.query.name.to_text().starts_with("www.");
        if (known) writer.a(dns::Writer::Section::answer, reading.query.name, 5, {192, 0, 2, 1});
        const auto size = writer.finish({.rcode = known ? dns::Rcode::noerror : dns::Rcode::nxdomain});
        return std::string(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size));
    });
    const std::vector<std::pair<DnsProbeOptions, Outcome>> table{
        {{.name = "www.example.org"}, Outcome::ok},
        {{.name = "www.example.org", .contains = "192.0.2.1", .authoritative = true}, Outcome::ok},
        {{.name = "www.example.org", .contains = "192.0.2.9"}, Outcome::bad_body},
        {{.name = "gone.example.org"}, Outcome::bad_status},
        {{.name = "gone.example.org", .rcode = 3}, Outcome::ok},
    };
    for (auto [what, expected] : table) {
        what.host = "127.0.0.1";
        what.port = server.port();
        auto probe = dns_probe(what);
        CO_ASSERT_OK(probe);
        const auto seen = co_await run_alone(*probe);
        EXPECT_EQ(seen.outcome, expected) << seen.text;
    }
    DatagramPeer garbage([](std::string_view, int) { return std::string("no DNS"); });
    auto probe = dns_probe({.host = "127.0.0.1", .port = garbage.port(), .name = "www.example.org"});
    const auto seen = co_await run_alone(*probe);
    EXPECT_EQ(seen.outcome, Outcome::protocol) << seen.text;
    EXPECT_FALSE(dns_probe({.host = "127.0.0.1", .name = "a..b"}).ok());
    EXPECT_FALSE(dns_probe({.host = "127.0.0.1", .name = "a.b", .type = "ANY"}).ok());
}

CO_TEST(IcmpProbe, ReceivesTheEchoOrReportsTheMissingPermission) {
    for (const auto* host : {"127.0.0.1", "::1"}) {
        const auto seen = co_await run_alone(icmp_probe({host}));
        if (seen.outcome == Outcome::local_error) {
            EXPECT_TRUE(seen.text.find("ping_group_range") != std::string::npos || std::string_view(host) == "::1") << seen.text;
        } else {
            EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
        }
    }
}

CO_TEST(GrpcProbe, QueriesTheHealthService) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    grpc::CallbackGenericService others; // a server without a service does not start
    builder.RegisterCallbackGenericService(&others);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    auto server = builder.BuildAndStart();
    CO_ASSERT(server != nullptr);
    const auto at = static_cast<std::uint16_t>(port);
    auto seen = co_await run_alone(grpc_probe({.host = "127.0.0.1", .port = at}));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    seen = co_await run_alone(grpc_probe({.host = "127.0.0.1", .port = at, .service = "nobody.knows"}));
    EXPECT_EQ(seen.outcome, Outcome::failed) << seen.text;
    server->GetHealthCheckService()->SetServingStatus("shop", false);
    const auto shop = grpc_probe({.host = "127.0.0.1", .port = at, .service = "shop"});
    seen = co_await run_alone(shop);
    EXPECT_EQ(seen.outcome, Outcome::failed) << seen.text;
    EXPECT_THAT(seen.text, HasSubstr("NOT_SERVING"));
    server->GetHealthCheckService()->SetServingStatus("shop", true);
    seen = co_await run_alone(shop);
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    server->Shutdown();
    server.reset();
    seen = co_await run_alone(shop);
    EXPECT_THAT(seen.outcome, ::testing::AnyOf(Outcome::refused, Outcome::unreachable)) << seen.text;
}

/// gRPC ends what its callbacks run on with the last channel there is, and must not be made to do so in a callback.
CO_TEST(GrpcProbe, TheLastProbeMayBeDestroyedAfterItsRun) {
    for (int i = 0; i < 300; ++i) {
        const auto seen = co_await run_alone(grpc_probe({.host = "127.0.0.1", .port = 1}));
        EXPECT_EQ(seen.outcome, Outcome::refused) << seen.text;
    }
}

TEST(GrpcHealth, ParsesOnlyTheStatus) {
    using namespace std::string_view_literals;
    EXPECT_EQ(read_grpc_health(""), 0);
    EXPECT_EQ(read_grpc_health("\x08\x01"sv), 1);
    EXPECT_EQ(read_grpc_health("\x12\x03xyz\x08\x02"sv), 2); // a field of the future before it
    for (const auto bad :
         {"\x08"sv, "\x08\xff"sv, "\x12\x7fx"sv, "\x0b"sv, "\x09\x01"sv, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"sv})
        EXPECT_FALSE(read_grpc_health(bad).has_value());
}

} // namespace orrery::health
