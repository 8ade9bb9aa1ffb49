// The DNS client and HTTP target of bench/gslb/run, for the names n0.bench.test …:
//   bench_gslb_ask probe DNS_PORT HTTP_PORT CHANGES POOL...
//     answers HTTP probes on 127.1.x.y, the address of pool 250 x + y - 1, with success. After the line "start", probes of the
//     named pools fail and succeed alternately, until there were CHANGES changes; then all succeed, until the end of its input.
//     After each deciding answer it queries a name of the pool until the answer changes, and prints the times from the answer to
//     the probe: {"changes", "p50_ms", "p99_ms", "max_ms", "missed"}.
//   bench_gslb_ask load DNS_PORT NAMES
//     queries all names as fast as they are answered, and compares each answer. Reads lines: "change NAME=ADDRESS ...": both the
//     old and the new answer are right from now on ("-": the name does not exist); "applied": only the new one is right; "end".
//     Each line is answered with a line; the last with {"asked", "answered", "lost", "wrong", "old", "new", "seconds"}, where
//     "old" and "new" count the answers during a change.
#include "dns/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <poll.h>
#include <random>
#include <sstream>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace orrery;
using namespace orrery::dns;
using Steady = std::chrono::steady_clock;
using namespace std::chrono_literals;

[[noreturn]] void fail(const std::string& why) {
    std::cerr << why << '\n';
    std::exit(1);
}

double ms(Steady::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

int ask_at(std::uint16_t port) {
    const int out = ::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int room = 4 << 20;
    ::setsockopt(out, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (::connect(out, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) fail("cannot connect");
    return out;
}

std::vector<std::uint8_t> question(unsigned name) {
    return write_query(0, Name::from_text(fmt::format("n{}.bench.test", name)).value_or(Name()), type::a);
}

constexpr std::uint32_t none = 0, unreadable = 1;

/// The address in the answer to our query; `none` for a name that does not exist.
std::uint32_t address_in(const std::uint8_t* in, std::size_t size, const std::vector<std::uint8_t>& asked) {
    if (size < 12 || (in[2] & 0x84) != 0x84 || (in[2] & 2) != 0) return unreadable;
    if (size < asked.size() || std::memcmp(in + 12, asked.data() + 12, asked.size() - 12) != 0) return unreadable;
    if ((in[3] & 15) == 3 && in[7] == 0) return none;
    if ((in[3] & 15) != 0 || in[6] != 0 || in[7] != 1 || size < asked.size() + 16) return unreadable;
    std::uint32_t out = 0;
    std::memcpy(&out, in + asked.size() + 12, 4);
    return ntohl(out);
}

// --- from a probe to the wire

class Probed {
public:
    Probed(std::uint16_t dns, std::uint16_t http, std::size_t changes, std::vector<unsigned> turning)
        : changes_(changes),
          dns_(ask_at(dns)),
          events_(::epoll_create1(0)),
          listener_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
        const int yes = 1;
        ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(http);
        if (::bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 || ::listen(listener_, 4096) != 0)
            fail("cannot listen");
        watch(listener_);
        watch(0);
        for (const auto pool : turning) turning_[pool].asked = question(pool);
        std::cout << "ready" << std::endl;
    }

    void run() {
        const auto end = Steady::now() + 10min;
        while (!over_) {
            std::array<epoll_event, 64> ready{};
            const int count = ::epoll_wait(events_, ready.data(), ready.size(), pending_ > 0 ? 0 : 1);
            for (int i = 0; i < count; ++i) serve(ready[static_cast<std::size_t>(i)].data.fd);
            if (pending_ > 0) ask();
            if (started_ && !told_ && (took_.size() + missed_ >= changes_ || Steady::now() > end)) tell();
        }
    }

private:
    void tell() {
        told_ = true;
        if (took_.empty()) fail("no answer has changed");
        std::sort(took_.begin(), took_.end());
        std::cout << fmt::format(R"({{"changes": {}, "p50_ms": {:.2f}, "p99_ms": {:.2f}, "max_ms": {:.2f}, "missed": {}}})",
                                 took_.size(), took_[took_.size() / 2], took_[took_.size() * 99 / 100], took_.back(), missed_)
                  << std::endl;
    }

    struct Turning {
        std::vector<std::uint8_t> asked;
        bool well = true, pending = false;
        std::uint32_t before = unreadable;
        Steady::time_point since;
    };

    void watch(int socket) {
        epoll_event event{.events = EPOLLIN, .data = {.fd = socket}};
        ::epoll_ctl(events_, EPOLL_CTL_ADD, socket, &event);
    }

    void serve(int socket) {
        if (socket == 0) {
            std::array<char, 64> word{};
            over_ = ::read(0, word.data(), word.size()) <= 0;
            started_ = true;
            return;
        }
        if (socket == listener_) {
            for (int one = 0; (one = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK)) >= 0;) watch(one);
            return;
        }
        std::array<char, 4096> in{};
        const auto size = ::recv(socket, in.data(), in.size(), 0);
        if (size <= 0) {
            ::close(socket);
            return;
        }
        sockaddr_in here{};
        socklen_t length = sizeof here;
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &length);
        const auto address = ntohl(here.sin_addr.s_addr);
        const bool well = next((address >> 8 & 255) * 250 + (address & 255) - 1);
        const std::string_view text =
            well ? "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" : "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno";
        std::ignore = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    }

    /// The answer to a probe; records its time.
    bool next(unsigned pool) {
        const auto found = turning_.find(pool);
        if (found == turning_.end()) return true;
        auto& one = found->second;
        if (!started_ || one.pending || (told_ && one.well)) return one.well;
        one.well = !one.well;
        one.pending = true;
        one.before = unreadable;
        ++pending_;
        // The current answer is the one before the change: the server does not know of it yet.
        while (one.before == unreadable) one.before = ask_now(pool, one);
        one.since = Steady::now();
        return one.well;
    }

    std::uint32_t ask_now(unsigned pool, const Turning& one) {
        send(pool, one);
        const auto until = Steady::now() + 1s;
        while (Steady::now() < until) {
            std::array<std::uint8_t, 1500> in{};
            const auto size = ::recv(dns_, in.data(), in.size(), 0);
            if (size >= 2 && static_cast<unsigned>(in[0] << 8 | in[1]) == pool)
                return address_in(in.data(), static_cast<std::size_t>(size), one.asked);
        }
        return unreadable;
    }

    void send(unsigned pool, const Turning& one) const {
        auto out = one.asked;
        out[0] = static_cast<std::uint8_t>(pool >> 8);
        out[1] = static_cast<std::uint8_t>(pool);
        std::ignore = ::send(dns_, out.data(), out.size(), 0);
    }

    /// Sends a query for each name that should change, and waits for the answer.
    void ask() {
        for (auto& [pool, one] : turning_) {
            if (!one.pending) continue;
            const auto seen = ask_now(pool, one);
            const auto now = Steady::now();
            if (seen == one.before && now - one.since < 5s) continue;
            one.pending = false;
            --pending_;
            if (seen == one.before || seen == unreadable || seen == none)
                ++missed_;
            else
                took_.push_back(ms(now - one.since));
        }
    }

    std::size_t changes_, missed_ = 0, pending_ = 0;
    bool started_ = false, told_ = false, over_ = false;
    int dns_, events_, listener_;
    std::map<unsigned, Turning> turning_;
    std::vector<double> took_;
};

