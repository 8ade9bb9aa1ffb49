// Sends malformed queries at the rate at which the server reads them: dns_storm PORT bad|good COUNT SEED ORIGIN
// One of every 64 queries is valid, for a name of the zone. The program waits for its response, with a few of them in flight, so
// the server reads every packet and the kernel drops none. Prints {"sent": N, "seconds": S, "good": G, "wrong": W}.
#include "dns/message.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <poll.h>
#include <random>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace orrery;
using namespace orrery::dns;
using Packet = std::vector<std::uint8_t>;

[[noreturn]] void fail(const std::string& why) {
    std::cerr << why << '\n';
    std::exit(1);
}

Name named(const std::string& text) { return Name::from_text(text).value_or(Name()); }

Packet with_options(Packet packet, const Packet& options, std::uint32_t ttl = 0) {
    packet[11] = 1;
    const Packet head{0,
                      0,
                      41,
                      0x04,
                      0xD0,
                      static_cast<std::uint8_t>(ttl >> 24),
                      static_cast<std::uint8_t>(ttl >> 16),
                      static_cast<std::uint8_t>(ttl >> 8),
                      static_cast<std::uint8_t>(ttl),
                      static_cast<std::uint8_t>(options.size() >> 8),
                      static_cast<std::uint8_t>(options.size())};
    packet.insert(packet.end(), head.begin(), head.end());
    packet.insert(packet.end(), options.begin(), options.end());
    return packet;
}

/// Valid queries, as input of the mutation.
std::vector<Packet> seeds(const std::string& origin) {
    std::vector<Packet> out;
    for (const auto* label : {"www", "dyn", "geo", "alias", "x.wild", "nothing", "a.b.c", "big", "x.sub", "round", "*"})
        for (const std::uint16_t wanted : {1, 28, 5, 6, 255, 43, 252}) {
            auto plain = write_query(0, named(std::string(label) + "." + origin), wanted);
            plain.resize(plain.size() - (plain[11] != 0 ? 11 : 0)); // without its OPT, if it has one
            plain[11] = 0;
            out.push_back(plain);
            out.push_back(with_options(plain, {}, 0x8000));
            out.push_back(with_options(plain, {0, 8, 0, 7, 0, 1, 24, 0, 10, 1, 2}));
            out.push_back(with_options(plain, {0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 3, 0, 0}, 0x8000));
        }
    return out;
}

class Mutator {
public:
    Mutator(std::uint64_t seed, std::vector<Packet> seeds) : random_(seed), seeds_(std::move(seeds)) {}
    void next(Packet& out) {
        out = seeds_[random_() % seeds_.size()];
        switch (random_() % 8) {
        case 0: // random bytes
            out.resize(random_() % 600);
            for (auto& byte : out) byte = static_cast<std::uint8_t>(random_());
            break;
        case 1: out.resize(random_() % (out.size() + 1)); break;
        case 2: // trailing random bytes
            for (auto more = random_() % 64; more > 0; --more) out.push_back(static_cast<std::uint8_t>(random_()));
            break;
        case 3: // wrong counts
            out[4 + random_() % 8] = static_cast<std::uint8_t>(random_());
            break;
        case 4: // pointers and labels of any length
            for (int i = 0; i < 3; ++i) out[12 + random_() % (out.size() - 12)] = static_cast<std::uint8_t>(0xC0 | random_());
            break;
        case 5: // a duplicated part
            out.insert(out.end(), out.begin() + static_cast<std::ptrdiff_t>(random_() % out.size()), out.end());
            break;
        default:
            for (auto flips = 1 + random_() % 6; flips > 0; --flips)
                out[random_() % out.size()] = static_cast<std::uint8_t>(random_());
        }
        if (out.size() >= 2) out[0] = out[1] = 0; // valid queries have ids other than 0
    }

private:
    std::mt19937_64 random_;
    std::vector<Packet> seeds_;
};

} // namespace

int main(int count, char** arguments) {
    if (count != 6) fail("dns_storm PORT bad|good COUNT SEED ORIGIN");
    const bool bad = std::string_view(arguments[2]) == "bad";
    const auto total = std::strtoull(arguments[3], nullptr, 10);
    Mutator mutator(std::strtoull(arguments[4], nullptr, 10), seeds(arguments[5]));
    const auto good = write_query(0, named(std::string("www.") + arguments[5]), type::a);
    const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
    const int room = 8 << 20;
    if (::setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0)
        ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(arguments[1])));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) fail("cannot connect");

    constexpr std::size_t batch = 64, ahead = 3;
    std::vector<Packet> packets(batch);
    std::vector<iovec> pieces(batch);
    std::vector<mmsghdr> messages(batch);
    std::uint64_t sent = 0, answered = 0, wrong = 0;
    std::uint16_t number = 0, last = 0;
    // Reads what is there; a good one's answer has its number, and one address. Waits while too many are on their way.
    const auto receive = [&](std::size_t most_waiting) {
        std::array<std::uint8_t, 65535> in;
        for (;;) {
            const auto waiting = static_cast<std::uint16_t>(number - last);
            if (waiting > most_waiting) {
                pollfd ready{socket, POLLIN, 0};
                if (::poll(&ready, 1, 5000) <= 0) fail(fmt::format("no answer for 5 s, after {} packets", sent));
            }
            const auto size = ::recv(socket, in.data(), in.size(), MSG_DONTWAIT);
            if (size < 0) {
                if (waiting <= most_waiting) return;
                continue;
            }
            const auto id = static_cast<std::uint16_t>(in[0] << 8 | in[1]);
            if (size < 12 || id == 0) continue;
            const auto message = read_message(Bytes(in).first(static_cast<std::size_t>(size)));
            if (!message.ok() || message->answer.size() != 1 || message->answer[0].data.size() != 4) ++wrong;
            ++answered;
            // Answers come in order; one that was lost on its way back is passed over.
            last = id;
            if (last == 0xFFFF) last = 0;
        }
    };
    const auto start = std::chrono::steady_clock::now();
    while (sent < total) {
        const auto many = std::min<std::uint64_t>(batch, total - sent);
        for (std::size_t i = 0; i < many; ++i) {
            if (bad && i + 1 < many) {
                mutator.next(packets[i]);
            } else {
                packets[i] = good;
                if (i + 1 == many) {
                    number = number == 0xFFFE ? 1 : static_cast<std::uint16_t>(number + 1);
                    if (number == 1) last = 0;
                    packets[i][0] = static_cast<std::uint8_t>(number >> 8);
                    packets[i][1] = static_cast<std::uint8_t>(number);
                } else {
                    packets[i][0] = packets[i][1] = 0;
                }
            }
            pieces[i] = {packets[i].data(), packets[i].size()};
            messages[i] = {};
            messages[i].msg_hdr.msg_iov = &pieces[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        for (std::size_t done = 0; done < many;) {
            const int now = ::sendmmsg(socket, &messages[done], static_cast<unsigned>(many - done), 0);
            done += now > 0 ? static_cast<std::size_t>(now) : 1;
        }
        sent += many;
        receive(number <= ahead ? 0 : ahead);
    }
    receive(0);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::cout << fmt::format(R"({{"sent": {}, "seconds": {:.3f}, "good": {}, "wrong": {}}})", sent, took.count(), answered, wrong)
              << std::endl;
    ::close(socket);
    return 0;
}
