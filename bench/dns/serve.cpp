// An authoritative server with many names, for bench/dns/run: serve PORT NAMES static|weighted|echo
// (echo: not a DNS server; returns every packet with a record appended, to measure the cost of the sockets alone)
// Reads commands: "change N" changes N names, one after the other, and prints the time until a query returned the changed answer;
// "ask N" sends N queries without a change, to measure the cost of a query. Exits at the end of its input.
#include "dns/authority.h"
#include "names.h"

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace {

using namespace orrery;
using namespace orrery::dns;
using Steady = std::chrono::steady_clock;

double ms_since(Steady::time_point start) { return std::chrono::duration<double, std::milli>(Steady::now() - start).count(); }

Name named(const std::string& text) { return Name::from_text(text).value_or(Name()); }

std::string label(unsigned number) {
    std::string out;
    bench_label(std::back_inserter(out), number);
    return out;
}

DynamicName weighted(unsigned seed) {
    AnswerSet answer_set{.policy = SelectionPolicy::weighted, .ttl = 30};
    for (unsigned i = 0; i < 4; ++i)
        answer_set.candidates.push_back(
            {.v4 = std::array<std::uint8_t, 4>{10, static_cast<std::uint8_t>(seed >> 8), static_cast<std::uint8_t>(seed),
                                               static_cast<std::uint8_t>(i + 1)},
             .weight = 1 + i,
             .identity = i});
    return {.answer_sets = {answer_set}};
}

[[noreturn]] void fail(const std::string& why) {
    std::cerr << why << '\n';
    std::exit(1);
}

class TestClient {
public:
    explicit TestClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_DGRAM, 0)) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const timeval wait{1, 0};
        ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) fail("cannot connect");
    }
    ~TestClient() { ::close(socket_); }
    /// The first address in the answer, as a number; 0: none.
    std::uint32_t ask(const std::vector<std::uint8_t>& query) const {
        std::array<std::uint8_t, 1500> in{};
        if (::send(socket_, query.data(), query.size(), 0) < 0) return 0;
        const auto size = ::recv(socket_, in.data(), in.size(), 0);
        if (size <= 0) return 0;
        const auto message = read_message(Bytes(in).first(static_cast<std::size_t>(size)));
        if (!message.ok() || message->answer.empty() || message->answer[0].data.size() != 4) return 0;
        const auto& data = message->answer[0].data;
        return std::uint32_t{data[0]} << 24 | std::uint32_t{data[1]} << 16 | std::uint32_t{data[2]} << 8 | data[3];
    }

private:
    int socket_;
};

[[noreturn]] void echo() {
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof here;
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&here), size) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0)
        fail("cannot bind");
    std::cout << fmt::format(R"({{"port": {}}})", ntohs(here.sin_port)) << std::endl;
    constexpr std::size_t batch = 64;
    constexpr std::array<std::uint8_t, 16> record{0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 127, 0, 0, 1};
    std::array<std::array<std::uint8_t, 1500>, batch> bytes{};
    std::array<sockaddr_storage, batch> from{};
    std::array<iovec, batch> pieces{};
    std::array<mmsghdr, batch> messages{};
    std::thread([] { // it ends with its input
        while (std::cin.get() != EOF) {
        }
        std::_Exit(0);
    })
        .detach();
    for (;;) {
        for (std::size_t i = 0; i < batch; ++i) {
            pieces[i] = {bytes[i].data(), bytes[i].size() - record.size()};
            messages[i] = {
                .msg_hdr = {.msg_name = &from[i], .msg_namelen = sizeof from[i], .msg_iov = &pieces[i], .msg_iovlen = 1}};
        }
        const int many = ::recvmmsg(fd, messages.data(), batch, MSG_WAITFORONE, nullptr);
        if (many <= 0) continue;
        for (std::size_t i = 0; i < static_cast<std::size_t>(many); ++i) {
            auto& packet = bytes[i];
            packet[2] |= 0x80;
            packet[7] = 1;
            std::copy(record.begin(), record.end(), packet.begin() + messages[i].msg_len);
            pieces[i].iov_len = messages[i].msg_len + record.size();
        }
        ::sendmmsg(fd, messages.data(), static_cast<unsigned>(many), 0);
    }
}

void tell(std::vector<double> times, std::size_t wrong) {
    std::sort(times.begin(), times.end());
    std::cout << fmt::format(R"({{"median_ms": {:.3f}, "p99_ms": {:.3f}, "max_ms": {:.3f}, "wrong": {}}})", times[times.size() / 2],
                             times[times.size() * 99 / 100], times.back(), wrong)
              << std::endl;
}

} // namespace

int main(int count, char** arguments) {
    if (count != 4) fail("serve PORT NAMES static|weighted|echo");
    if (std::string_view(arguments[3]) == "echo") echo();
    const auto port = static_cast<std::uint16_t>(std::atoi(arguments[1]));
    const auto names = static_cast<unsigned>(std::atoi(arguments[2]));
    const bool dynamic = std::string_view(arguments[3]) == "weighted";
    const auto started = Steady::now();
    std::string text = "$TTL 300\n@ SOA ns1 host 1 7200 900 604800 60\n@ NS ns1\nns1 A 127.0.0.1\n";
    for (unsigned i = 0; i < names && !dynamic; ++i) text += fmt::format("{} A 10.{}.{}.1\n", label(i), i >> 8 & 255, i & 255);
    auto zone = parse_zone(text, named("bench.test"));
    if (!zone.ok()) fail(zone.error().text());
    const auto authority = std::make_shared<Authority>(Authority::Options{});
    Authority::Update update{.revision = 1};
    update.zones.push_back(std::move(*zone));
    for (unsigned i = 0; i < names && dynamic; ++i) update.dynamic_names.emplace_back(named(label(i) + ".bench.test"), weighted(i));
    if (const auto done = authority->apply(std::move(update)); !done.ok()) fail(done.error().text());
    Server server({.port = port}, authority);
    if (const auto done = server.start(); !done.ok()) fail(done.error().text());
    std::cout << fmt::format(R"({{"port": {}, "ready_ms": {:.1f}}})", server.port(), ms_since(started)) << std::endl;
    const TestClient client(server.port());
    std::mt19937 random(1);
    std::string command;
    unsigned times = 0;
    for (std::uint64_t revision = 2; std::cin >> command >> times;) {
        std::vector<double> took;
        std::size_t wrong = 0;
        for (unsigned i = 0; i < times; ++i) {
            const auto name = named(label(random() % names) + ".bench.test");
            const auto query = write_query(static_cast<std::uint16_t>(i), name, type::a);
            const auto mark = static_cast<unsigned>(revision * 7919);
            const auto start = Steady::now();
            if (command == "change") {
                Authority::Update one{.revision = revision++};
                one.dynamic_names.emplace_back(name, weighted(mark));
                if (const auto done = authority->apply(std::move(one)); !done.ok()) fail(done.error().text());
            }
            const auto got = client.ask(query);
            took.push_back(ms_since(start));
            if (command == "change" && (got >> 8 & 0xFFFF) != (mark & 0xFFFF)) ++wrong;
        }
        tell(std::move(took), wrong);
    }
    server.stop();
    return 0;
}
