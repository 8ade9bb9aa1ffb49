// A load generator for name servers: bench_dns_load PORT NAMES SECONDS RATE SOCKETS
// Sends queries for the A records of random names of bench.test, in batches, from SOCKETS sockets: RATE queries per second or, with
// RATE 0, as many as are answered, with 256 outstanding. Prints {"answered": N, "lost": N, "wrong": N, "seconds": S, "p50_us": U,
// "p99_us": U}; the last two with a rate only. The client has to be faster than the server: queries of one size are sent as one
// message (GSO), and each is built in the send buffer, to save the cache that both share.
#include "dns/udp_batch_sender.h"
#include "names.h"

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <poll.h>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace {

using Steady = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& why) {
    std::cerr << why << '\n';
    std::exit(1);
}

constexpr std::size_t most_at_once = 32, window = 256;

/// A query for the A records of one name of bench.test.
class Question {
public:
    void be(std::uint16_t id, std::uint32_t number) {
        bytes_ = {static_cast<std::uint8_t>(id >> 8), static_cast<std::uint8_t>(id), 0, 0, 0, 1};
        auto* const label = &bytes_[13];
        auto at = static_cast<std::size_t>(bench_label(label, number) - bytes_.data());
        bytes_[12] = static_cast<std::uint8_t>(at - 13);
        static constexpr std::string_view rest("\5bench\4test\0\0\1\0\1", 16);
        std::memcpy(&bytes_[at], rest.data(), rest.size());
        size_ = at + rest.size();
    }
    std::span<std::uint8_t> bytes() { return std::span(bytes_).first(size_); }

private:
    std::array<std::uint8_t, 48> bytes_{};
    std::size_t size_ = 0;
};

/// One client: a socket and its outstanding queries.
class Asking {
public:
    Asking(std::uint16_t port, std::uint32_t names, unsigned seed)
        : names_(names), random_(seed), socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0)), sender_(socket_) {
        auto& to = reinterpret_cast<sockaddr_in&>(to_);
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) fail("cannot connect");
        there_.msg_name = &to_;
        there_.msg_namelen = sizeof to;
        const int buffer = 4 << 20; // large, so that losses are those of the server
        ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
        for (std::size_t i = 0; i < most_at_once; ++i) {
            in_pieces_[i] = {in_[i].data(), in_[i].size()};
            received_[i].msg_hdr.msg_iov = &in_pieces_[i];
            received_[i].msg_hdr.msg_iovlen = 1;
        }
    }

    void keep_times(std::vector<float>& where) {
        times_ = &where;
        sent_at_.resize(65536);
    }

    void send(std::size_t many) {
        const auto now = Steady::now();
        for (std::size_t i = 0; i < many; ++i) {
            const auto id = next_++;
            out_[i].be(id, static_cast<std::uint32_t>(random_() % names_));
            sender_.add(there_, out_[i].bytes());
            if (times_ != nullptr) sent_at_[id] = now;
        }
        if (sender_.send() != many) fail("cannot send");
        waiting += many;
    }

    /// Returns whether there was an answer.
    bool receive() {
        const int count = ::recvmmsg(socket_, received_.data(), most_at_once, MSG_DONTWAIT, nullptr);
        if (count <= 0) return false;
        last_heard = Steady::now();
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
            const auto& in = in_[i];
            const auto id = static_cast<std::uint16_t>(in[0] << 8 | in[1]);
            // An answer, with NOERROR and one record.
            if (received_[i].msg_len < 28 || (in[2] & 0x80) == 0 || (in[3] & 15) != 0 || in[7] == 0) ++wrong;
            ++answered;
            if (waiting > 0) --waiting;
            if (times_ != nullptr) times_->push_back(std::chrono::duration<float, std::micro>(last_heard - sent_at_[id]).count());
        }
        return true;
    }

    std::uint64_t answered = 0, lost = 0, wrong = 0;
    std::size_t waiting = 0;
    Steady::time_point last_heard = Steady::now();
    int fd() const { return socket_; }

private:
    std::uint32_t names_;
    std::minstd_rand random_;
    int socket_;
    std::uint16_t next_ = 0;
    std::vector<float>* times_ = nullptr;
    std::vector<Steady::time_point> sent_at_; ///< by id
    std::array<std::array<std::uint8_t, 1280>, most_at_once> in_{};
    std::array<Question, most_at_once> out_;
    sockaddr_storage to_{};
    msghdr there_{};
    orrery::dns::UdpBatchSender sender_;
    std::array<iovec, most_at_once> in_pieces_{};
    std::array<mmsghdr, most_at_once> received_{};
};

} // namespace

int main(int count, char** arguments) {
    if (count != 6) fail("bench_dns_load PORT NAMES SECONDS RATE SOCKETS");
    const auto port = static_cast<std::uint16_t>(std::atoi(arguments[1]));
    const auto names = static_cast<std::uint32_t>(std::atoi(arguments[2]));
    const std::chrono::duration<double> length(std::atof(arguments[3]));
    const auto rate = std::atof(arguments[4]);
    const auto sockets = static_cast<std::size_t>(std::clamp(std::atoi(arguments[5]), 1, static_cast<int>(window)));
    const auto batch = std::min(most_at_once, window / sockets);
    std::vector<std::unique_ptr<Asking>> all;
    std::vector<pollfd> ready;
    std::vector<float> times(static_cast<std::size_t>(2 * rate * length.count())); // allocates all memory before the measurement
    times.clear();
    for (unsigned i = 0; i < sockets; ++i) {
        all.push_back(std::make_unique<Asking>(port, names, i + 1));
        if (rate > 0) all.back()->keep_times(times);
        ready.push_back({all.back()->fd(), POLLIN, 0});
    }
    const auto start = Steady::now();
    std::uint64_t sent = 0;
    std::size_t turn = 0;
    while (Steady::now() - start < length) {
        bool heard = false;
        for (auto& one : all) {
            while (one->receive()) heard = true;
            if (one->waiting > 0 && Steady::now() - one->last_heard > std::chrono::seconds(1)) {
                one->lost += std::exchange(one->waiting, 0);
                one->last_heard = Steady::now();
            }
            if (rate == 0 && one->waiting + batch <= window / sockets) one->send(batch);
        }
        if (rate > 0) {
            const auto due = static_cast<std::uint64_t>(std::chrono::duration<double>(Steady::now() - start).count() * rate);
            for (; sent < due; ++sent) all[turn++ % all.size()]->send(1);
        } else if (!heard) {
            ::poll(ready.data(), ready.size(), 100);
        }
    }
    const auto patience = Steady::now() + std::chrono::milliseconds(500);
    std::uint64_t answered = 0, lost = 0, wrong = 0;
    const std::chrono::duration<double> took = Steady::now() - start;
    for (auto& one : all) {
        while (one->waiting > 0 && Steady::now() < patience) one->receive();
        answered += one->answered;
        lost += one->lost + one->waiting;
        wrong += one->wrong;
    }
    if (rate > 0) times.insert(times.end(), lost, 1e6F); // lost queries count as the slowest
    std::sort(times.begin(), times.end());
    const auto at = [&](std::size_t percent) { return times.empty() ? 0.0F : times[times.size() * percent / 100]; };
    std::cout << fmt::format(
                     R"({{"answered": {}, "lost": {}, "wrong": {}, "seconds": {:.3f}, "p50_us": {:.1f}, "p99_us": {:.1f}}})",
                     answered, lost, wrong, took.count(), at(50), at(99))
              << std::endl;
    return 0;
}
