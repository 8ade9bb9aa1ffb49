#include "dns/udp_batch_sender.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <map>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <set>
#include <string>
#include <unistd.h>

namespace orrery::dns {

namespace {

sockaddr_storage at(const std::string& address, std::uint16_t port) {
    sockaddr_storage out{};
    if (address.find(':') == std::string::npos) {
        auto& v4 = reinterpret_cast<sockaddr_in&>(out);
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr);
    } else {
        auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(port);
        ::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr);
    }
    return out;
}

/// A UDP socket at an address.
class Socket {
public:
    explicit Socket(const std::string& address) {
        const auto here = at(address, 0);
        fd_ = ::socket(here.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        set(SOL_SOCKET, SO_RCVBUF, 1 << 20);
        const timeval receive_timeout{5, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &receive_timeout, sizeof receive_timeout);
        if (here.ss_family == AF_INET6) set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
        EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
    }
    ~Socket() { ::close(fd_); }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    void set(int level, int option, int value) const {
        EXPECT_EQ(::setsockopt(fd_, level, option, &value, sizeof value), 0) << option;
    }
    int fd() const { return fd_; }
    std::uint16_t port() const {
        sockaddr_storage here{};
        socklen_t size = sizeof here;
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&here), &size);
        return ntohs(reinterpret_cast<const sockaddr_in&>(here).sin_port); // where IPv6 has it, too
    }
    void send(const std::string& text, const sockaddr_storage& to) const {
        EXPECT_EQ(::sendto(fd_, text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
                  static_cast<ssize_t>(text.size()));
    }
    struct Datagram {
        std::string text, from;
    };
    /// Receives one datagram; "" if there is none.
    Datagram receive() const {
        std::string text(65536, '\0');
        sockaddr_storage from{};
        socklen_t size = sizeof from;
        const auto got = ::recvfrom(fd_, text.data(), text.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
        text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
        std::array<char, INET6_ADDRSTRLEN> address{};
        if (from.ss_family == AF_INET6)
            ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, address.data(), address.size());
        else
            ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, address.data(), address.size());
        return {text, address.data()};
    }
    std::multiset<std::string> receive(std::size_t many) const {
        std::multiset<std::string> out;
        while (many-- > 0) out.insert(receive().text);
        return out;
    }

private:
    int fd_;
};

/// Receives a number of requests from a socket and sends each back with `more` appended.
class ResponseBuilder {
public:
    explicit ResponseBuilder(const Socket& socket) : socket_(socket), replies_(socket.fd()) {}
    std::size_t answer(std::size_t many, const std::string& more = "!") {
        std::vector<std::string> texts(many, std::string(1500, '\0'));
        std::vector<sockaddr_storage> from(many);
        std::vector<std::array<std::uint8_t, 128>> control(many);
        std::vector<iovec> pieces(many);
        std::vector<msghdr> heads(many);
        for (std::size_t i = 0; i < many; ++i) {
            pieces[i] = {texts[i].data(), texts[i].size()};
            heads[i] = {&from[i], sizeof from[i], &pieces[i], 1, control[i].data(), control[i].size(), 0};
            const auto got = ::recvmsg(socket_.fd(), &heads[i], 0);
            if (got < 0) return 0;
            texts[i].resize(static_cast<std::size_t>(got));
            texts[i] += more;
            replies_.add(heads[i], {reinterpret_cast<std::uint8_t*>(texts[i].data()), texts[i].size()});
        }
        return replies_.send();
    }

private:
    const Socket& socket_;
    UdpBatchSender replies_;
};

std::string numbered(const std::string& text, int i) {
    return text + static_cast<char>('a' + i % 26) + static_cast<char>('a' + i / 26);
}

} // namespace

TEST(UdpBatchSender, SendsEqualSizesToOneEndpointAsOneMessage) {
    for (const std::string address : {"127.0.0.1", "::1"}) {
        const Socket server(address), joined(address), plain(address);
        joined.set(IPPROTO_UDP, UDP_GRO, 1); // shows what comes as one as one
        ResponseBuilder answering(server);
        const auto to = at(address, server.port());
        for (int i = 0; i < 20; ++i) {
            joined.send(numbered("question ", i), to);
            plain.send(numbered("question ", i), to);
        }
        EXPECT_EQ(answering.answer(40), 40U);
        std::string all;
        for (int i = 0; i < 20; ++i) all += numbered("question ", i) + "!";
        EXPECT_EQ(joined.receive().text, all);
        for (int i = 0; i < 20; ++i) EXPECT_EQ(plain.receive().text, numbered("question ", i) + "!");
    }
}