// --- all answers, while names change

class Load {
public:
    Load(std::uint16_t port, unsigned names) : socket_(ask_at(port)), names_(names), query_options_(1 << 16) {
        for (unsigned i = 0; i < names; ++i) names_[i].asked = question(i);
        for (std::size_t i = 0; i < batch; ++i) {
            in_pieces_[i] = {in_[i].data(), in_[i].size()};
            received_[i].msg_hdr.msg_iov = &in_pieces_[i];
            received_[i].msg_hdr.msg_iovlen = 1;
            sent_[i].msg_hdr.msg_iov = &out_pieces_[i];
            sent_[i].msg_hdr.msg_iovlen = 1;
        }
    }

    void run() {
        std::string line;
        bool more = true;
        auto sweep = Steady::now() + 100ms;
        while (more) {
            if (started_) {
                if (waiting_ + batch <= window) send();
                receive();
                if (const auto now = Steady::now(); now > sweep) {
                    give_up(now);
                    sweep = now + 100ms;
                }
            }
            pollfd in{.fd = 0, .events = POLLIN, .revents = 0};
            if (std::cin.rdbuf()->in_avail() <= 0 && ::poll(&in, 1, started_ ? 0 : 1000) <= 0) continue;
            if (!std::getline(std::cin, line)) break;
            more = command(line);
        }
        const auto until = Steady::now() + 1s;
        while (waiting_ > 0 && Steady::now() < until) receive();
        lost_ += waiting_;
        std::cout << fmt::format(
                         R"({{"asked": {}, "answered": {}, "lost": {}, "wrong": {}, "old": {}, "new": {}, "seconds": {:.2f}}})",
                         sent_in_all_, answered_, lost_, wrong_, old_, new_, ms(Steady::now() - began_) / 1000)
                  << std::endl;
    }

private:
    static constexpr std::size_t batch = 32, window = 256;
    struct Asked {
        unsigned name = 0;
        bool waiting = false;
        Steady::time_point at;
    };
    struct One {
        std::vector<std::uint8_t> asked;
        std::uint32_t now = none;
        bool changing = false;
        std::vector<std::pair<std::uint32_t, Steady::time_point>> before; ///< with the time until which it is right
    };

