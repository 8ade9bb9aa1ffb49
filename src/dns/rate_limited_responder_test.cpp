#include "dns/rate_limited_responder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace orrery::dns {

namespace {

/// Answers every query with its header and question, one answer record and nothing else.
class OneRecord final : public Responder {
public:
    std::size_t respond(Bytes query, const Client&, std::span<std::uint8_t> out) const noexcept override {
        std::copy(query.begin(), query.end(), out.begin());
        out[2] |= 0x80U;
        out[7] = 1;
        const std::uint8_t record[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 192, 0, 2, 1};
        std::copy(std::begin(record), std::end(record), out.begin() + static_cast<std::ptrdiff_t>(query.size()));
        return query.size() + sizeof(record);
    }
};

const std::vector<std::uint8_t> web_query{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 'w', 'e', 'b', 0, 0, 1, 0, 1};

Client client_at(Client::Transport transport) {
    Client out;
    out.transport = transport;
    out.address = {192, 0, 2, 7};
    return out;
}

} // namespace

TEST(RateLimitedResponder, DropsOrTruncatesWhatIsOverTheLimit) {
    VirtualClock clock;
    const RateLimitedResponder limited(std::make_shared<OneRecord>(), {.per_second = 10, .burst = 20, .slip = 2}, clock);
    std::array<std::uint8_t, 512> out{};
    int whole = 0, truncated = 0, dropped = 0;
    for (int i = 0; i < 1000; ++i) {
        const auto size = limited.respond(web_query, client_at(Client::Transport::udp), out);
        if (size == 0) {
            ++dropped;
        } else if (size == web_query.size()) {
            ++truncated;
            EXPECT_TRUE(out[2] & 0x02U) << "TC tells the client to ask again over TCP";
            EXPECT_EQ(out[7], 0) << "no answer record is left";
            EXPECT_TRUE(std::equal(web_query.begin() + 12, web_query.end(), out.begin() + 12)) << "the question stays";
        } else {
            ++whole;
        }
    }
    EXPECT_EQ(whole, 20);
    EXPECT_GT(truncated, 300);
    EXPECT_GT(dropped, 300);
    EXPECT_EQ(limited.counts().truncated, static_cast<std::uint64_t>(truncated));
    EXPECT_EQ(limited.counts().dropped, static_cast<std::uint64_t>(dropped));
}

TEST(RateLimitedResponder, DoesNotLimitTcpOrExemptNetworks) {
    VirtualClock clock;
    RateLimit::Options options{.per_second = 1, .burst = 1, .slip = 0};
    std::array<std::uint8_t, 512> out{};
    const RateLimitedResponder tcp(std::make_shared<OneRecord>(), options, clock);
    for (int i = 0; i < 100; ++i) EXPECT_GT(tcp.respond(web_query, client_at(Client::Transport::tcp), out), web_query.size());
}

} // namespace orrery::dns