/// A full batch of many clients, sizes and contents: every client gets exactly its own replies.
TEST(UdpBatchSender, EveryClientGetsItsOwnReplies) {
    const Socket server("127.0.0.1");
    ResponseBuilder answering(server);
    const auto to = at("127.0.0.1", server.port());
    std::vector<std::unique_ptr<Socket>> clients;
    for (int i = 0; i < 9; ++i) clients.push_back(std::make_unique<Socket>(i % 2 == 0 ? "127.0.0.1" : "127.0.0.2"));
    for (unsigned round = 0; round < 50; ++round) {
        std::map<std::size_t, std::multiset<std::string>> expected;
        for (unsigned i = 0; i < UdpBatchSender::max_batch; ++i) {
            const auto who = (i * i + round) % clients.size();
            const auto text = numbered(std::string(1 + (i * 7 + round) % 4 * 300, 'x'), static_cast<int>(i));
            clients[who]->send(text, to);
            expected[who].insert(text + "!");
        }
        EXPECT_EQ(answering.answer(UdpBatchSender::max_batch), UdpBatchSender::max_batch);
        for (const auto& [who, texts] : expected) EXPECT_EQ(clients[who]->receive(texts.size()), texts);
    }
}

TEST(UdpBatchSender, RepliesLeaveFromTheDestinationOfTheRequest) {
    for (const std::string listen : {"0.0.0.0", "::"}) {
        const Socket server(listen), client("127.0.0.1");
        if (listen == "::")
            server.set(IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
        else
            server.set(IPPROTO_IP, IP_PKTINFO, 1);
        ResponseBuilder answering(server);
        for (int i = 0; i < 30; ++i)
            client.send(numbered(i % 2 == 0 ? "one" : "two", i), at(i % 2 == 0 ? "127.0.0.3" : "127.0.0.4", server.port()));
        EXPECT_EQ(answering.answer(30), 30U);
        for (int i = 0; i < 30; ++i) {
            const auto got = client.receive();
            EXPECT_EQ(got.from, got.text.starts_with("one") ? "127.0.0.3" : "127.0.0.4") << listen;
        }
    }
}

/// The kernel does not support GSO on a socket without checksums.
TEST(UdpBatchSender, SendsIndividuallyWithoutKernelSupport) {
    const Socket server("127.0.0.1"), client("127.0.0.1");
    client.set(IPPROTO_UDP, UDP_GRO, 1);
    ResponseBuilder answering(server);
    const auto messages_of = [&](int many) {
        for (int i = 0; i < many; ++i) client.send(numbered("question ", i), at("127.0.0.1", server.port()));
        EXPECT_EQ(answering.answer(static_cast<std::size_t>(many)), static_cast<std::size_t>(many));
        int messages = 0;
        for (std::size_t left = static_cast<std::size_t>(many) * std::size("question ab!") - static_cast<std::size_t>(many);
             left > 0; ++messages) {
            const auto got = client.receive().text;
            if (got.empty() || got.size() > left) return -1;
            left -= got.size();
        }
        return messages;
    };
    EXPECT_EQ(messages_of(20), 1);
    server.set(SOL_SOCKET, SO_NO_CHECK, 1);
    for (int i = 0; i < 7; ++i) EXPECT_EQ(messages_of(20), 20);
    server.set(SOL_SOCKET, SO_NO_CHECK, 0);
    EXPECT_EQ(messages_of(20), 1); // the next may go
    server.set(SOL_SOCKET, SO_NO_CHECK, 1);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(messages_of(20), 20);
    server.set(SOL_SOCKET, SO_NO_CHECK, 0);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(messages_of(2), 2) << i; // no longer tried
    EXPECT_EQ(messages_of(20), 1);                                    // and again
}

/// 64 replies of the maximum GSO size exceed one message; larger replies are sent alone.
TEST(UdpBatchSender, SendsLargeReplies) {
    const Socket server("127.0.0.1"), client("127.0.0.1");
    ResponseBuilder answering(server);
    for (const std::size_t size : {1231UL, 1232UL, 1400UL}) {
        for (std::size_t i = 0; i < UdpBatchSender::max_batch; ++i)
            client.send(std::string(size - 1, 'q'), at("127.0.0.1", server.port()));
        EXPECT_EQ(answering.answer(UdpBatchSender::max_batch), UdpBatchSender::max_batch);
        for (std::size_t i = 0; i < UdpBatchSender::max_batch; ++i)
            EXPECT_EQ(client.receive().text, std::string(size - 1, 'q') + "!");
    }
}

/// A reply to port 0 fails; the following replies of the batch are still sent.
TEST(UdpBatchSender, AFailedReplyDoesNotBlockOthers) {
    const Socket server("127.0.0.1"), client("127.0.0.1");
    UdpBatchSender replies(server.fd());
    std::string text = "answer";
    auto nowhere = at("127.0.0.1", 0), there = at("127.0.0.1", client.port());
    msghdr bad{}, good{};
    bad.msg_name = &nowhere;
    good.msg_name = &there;
    bad.msg_namelen = good.msg_namelen = sizeof(sockaddr_in);
    const std::span<std::uint8_t> answer(reinterpret_cast<std::uint8_t*>(text.data()), text.size());
    for (int i = 0; i < 3; ++i) {
        replies.add(bad, answer);
        replies.add(good, answer);
    }
    EXPECT_EQ(replies.send(), 3U);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(client.receive().text, "answer");
}

} // namespace orrery::dns
