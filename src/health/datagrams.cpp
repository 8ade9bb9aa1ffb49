#include "dns/message.h"
#include "health/more_probes.h"
#include "net/wire.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

namespace orrery::health {

namespace {

using Udp = asio::ip::udp;
constexpr auto datagram_token = asio::as_tuple(asio::use_awaitable);
constexpr int tries = 3;

std::uint64_t any_number() {
    static thread_local std::mt19937_64 random{std::random_device{}()};
    return random();
}

struct Found {
    Observation trouble; ///< where there is no endpoint
    std::optional<Udp::endpoint> endpoint;
};

asio::awaitable<Found> find_host(std::string host, std::uint16_t port, std::string what) {
    co_await asio::this_coro::throw_if_cancelled(false);
    Found out;
    boost::system::error_code not_an_address;
    if (const auto address = asio::ip::make_address(host, not_an_address); !not_an_address) {
        out.endpoint.emplace(address, port);
        co_return out;
    }
    Udp::resolver resolver(co_await asio::this_coro::executor);
    auto [error, results] =
        co_await resolver.async_resolve(host, std::to_string(port), Udp::resolver::numeric_service, datagram_token);
    if (!error && !results.empty()) {
        out.endpoint = results.begin()->endpoint();
        co_return out;
    }
    const bool none = error == asio::error::host_not_found;
    out.trouble = {.outcome = none ? Outcome::dns_error : Outcome::local_error,
                   .text = fmt::format("{}: the name {} {}", what, host, none ? "was not found" : "could not be resolved")};
    co_return out;
}

Outcome outcome_of_datagram(int error) {
    switch (error) {
    case ECONNREFUSED: return Outcome::refused;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case EADDRNOTAVAIL:
    case ENETUNREACH:
    case EACCES:
    case EPERM: return Outcome::local_error;
    default: return Outcome::unreachable;
    }
}

/// Judges an answer: true if it is the one that is waited for; then the observation is filled.
using Judge = std::function<bool(std::string_view answer, Observation& seen)>;

Task<Observation> receive(std::shared_ptr<Udp::socket> socket, Judge judge, std::string what) {
    co_await asio::this_coro::throw_if_cancelled(false);
    std::string buffer(65536, '\0');
    for (;;) {
        auto [error, size] = co_await socket->async_receive(asio::buffer(buffer), datagram_token);
        if (error == asio::error::operation_aborted) co_return Error{Code::timeout, "no answer in time"};
        Observation seen;
        if (error) {
            seen.outcome = outcome_of_datagram(error.value());
            seen.text = fmt::format("{}: {}", what, net::in_words(error));
            co_return seen;
        }
        if (judge(std::string_view(buffer).substr(0, size), seen)) co_return seen;
    }
}

/// Sends, and sends again, until an answer is judged or the time is over.
asio::awaitable<Observation> ask_by_datagram(Context ctx, std::string host, std::uint16_t port, std::string request, Judge judge,
                                             std::string what) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto begin = real_clock().steady();
    const auto deadline = ctx.deadline().value_or(begin + std::chrono::seconds(10));
    auto found = co_await find_host(std::move(host), port, what);
    if (!found.endpoint) co_return std::move(found.trouble);
    auto socket = std::make_shared<Udp::socket>(co_await asio::this_coro::executor);
    boost::system::error_code error;
    socket->open(found.endpoint->protocol(), error);
    if (!error) socket->connect(*found.endpoint, error);
    for (int attempt = 1; !error && attempt <= tries; ++attempt) {
        socket->send(asio::buffer(request), 0, error);
        if (error) break;
        const auto until = begin + (deadline - begin) / tries * attempt;
        auto seen = co_await within_deadline(ctx.with_deadline(until), receive(socket, judge, what));
        if (seen.ok()) {
            seen->first_byte = std::chrono::duration_cast<std::chrono::microseconds>(real_clock().steady() - begin);
            co_return std::move(*seen);
        }
    }
    if (error)
        co_return Observation{.outcome = outcome_of_datagram(error.value()),
                              .text = fmt::format("{}: {}", what, net::in_words(error))};
    co_return Observation{.outcome = Outcome::timeout_read, .text = what + ": no answer in time"};
}

// --- UDP ------------------------------------------------------------------------------------------------------------

class UdpProbe final : public Probe {
public:
    explicit UdpProbe(UdpLook look) : look_(std::move(look)) {}
    std::string identity() const override {
        return fmt::format("udp {} {} {}:{} {}", look_.host, look_.port, look_.send.size(), look_.send, look_.expect.identity());
    }
    std::string host() const override { return look_.host; }
    asio::awaitable<Observation> look(Context ctx) const override {
        auto what = fmt::format("UDP {}:{}", look_.host, look_.port);
        Judge judge = [expect = look_.expect, what](std::string_view answer, Observation& seen) {
            const bool good = expect.is_in(answer);
            seen.outcome = good ? Outcome::ok : Outcome::bad_body;
            seen.text = good ? fmt::format("{}: Success, {} bytes came back", what, answer.size())
                             : fmt::format("{}: {} is not in the answer", what, expect.words());
            return true;
        };
        return ask_by_datagram(std::move(ctx), look_.host, look_.port, look_.send, std::move(judge), std::move(what));
    }

private:
    UdpLook look_;
};

// --- DNS ------------------------------------------------------------------------------------------------------------

const std::map<std::string, std::uint16_t, std::less<>> known_types{
    {"A", dns::type::a},   {"AAAA", dns::type::aaaa}, {"CNAME", dns::type::cname}, {"MX", dns::type::mx},
    {"NS", dns::type::ns}, {"SOA", dns::type::soa},   {"SRV", dns::type::srv},     {"TXT", dns::type::txt}};

class DnsProbe final : public Probe {
public:
    DnsProbe(DnsLook look, dns::Name name, std::uint16_t type) : look_(std::move(look)), name_(name), type_(type) {}
    std::string identity() const override {
        return fmt::format("dns {} {} {} {} {} {} {}", look_.host, look_.port, look_.name, look_.type, look_.rcode,
                           look_.authoritative, look_.contains);
    }
    std::string host() const override { return look_.host; }
    asio::awaitable<Observation> look(Context ctx) const override {
        auto what = fmt::format("DNS {} {} at {}:{}", look_.name, look_.type, look_.host, look_.port);
        const auto id = static_cast<std::uint16_t>(any_number());
        const auto query = dns::write_query(id, name_, type_, 1232);
        Judge judge = [probe = *this, id, what](std::string_view answer, Observation& seen) {
            const auto message = dns::read_message(dns::Bytes(reinterpret_cast<const std::uint8_t*>(answer.data()), answer.size()));
            if (!message.ok()) {
                seen = {.outcome = Outcome::protocol, .text = what + ": the answer is no DNS message"};
                return true;
            }
            if (message->id != id || !message->response) return false; // somebody else's, or a late one
            seen = probe.judge(*message, what);
            return true;
        };
        return ask_by_datagram(std::move(ctx), look_.host, look_.port, std::string(query.begin(), query.end()), std::move(judge),
                               std::move(what));
    }

private:
    Observation judge(const dns::Message& message, const std::string& what) const {
        const auto rcode = static_cast<std::uint16_t>(message.rcode);
        if (rcode != look_.rcode)
            return {.outcome = Outcome::bad_status, .text = fmt::format("{}: rcode {}, wanted {}", what, rcode, look_.rcode)};
        if (look_.authoritative && !message.authoritative)
            return {.outcome = Outcome::bad_status, .text = what + ": the answer is not authoritative"};
        std::string shown;
        bool found = look_.contains.empty();
        for (const auto& record : message.answer) {
            const auto text = record.to_text();
            if (!found && text.find(look_.contains) != std::string::npos) found = true;
            if (shown.size() < 1024) shown += (shown.empty() ? "" : ", ") + text;
        }
        if (!found)
            return {.outcome = Outcome::bad_body,
                    .text = fmt::format("{}: \"{}\" is in no record of: {}", what, look_.contains, shown)};
        return {.outcome = Outcome::ok,
                .text = fmt::format("{}: rcode {}, {} records {}", what, rcode, message.answer.size(), shown)};
    }
    DnsLook look_;
    dns::Name name_;
    std::uint16_t type_;
};

// --- ICMP -----------------------------------------------------------------------------------------------------------

class IcmpProbe final : public Probe {
public:
    explicit IcmpProbe(IcmpLook look) : look_(std::move(look)) {}
    std::string identity() const override { return "icmp " + look_.host; }
    std::string host() const override { return look_.host; }
    asio::awaitable<Observation> look(Context ctx) const override {
        const auto what = "ICMP echo " + look_.host;
        auto seen = co_await within_deadline(ctx, echo(look_.host, what, ctx));
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

    static Task<Observation> echo(std::string host, std::string what, Context ctx) {
        co_await asio::this_coro::throw_if_cancelled(false);
        const auto begin = real_clock().steady();
        const auto deadline = ctx.deadline().value_or(begin + std::chrono::seconds(10));
        auto found = co_await find_host(host, 0, what);
        if (!found.endpoint) co_return std::move(found.trouble);
        const bool six = found.endpoint->address().is_v6();
        const int family = six ? AF_INET6 : AF_INET,
                  protocol = six ? static_cast<int>(IPPROTO_ICMPV6) : static_cast<int>(IPPROTO_ICMP);
        int fd = ::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
        if (fd < 0 && (errno == EACCES || errno == EPERM || errno == EPROTONOSUPPORT))
            fd = ::socket(family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
        if (fd < 0)
            co_return Observation{
                .outcome = Outcome::local_error,
                .text = fmt::format("{}: this server may not send echoes ({}): widen net.ipv4.ping_group_range to its group, "
                                    "or give it CAP_NET_RAW",
                                    what, std::strerror(errno))};
        asio::posix::stream_descriptor descriptor(co_await asio::this_coro::executor, fd);
        if (::connect(fd, found.endpoint->data(), static_cast<socklen_t>(found.endpoint->size())) != 0)
            co_return Observation{.outcome = outcome_of_datagram(errno), .text = fmt::format("{}: {}", what, std::strerror(errno))};
        std::array<std::uint8_t, 24> packet{};
        packet[0] = six ? 128 : 8;
        const std::array<std::uint64_t, 2> nonce{any_number(), any_number()};
        std::memcpy(packet.data() + 4, nonce.data(), 2); // the id; the system writes its own where it hands out sockets for this
        std::memcpy(packet.data() + 8, nonce.data(), 16);
        if (!six) {
            const auto sum = checksum(packet);
            packet[2] = static_cast<std::uint8_t>(sum >> 8);
            packet[3] = static_cast<std::uint8_t>(sum & 0xff);
        }
        for (int attempt = 1; attempt <= tries; ++attempt) {
            if (::send(fd, packet.data(), packet.size(), MSG_NOSIGNAL) < 0 && errno != EAGAIN)
                co_return Observation{.outcome = outcome_of_datagram(errno),
                                      .text = fmt::format("{}: {}", what, std::strerror(errno))};
            auto seen = co_await within_deadline(ctx.with_deadline(begin + (deadline - begin) / tries * attempt),
                                                 reply(descriptor, nonce, six, what));
            if (!seen.ok()) continue;
            seen->first_byte = std::chrono::duration_cast<std::chrono::microseconds>(real_clock().steady() - begin);
            co_return std::move(*seen);
        }
        co_return Observation{.outcome = Outcome::timeout_read, .text = what + ": no answer in time"};
    }

    /// Waits for the reply that carries our nonce; what else comes is passed over.
    static Task<Observation> reply(asio::posix::stream_descriptor& descriptor, std::array<std::uint64_t, 2> nonce, bool six,
                                   std::string what) {
        co_await asio::this_coro::throw_if_cancelled(false);
        for (;;) {
            auto [error] = co_await descriptor.async_wait(asio::posix::descriptor_base::wait_read, datagram_token);
            if (error) co_return Error{Code::timeout, "no answer in time"};
            std::array<std::uint8_t, 2048> buffer;
            const auto count = ::recv(descriptor.native_handle(), buffer.data(), buffer.size(), 0);
            if (count < 0) {
                if (errno == EAGAIN || errno == EINTR) continue;
                co_return Observation{.outcome = outcome_of_datagram(errno),
                                      .text = fmt::format("{}: {}", what, std::strerror(errno))};
            }
            std::span<const std::uint8_t> bytes(buffer.data(), static_cast<std::size_t>(count));
            // A raw socket brings the IP head along.
            if (!six && bytes.size() >= 20 && bytes[0] >> 4 == 4)
                bytes = bytes.subspan(std::min<std::size_t>(bytes.size(), (bytes[0] & 15U) * 4U));
            if (bytes.size() < 24 || bytes[0] != (six ? 129 : 0) || std::memcmp(bytes.data() + 8, nonce.data(), 16) != 0) continue;
            co_return Observation{.outcome = Outcome::ok, .text = what + ": Success"};
        }
    }
    IcmpLook look_;
};

} // namespace

ProbePtr udp_probe(UdpLook look) { return std::make_shared<UdpProbe>(std::move(look)); }
ProbePtr icmp_probe(IcmpLook look) { return std::make_shared<IcmpProbe>(std::move(look)); }

Result<ProbePtr> dns_probe(DnsLook look) {
    TRY(auto name, dns::Name::from_text(look.name));
    const auto type = known_types.find(look.type);
    if (type == known_types.end())
        return Error{Code::invalid, fmt::format("type \"{}\" cannot be asked for", look.type),
                     "use A, AAAA, CNAME, MX, NS, SOA, SRV or TXT"};
    return ProbePtr(std::make_shared<DnsProbe>(std::move(look), name, type->second));
}

} // namespace orrery::health
