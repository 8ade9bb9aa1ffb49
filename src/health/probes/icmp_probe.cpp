#include "health/probes/icmp_probe.h"

#include "health/probes/datagram.h"
#include "health/probes/find_host.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <span>
#include <sys/socket.h>
#include <unistd.h>

namespace orrery::health {

namespace {

constexpr auto echo_token = asio::as_tuple(asio::use_awaitable);

class IcmpProbe final : public Probe {
public:
    explicit IcmpProbe(IcmpProbeOptions options) : options_(std::move(options)) {}
    std::string identity() const override { return "icmp " + options_.host; }
    std::string host() const override { return options_.host; }
    asio::awaitable<Observation> run(Context ctx) const override {
        const auto what = "ICMP echo " + options_.host;
        auto seen = co_await within_deadline(ctx, echo(options_.host, what, ctx, options_.outbound));
        if (seen.ok()) co_return std::move(*seen);
        co_return Observation{.outcome = Outcome::timeout_read, .text = what + ": no answer in time"};
    }

private:
    static std::uint16_t checksum(std::span<const std::uint8_t> bytes) {
        std::uint32_t sum = 0;
        for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) sum += static_cast<std::uint32_t>(bytes[i] << 8 | bytes[i + 1]);
        while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
        return static_cast<std::uint16_t>(~sum);
    }

    static Task<Observation> echo(std::string host, std::string what, Context ctx, net::OutboundRulesPtr outbound) {
        co_await asio::this_coro::throw_if_cancelled(false);
        const auto begin = real_clock().steady();
        const auto deadline = ctx.deadline().value_or(begin + std::chrono::seconds(10));
        auto found = co_await find_host(host, 0, what, std::move(outbound));
        if (!found.endpoint) co_return std::move(found.error);
        const bool six = found.endpoint->address().is_v6();
        const int family = six ? AF_INET6 : AF_INET,
                  protocol = six ? static_cast<int>(IPPROTO_ICMPV6) : static_cast<int>(IPPROTO_ICMP);
        int fd = ::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
        if (fd < 0 && (errno == EACCES || errno == EPERM || errno == EPROTONOSUPPORT))
            fd = ::socket(family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
        if (fd < 0)
            co_return Observation{
                .outcome = Outcome::local_error,
                .text =
                    fmt::format("{}: this server may not send echo requests ({}): extend net.ipv4.ping_group_range to its group, "
                                "or give it CAP_NET_RAW",
                                what, std::strerror(errno))};
        asio::posix::stream_descriptor descriptor(co_await asio::this_coro::executor, fd);
        if (::connect(fd, found.endpoint->data(), static_cast<socklen_t>(found.endpoint->size())) != 0)
            co_return Observation{.outcome = outcome_of_datagram(errno), .text = fmt::format("{}: {}", what, std::strerror(errno))};
        std::array<std::uint8_t, 24> packet{};
        packet[0] = six ? 128 : 8;
        const std::array<std::uint64_t, 2> nonce{random_number(), random_number()};
        std::memcpy(packet.data() + 4, nonce.data(), 2); // the id; the system overwrites it on unprivileged sockets
        std::memcpy(packet.data() + 8, nonce.data(), 16);
        if (!six) {
            const auto sum = checksum(packet);
            packet[2] = static_cast<std::uint8_t>(sum >> 8);
            packet[3] = static_cast<std::uint8_t>(sum & 0xff);
        }
        for (int attempt = 1; attempt <= datagram_attempts; ++attempt) {
            if (::send(fd, packet.data(), packet.size(), MSG_NOSIGNAL) < 0 && errno != EAGAIN)
                co_return Observation{.outcome = outcome_of_datagram(errno),
                                      .text = fmt::format("{}: {}", what, std::strerror(errno))};
            auto seen = co_await within_deadline(ctx.with_deadline(begin + (deadline - begin) / datagram_attempts * attempt),
                                                 reply(descriptor, nonce, six, what));
            if (!seen.ok()) continue;
            seen->first_byte = std::chrono::duration_cast<std::chrono::microseconds>(real_clock().steady() - begin);
            co_return std::move(*seen);
        }
        co_return Observation{.outcome = Outcome::timeout_read, .text = what + ": no answer in time"};
    }

    /// Waits for the reply with the nonce of the request, and ignores others.
    static Task<Observation> reply(asio::posix::stream_descriptor& descriptor, std::array<std::uint64_t, 2> nonce, bool six,
                                   std::string what) {
        co_await asio::this_coro::throw_if_cancelled(false);
        for (;;) {
            auto [error] = co_await descriptor.async_wait(asio::posix::descriptor_base::wait_read, echo_token);
            if (error) co_return Error{Code::timeout, "no answer in time"};
            std::array<std::uint8_t, 2048> buffer;
            const auto count = ::recv(descriptor.native_handle(), buffer.data(), buffer.size(), 0);
            if (count < 0) {
                if (errno == EAGAIN || errno == EINTR) continue;
                co_return Observation{.outcome = outcome_of_datagram(errno),
                                      .text = fmt::format("{}: {}", what, std::strerror(errno))};
            }
            std::span<const std::uint8_t> bytes(buffer.data(), static_cast<std::size_t>(count));
            // A raw socket also delivers the IP header.
            if (!six && bytes.size() >= 20 && bytes[0] >> 4 == 4)
                bytes = bytes.subspan(std::min<std::size_t>(bytes.size(), (bytes[0] & 15U) * 4U));
            if (bytes.size() < 24 || bytes[0] != (six ? 129 : 0) || std::memcmp(bytes.data() + 8, nonce.data(), 16) != 0) continue;
            co_return Observation{.outcome = Outcome::ok, .text = what + ": Success"};
        }
    }
    IcmpProbeOptions options_;
};

} // namespace

ProbePtr icmp_probe(IcmpProbeOptions options) { return std::make_shared<IcmpProbe>(std::move(options)); }

} // namespace orrery::health
