#pragma once

#include "core/clock.h"
#include "dns/rate_limit.h"
#include "dns/server.h"

#include <cstdint>
#include <memory>

namespace orrery::dns {

/// A Responder whose UDP responses are limited (RateLimit). The Authority limits its own responses, which costs less because it
/// knows the kind of a response before it is written; this is for every other Responder.
class RateLimitedResponder final : public Responder {
public:
    /// `clock` must outlive this.
    RateLimitedResponder(std::shared_ptr<const Responder> responder, RateLimit::Options options, const Clock& clock);

    std::size_t respond(Bytes query, const Client& client, std::span<std::uint8_t> out) const noexcept override;
    void prefetch(std::span<const Bytes> queries) const noexcept override { responder_->prefetch(queries); }
    std::unique_ptr<Transfer> transfer(Bytes query, const Client& client) const noexcept override {
        return responder_->transfer(query, client);
    }

    struct Counts {
        std::uint64_t dropped = 0;   ///< queries without a response
        std::uint64_t truncated = 0; ///< queries answered with TC, so that a real client asks again over TCP
    };
    Counts counts() const;

private:
    std::shared_ptr<const Responder> responder_;
    mutable RateLimit limit_;
    const Clock& clock_;
    mutable std::atomic<std::uint64_t> checked_{0}, dropped_{0}, truncated_{0};
};

} // namespace orrery::dns
