// A load generator for HTTP/1.1 servers with little overhead: keep-alive connections on one thread, each with one outstanding
// request. Requests come one after another from a prepared file, so that none is formatted during the measurement.
//
//   bench_api_load PORT CONNECTIONS SECONDS FILE [FIRST]
//
// FILE: raw requests, each after its length as 4 bytes in host byte order. FIRST: the index of the first request.
// Prints one JSON object; `next` is the index for the next run.

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <netinet/tcp.h>
#include <string>
#include <string_view>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& message) {
    fmt::print(stderr, "bench_api_load: {}\n", message);
    std::exit(1);
}

std::vector<std::string> read_requests(const char* path) {
    std::ifstream file(path, std::ios::binary);
    const std::string data((std::istreambuf_iterator<char>(file)), {});
    std::vector<std::string> out;
    for (std::size_t at = 0; at + 4 <= data.size();) {
        std::uint32_t size = 0;
        std::memcpy(&size, data.data() + at, 4);
        out.push_back(data.substr(at + 4, size));
        at += 4 + size;
    }
    if (out.empty()) fail(fmt::format("{} has no requests", path));
    return out;
}

/// The value of a header, or "".
std::string_view header_of(std::string_view head, std::string_view name) {
    for (auto line = head.find("\r\n"); line != std::string_view::npos; line = head.find("\r\n", line + 2)) {
        const auto rest = head.substr(line + 2);
        if (rest.size() <= name.size() || rest[name.size()] != ':' || ::strncasecmp(rest.data(), name.data(), name.size()) != 0)
            continue;
        auto value = rest.substr(name.size() + 1, rest.find("\r\n") - name.size() - 1);
        value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
        return value;
    }
    return {};
}

/// The length of the response at the beginning of `data`; 0 while it is incomplete.
std::size_t response_length(std::string_view data) {
    const auto end = data.find("\r\n\r\n");
    if (end == std::string_view::npos) return 0;
    const auto head = data.substr(0, end + 2);
    auto at = end + 4;
    if (const auto length = header_of(head, "Content-Length"); !length.empty()) {
        std::size_t size = 0;
        std::from_chars(length.data(), length.data() + length.size(), size);
        return data.size() >= at + size ? at + size : 0;
    }
    if (header_of(head, "Transfer-Encoding") != "chunked") return at;
    for (;;) {
        const auto line = data.find("\r\n", at);
        if (line == std::string_view::npos) return 0;
        std::size_t size = 0;
        std::from_chars(data.data() + at, data.data() + line, size, 16);
        at = line + 2 + size + 2;
        if (data.size() < at) return 0;
        if (size == 0) return at;
    }
}

struct Connection {
    int fd = -1;
    std::string received;
    std::size_t sent = 0;
    const std::string* request = nullptr;
    Clock::time_point begun;
};

class Load {
public:
    Load(std::uint16_t port, std::size_t connections, std::vector<std::string> requests, std::size_t first)
        : requests_(std::move(requests)), poll_(::epoll_create1(0)), connections_(connections), next_(first) {
        sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
        for (auto& connection : connections_) {
            connection.fd = ::socket(AF_INET, SOCK_STREAM, 0);
            if (connection.fd < 0 || ::connect(connection.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
                fail(fmt::format("no connection to port {}: {}", port, std::strerror(errno)));
            const int on = 1;
            ::setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            epoll_event event{.events = EPOLLIN, .data = {.ptr = &connection}};
            ::epoll_ctl(poll_, EPOLL_CTL_ADD, connection.fd, &event);
        }
        took_.reserve(4'000'000);
    }

    void run(std::chrono::duration<double> time) {
        const auto begin = Clock::now();
        const auto end = begin + std::chrono::duration_cast<Clock::duration>(time);
        for (auto& connection : connections_) send_next(connection);
        std::vector<epoll_event> events(connections_.size());
        for (;;) {
            const int ready = ::epoll_wait(poll_, events.data(), static_cast<int>(events.size()), 1000);
            const auto now = Clock::now();
            if (now >= end) break;
            for (int i = 0; i < ready; ++i) receive(*static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr));
        }
        report(std::chrono::duration<double>(Clock::now() - begin).count());
    }

private:
    void send_next(Connection& connection) {
        connection.request = &requests_[next_++ % requests_.size()];
        connection.begun = Clock::now();
        // A request is far smaller than the socket's buffer: one send is enough.
        const auto sent = ::send(connection.fd, connection.request->data(), connection.request->size(), MSG_NOSIGNAL);
        if (sent != static_cast<ssize_t>(connection.request->size()))
            fail(fmt::format("cannot send a request: {}", std::strerror(errno)));
    }

    void receive(Connection& connection) {
        const auto got = ::recv(connection.fd, buffer_.data(), buffer_.size(), 0);
        if (got <= 0) fail(fmt::format("the server closed a connection: {}", std::strerror(errno)));
        connection.received.append(buffer_.data(), static_cast<std::size_t>(got));
        const auto size = response_length(connection.received);
        if (size == 0) return;
        took_.push_back(static_cast<std::uint32_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - connection.begun).count() / 100));
        ++statuses_[connection.received.substr(9, 3)];
        if (connection.received[9] != '2' && first_refusal_.empty()) first_refusal_ = connection.received.substr(0, 400);
        connection.received.erase(0, size);
        send_next(connection);
    }

    void report(double seconds) {
        std::sort(took_.begin(), took_.end());
        const auto at = [&](double share) {
            return took_.empty() ? 0.0 : took_[static_cast<std::size_t>(static_cast<double>(took_.size() - 1) * share)] / 1e4;
        };
        std::string statuses;
        for (const auto& [status, count] : statuses_)
            statuses += fmt::format("{}\"{}\":{}", statuses.empty() ? "" : ",", status, count);
        fmt::print("{{\"requests\":{},\"seconds\":{:.3f},\"rate\":{:.1f},\"p50_ms\":{:.3f},\"p99_ms\":{:.3f},\"max_ms\":{:.3f},"
                   "\"next\":{},\"statuses\":{{{}}}}}\n",
                   took_.size(), seconds, static_cast<double>(took_.size()) / seconds, at(0.5), at(0.99), at(1), next_, statuses);
        if (!first_refusal_.empty()) fmt::print(stderr, "{}\n", first_refusal_);
    }

    std::vector<std::string> requests_;
    int poll_;
    std::vector<Connection> connections_;
    std::size_t next_;
    std::vector<std::uint32_t> took_; // in 100 ns
    std::map<std::string, std::uint64_t> statuses_;
    std::string first_refusal_;
    std::string buffer_ = std::string(1 << 18, '\0');
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 5 && argc != 6) fail("usage: bench_api_load PORT CONNECTIONS SECONDS FILE [FIRST]");
    Load load(static_cast<std::uint16_t>(std::stoi(argv[1])), static_cast<std::size_t>(std::stoul(argv[2])), read_requests(argv[4]),
              argc > 5 ? std::stoul(argv[5]) : 0);
    load.run(std::chrono::duration<double>(std::stod(argv[3])));
}
