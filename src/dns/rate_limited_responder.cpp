#include "dns/rate_limited_responder.h"

#include "core/digest.h"
#include "dns/message.h"

#include <utility>

namespace orrery::dns {

namespace {

constexpr std::size_t header_size = 12;

std::uint16_t number_at(std::span<const std::uint8_t> message, std::size_t at) {
    return static_cast<std::uint16_t>(message[at] << 8U | message[at + 1]);
}

RateLimit::Kind kind_of(std::span<const std::uint8_t> response) {
    const auto rcode = static_cast<Rcode>(response[3] & 0x0fU);
    if (rcode == Rcode::nxdomain) return RateLimit::Kind::nxdomain;
    if (rcode != Rcode::noerror) return RateLimit::Kind::error;
    return number_at(response, 6) == 0 ? RateLimit::Kind::nodata : RateLimit::Kind::positive;
}

/// Leaves the header with TC set, and the question where there is exactly one that can be skipped. Returns the new size.
std::size_t truncate_response(std::span<std::uint8_t> response) {
    std::size_t end = header_size;
    if (number_at(response, 4) == 1) {
        while (end < response.size() && response[end] != 0 && response[end] < 64) end += response[end] + 1U;
        end += 1 + 4; // the root label, type and class
        if (end > response.size()) end = header_size;
    }
    response[2] |= 0x02U;
    response[4] = 0;
    response[5] = end == header_size ? 0 : 1;
    for (std::size_t at = 6; at < header_size; ++at) response[at] = 0;
    return end;
}

} // namespace

RateLimitedResponder::RateLimitedResponder(std::shared_ptr<const Responder> responder, RateLimit::Options options,
                                           const Clock& clock)
    : responder_(std::move(responder)), limit_(std::move(options)), clock_(clock) {}

std::size_t RateLimitedResponder::respond(Bytes query, const Client& client, std::span<std::uint8_t> out) const noexcept {
    const auto size = responder_->respond(query, client, out);
    if (size < header_size || client.transport != Client::Transport::udp || !limit_.is_enabled()) return size;
    const auto response = out.first(size);
    const auto random = mix_bits(checked_.fetch_add(1, std::memory_order_relaxed));
    switch (limit_.check(client, kind_of(response), clock_.steady(), random)) {
    case RateLimit::Action::answer: return size;
    case RateLimit::Action::drop: dropped_.fetch_add(1, std::memory_order_relaxed); return 0;
    case RateLimit::Action::truncate: truncated_.fetch_add(1, std::memory_order_relaxed); return truncate_response(response);
    }
    return size;
}

RateLimitedResponder::Counts RateLimitedResponder::counts() const {
    return {dropped_.load(std::memory_order_relaxed), truncated_.load(std::memory_order_relaxed)};
}

} // namespace orrery::dns