    bool command(const std::string& line) {
        std::istringstream words(line);
        std::string word;
        words >> word;
        if (word == "end") return false;
        if (word == "start") {
            started_ = true;
            began_ = Steady::now();
        } else if (word == "applied") {
            const auto now = Steady::now();
            for (const auto name : changing_) {
                names_[name].changing = false;
                names_[name].before.back().second = now;
            }
            changing_.clear();
        } else if (word == "change" || word == "is") {
            for (std::string pair; words >> pair;) {
                const auto split = pair.find('=');
                auto& one = names_.at(static_cast<unsigned>(std::atoi(pair.c_str())));
                const auto text = pair.substr(split + 1);
                const auto before = std::exchange(one.now, text == "-" ? none : ntohl(::inet_addr(text.c_str())));
                if (word == "is") continue;
                one.changing = true;
                // An answer can be in flight for longer than the next change takes, but not for longer than all of these.
                if (one.before.size() == 8) one.before.erase(one.before.begin());
                one.before.emplace_back(before, Steady::time_point::max());
                changing_.push_back(static_cast<unsigned>(std::atoi(pair.c_str())));
            }
        } else {
            fail("unknown command \"" + line + "\"");
        }
        std::cout << "ok" << std::endl;
        return true;
    }

    /// Half of the queries are for names that change.
    unsigned select_candidates() {
        if (!changing_.empty() && random_() % 2 == 0) return changing_[random_() % changing_.size()];
        return static_cast<unsigned>(random_() % names_.size());
    }

    void send() {
        const auto now = Steady::now();
        std::size_t many = 0;
        for (; many < batch; ++many) {
            const auto id = next_++;
            if (query_options_[id].waiting) break; // still outstanding after all the others
            const auto name = select_candidates();
            query_options_[id] = {name, true, now};
            out_[many] = names_[name].asked;
            out_[many][0] = static_cast<std::uint8_t>(id >> 8);
            out_[many][1] = static_cast<std::uint8_t>(id);
            out_pieces_[many] = {out_[many].data(), out_[many].size()};
        }
        for (std::size_t done = 0; done < many;) {
            const int went = ::sendmmsg(socket_, &sent_[done], static_cast<unsigned>(many - done), 0);
            if (went > 0) done += static_cast<std::size_t>(went);
        }
        waiting_ += many;
        sent_in_all_ += many;
    }

    void receive() {
        const int count = ::recvmmsg(socket_, received_.data(), batch, MSG_DONTWAIT, nullptr);
        for (int i = 0; i < count; ++i) {
            const auto& in = in_[static_cast<std::size_t>(i)];
            auto& asked = query_options_[static_cast<std::size_t>(in[0] << 8 | in[1])];
            if (!asked.waiting) {
                ++wrong_; // no such query, or it was counted as lost
                continue;
            }
            asked.waiting = false;
            --waiting_;
            ++answered_;
            judge(asked, address_in(in.data(), received_[static_cast<std::size_t>(i)].msg_len, names_[asked.name].asked));
        }
    }

    void judge(const Asked& asked, std::uint32_t seen) {
        const auto& one = names_[asked.name];
        if (seen == one.now) {
            if (one.changing) ++new_;
            return;
        }
        for (const auto& [address, until] : one.before)
            if (seen == address && asked.at <= until) {
                ++old_;
                return;
            }
        if (++wrong_ <= 5) std::cerr << fmt::format("n{}: {:x} where {:x} is right\n", asked.name, seen, one.now);
    }

    void give_up(Steady::time_point now) {
        for (auto& one : query_options_)
            if (one.waiting && now - one.at > 2s) {
                one.waiting = false;
                --waiting_;
                ++lost_;
            }
    }

    int socket_;
    std::vector<One> names_;
    std::vector<Asked> query_options_;
    std::vector<unsigned> changing_;
    std::mt19937 random_{1};
    std::uint16_t next_ = 0;
    bool started_ = false;
    Steady::time_point began_;
    std::size_t waiting_ = 0, sent_in_all_ = 0, answered_ = 0, lost_ = 0, wrong_ = 0, old_ = 0, new_ = 0;
    std::array<std::array<std::uint8_t, 1500>, batch> in_{};
    std::array<std::vector<std::uint8_t>, batch> out_;
    std::array<iovec, batch> in_pieces_{}, out_pieces_{};
    std::array<mmsghdr, batch> received_{}, sent_{};
};

} // namespace

int main(int count, char** arguments) {
    const std::string_view mode = count > 1 ? arguments[1] : "";
    const auto number = [&](int at) { return static_cast<unsigned>(std::strtoul(arguments[at], nullptr, 10)); };
    if (mode == "probe" && count > 5) {
        std::vector<unsigned> pools;
        for (int i = 5; i < count; ++i) pools.push_back(number(i));
        Probed(static_cast<std::uint16_t>(number(2)), static_cast<std::uint16_t>(number(3)), number(4), std::move(pools)).run();
    } else if (mode == "load" && count == 4) {
        Load(static_cast<std::uint16_t>(number(2)), number(3)).run();
    } else {
        fail("usage: bench_gslb_ask probe|load ...; see the head of ask.cpp");
    }
    return 0;
}
