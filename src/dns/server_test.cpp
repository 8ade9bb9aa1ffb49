#include "dns/message.h"
#include "dns/server.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include <deque>

namespace orrery::dns {

namespace {

namespace asio = boost::asio;

/// Answers every query with one address that encodes the transport.
class Echo final : public Responder {
public:
    std::size_t respond(Bytes bytes, const Client& client, std::span<std::uint8_t> out) const noexcept override {
        const auto parsed = read_query(bytes);
        if (parsed.action == ParsedQuery::Action::drop) return 0;
        if (parsed.action == ParsedQuery::Action::reject) return write_error(out, parsed.query, bytes, parsed.rcode);
        Writer writer(out, out.size(), parsed.query, bytes);
        writer.a(Writer::Section::answer, parsed.query.name, 1,
                 {192, 0, 2, static_cast<std::uint8_t>(client.transport == Client::Transport::tcp ? 2 : 1)});
        return writer.finish({});
    }
};

std::string answer_text(Bytes bytes) {
    const auto message = read_message(bytes);
    return message.ok() && message->answer.size() == 1 ? message->answer[0].to_text() : "?";
}

struct TcpClient {
    explicit TcpClient(std::uint16_t port, const char* from = "127.0.0.1") : socket(loop, asio::ip::tcp::v4()) {
        socket.bind({asio::ip::make_address(from), 0});
        socket.connect({asio::ip::make_address("127.0.0.1"), port});
    }
    void send(const std::vector<std::uint8_t>& message) {
        const std::array<std::uint8_t, 2> length{static_cast<std::uint8_t>(message.size() >> 8),
                                                 static_cast<std::uint8_t>(message.size())};
        asio::write(socket, asio::buffer(length));
        asio::write(socket, asio::buffer(message));
    }
    std::string receive() {
        std::array<std::uint8_t, 2> length{};
        boost::system::error_code error;
        asio::read(socket, asio::buffer(length), error);
        if (error) return "closed";
        std::vector<std::uint8_t> message(static_cast<std::size_t>(length[0]) << 8 | length[1]);
        asio::read(socket, asio::buffer(message), error);
        return error ? "closed" : answer_text(message);
    }
    asio::io_context loop;
    asio::ip::tcp::socket socket;
};

} // namespace

TEST(Server, AnswersOverUdpAndTcp) {
    Server server({.threads = 2}, std::make_shared<Echo>());
    ASSERT_TRUE(server.start().ok());
    const auto query = write_query(1, *Name::from_text("a.test"), type::a);
    asio::io_context loop;
    asio::ip::udp::socket udp(loop, asio::ip::udp::v4());
    const asio::ip::udp::endpoint to(asio::ip::make_address("127.0.0.1"), server.port());
    for (int i = 0; i < 100; ++i) {
        udp.send_to(asio::buffer(query), to);
        std::vector<std::uint8_t> answer(512);
        answer.resize(udp.receive(asio::buffer(answer)));
        ASSERT_EQ(answer_text(answer), "a.test 1 A 192.0.2.1");
    }
    TcpClient tcp(server.port());
    for (int i = 0; i < 3; ++i) tcp.send(query); // several at once
    for (int i = 0; i < 3; ++i) EXPECT_EQ(tcp.receive(), "a.test 1 A 192.0.2.2");
    TcpClient rude(server.port());
    rude.send({1, 2, 3, 4, 5});
    EXPECT_EQ(rude.receive(), "closed");
    EXPECT_EQ(server.counts().udp_queries, 100U);
    EXPECT_EQ(server.counts().tcp_queries, 3U);
    server.stop();
    EXPECT_EQ(tcp.receive(), "closed");
}

TEST(Server, RepliesFromTheDestinationAddressOfTheQuery) {
    for (const auto* listen : {"0.0.0.0", "::"}) {
        Server server({.address = listen}, std::make_shared<Echo>());
        ASSERT_TRUE(server.start().ok());
        const auto query = write_query(1, *Name::from_text("a.test"), type::a);
        asio::io_context loop;
        for (const auto* address : {"127.0.0.1", "127.0.0.77"}) {
            asio::ip::udp::socket udp(loop, asio::ip::udp::v4());
            udp.send_to(asio::buffer(query), {asio::ip::make_address(address), server.port()});
            std::vector<std::uint8_t> answer(512);
            asio::ip::udp::endpoint from;
            answer.resize(udp.receive_from(asio::buffer(answer), from));
            EXPECT_EQ(from.address().to_string(), address);
            EXPECT_EQ(answer_text(answer), "a.test 1 A 192.0.2.1");
        }
    }
}

/// Counts responses that were not announced by `prefetch`.
class PrefetchRecorder final : public Responder {
public:
    std::size_t respond(Bytes bytes, const Client& client, std::span<std::uint8_t> out) const noexcept override {
        if (prefetched_.empty() || prefetched_.front() != bytes.data()) ++unannounced;
        if (!prefetched_.empty()) prefetched_.pop_front();
        return echo_.respond(bytes, client, out);
    }
    void prefetch(std::span<const Bytes> queries) const noexcept override {
        for (const auto& one : queries) prefetched_.push_back(one.data());
    }
    mutable int unannounced = 0;

private:
    Echo echo_;
    mutable std::deque<const std::uint8_t*> prefetched_;
};

TEST(Server, PrefetchesQueriesInOrderBeforeItAnswersThem) {
    const auto told = std::make_shared<PrefetchRecorder>();
    Server server({}, told);
    ASSERT_TRUE(server.start().ok());
    const auto query = write_query(1, *Name::from_text("a.test"), type::a);
    asio::io_context loop;
    asio::ip::udp::socket udp(loop, asio::ip::udp::v4());
    for (int many = 1; many < 100; many += 7) {
        for (int i = 0; i < many; ++i) udp.send_to(asio::buffer(query), {asio::ip::make_address("127.0.0.1"), server.port()});
        std::vector<std::uint8_t> answer(512);
        for (int i = 0; i < many; ++i) udp.receive(asio::buffer(answer));
    }
    server.stop();
    EXPECT_EQ(told->unannounced, 0);
}

/// Answers with the address of the client.
class WhoAsks final : public Responder {
public:
    std::size_t respond(Bytes bytes, const Client& client, std::span<std::uint8_t> out) const noexcept override {
        const auto parsed = read_query(bytes);
        Writer writer(out, out.size(), parsed.query, bytes);
        if (client.v6)
            writer.aaaa(Writer::Section::answer, parsed.query.name, 1, client.address);
        else
            writer.a(Writer::Section::answer, parsed.query.name, 1,
                     {client.address[0], client.address[1], client.address[2], client.address[3]});
        return writer.finish({});
    }
};

/// At "::" an IPv4-mapped client is an IPv4 client, so that access lists and client rules apply to it.
TEST(Server, AnIpv4ClientHasTheSameAddressOverTcp) {
    for (const auto* listen : {"127.0.0.1", "0.0.0.0", "::"}) {
        Server server({.address = listen}, std::make_shared<WhoAsks>());
        ASSERT_TRUE(server.start().ok());
        TcpClient tcp(server.port(), "127.0.0.7");
        tcp.send(write_query(1, *Name::from_text("a.test"), type::a));
        EXPECT_EQ(tcp.receive(), "a.test 1 A 127.0.0.7") << listen;
    }
}

TEST(Server, ANewConnectionReplacesTheLongestIdleOne) {
    Server server({.max_tcp_clients = 2}, std::make_shared<Echo>());
    ASSERT_TRUE(server.start().ok());
    const auto query = write_query(1, *Name::from_text("a.test"), type::a);
    const auto ask = [&](TcpClient& client) {
        client.send(query);
        return client.receive();
    };
    TcpClient first(server.port());
    EXPECT_NE(ask(first), "closed");
    TcpClient second(server.port());
    EXPECT_NE(ask(second), "closed");
    EXPECT_NE(ask(first), "closed"); // now the second is the longer idle
    TcpClient third(server.port());
    EXPECT_NE(ask(third), "closed");
    EXPECT_EQ(second.receive(), "closed");
    EXPECT_NE(ask(first), "closed");
}

TEST(Server, OneNetworkCannotUseAllConnections) {
    Server server({.max_tcp_clients = 4, .max_tcp_clients_per_network = 2}, std::make_shared<Echo>());
    ASSERT_TRUE(server.start().ok());
    const auto query = write_query(1, *Name::from_text("a.test"), type::a);
    const auto ask = [&](TcpClient& client) {
        client.send(query);
        return client.receive();
    };
    TcpClient other(server.port(), "127.0.0.9");
    EXPECT_NE(ask(other), "closed");
    std::vector<std::unique_ptr<TcpClient>> greedy;
    for (int i = 0; i < 5; ++i) {
        greedy.push_back(std::make_unique<TcpClient>(server.port()));
        EXPECT_NE(ask(*greedy.back()), "closed");
    }
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(greedy[i]->receive(), "closed");
    EXPECT_NE(ask(*greedy[3]), "closed");
    EXPECT_NE(ask(other), "closed");
}

TEST(Server, ReportsWhyItCannotListen) {
    Server first({}, std::make_shared<Echo>());
    ASSERT_TRUE(first.start().ok());
    Server second({.port = first.port()}, std::make_shared<Echo>());
    const auto started = second.start();
    ASSERT_FALSE(started.ok());
    EXPECT_EQ(started.error().code, Code::unavailable);
}

} // namespace orrery::dns
