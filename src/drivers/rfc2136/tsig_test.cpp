#include "drivers/rfc2136/tsig.h"
#include "drivers/rfc2136/update.h"

#include <gtest/gtest.h>

namespace orrery::drivers::tsig_test {

namespace {

std::vector<std::uint8_t> from_hex(std::string_view text) {
    std::vector<std::uint8_t> out;
    const auto digit = [](char c) { return static_cast<std::uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
        out.push_back(static_cast<std::uint8_t>(digit(text[i]) << 4 | digit(text[i + 1])));
    return out;
}

// Checked with another implementation of HMAC: key orrery., hmac-sha256, secret 00..1f, time 1700000000.
constexpr std::string_view signed_update =
    "1234280000010000000300010467736c620474657374000006000103777777c00c000100ff000000000000c01b000100010000001e0004c0000221"
    "c01b000100010000001e0004c0000222066f72726572790000fa00ff00000000003d0b686d61632d7368613235360000006553f100012c0020"
    "3633361f2d2d53e01caaf9078ccec0d24b3707e8e0ca76c19fd0c7cb78aa55b7123400000000";

const WallTime signed_at{std::chrono::seconds(1700000000)};
TsigKey vector_key() { return *tsig_key("orrery.", "hmac-sha256", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="); }

/// An answer to the update above.
std::vector<std::uint8_t> an_answer() {
    return from_hex("1234a8000001000000000000"
                    "0467736c6204746573740000060001");
}

} // namespace

TEST(Tsig, MatchesTheSignaturesOfOtherImplementations) {
    const auto zone = *dns::Name::from_text("gslb.test.");
    auto message = replacement_message(
        0x1234, zone,
        {{*dns::Name::from_text("www.gslb.test."), *gslb::record_set(gslb::RecordType::a, 30, {"192.0.2.33", "192.0.2.34"})}});
    ASSERT_TRUE(message.ok());
    const auto mac = tsig_sign(*message, vector_key(), signed_at);
    EXPECT_EQ(*message, from_hex(signed_update));
    EXPECT_EQ(mac.size(), 32U);
}

TEST(Tsig, KeysAreParsedInTheFormOfKeyFiles) {
    EXPECT_EQ(vector_key().secret.size(), 32U);
    EXPECT_EQ(tsig_key("k", "hmac-sha512.", "c2VjcmV0\n")->secret.size(), 6U);
    EXPECT_EQ(tsig_key("k", "hmac-sha1", "c2VjcmU=")->secret.size(), 5U);
    EXPECT_EQ(tsig_key("", "hmac-sha256", "c2VjcmV0").error().fields.at(0).path, "rfc2136.key");
    EXPECT_EQ(tsig_key("k", "hmac-md5", "c2VjcmV0").error().fields.at(0).path, "rfc2136.algorithm");
    for (const auto* bad : {"", "c2Vj cmV0", "not base64!", "c2VjcmV"}) {
        const auto key = tsig_key("k", "hmac-sha256", bad);
        ASSERT_FALSE(key.ok()) << bad;
        EXPECT_EQ(key.error().fields.at(0).path, "rfc2136.secret");
    }
}

TEST(Tsig, VerifiesTheRequestTheKeyAndTheTimeOfAnAnswer) {
    using Status = TsigVerdict::Status;
    const auto key = vector_key();
    auto request = an_answer();
    const auto mac = tsig_sign(request, key, signed_at);
    auto answer = an_answer();
    std::ignore = tsig_sign(answer, key, signed_at, mac);
    EXPECT_EQ(tsig_verify(answer, key, mac, signed_at).status, Status::valid);
    EXPECT_EQ(tsig_verify(answer, key, mac, signed_at + std::chrono::seconds(299)).status, Status::valid);
    EXPECT_EQ(tsig_verify(answer, key, mac, signed_at + std::chrono::seconds(301)).status, Status::invalid);
    EXPECT_EQ(tsig_verify(answer, key, {}, signed_at).status, Status::invalid) << "of another question";
    EXPECT_EQ(tsig_verify(answer, *tsig_key("orrery.", "hmac-sha256", "c2VjcmV0"), mac, signed_at).status, Status::invalid);
    EXPECT_EQ(
        tsig_verify(answer, *tsig_key("other.", "hmac-sha256", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="), mac, signed_at)
            .status,
        Status::invalid);
    for (std::size_t i = 0; i < answer.size(); ++i) {
        auto changed = answer;
        changed[i] ^= 0x01;
        // The id itself is not signed, only the one it had at first; the exchange compares it.
        if (i > 1) {
            EXPECT_NE(tsig_verify(changed, key, mac, signed_at).status, Status::valid) << i;
        }
        EXPECT_NE(tsig_verify(dns::Bytes(answer.data(), i), key, mac, signed_at).status, Status::valid) << i;
    }
}

TEST(Tsig, TruncatedMessagesAreNeverValid) {
    const auto message = from_hex(signed_update);
    const auto key = vector_key();
    for (std::size_t size = 0; size < message.size(); ++size)
        EXPECT_NE(tsig_verify(dns::Bytes(message.data(), size), key, {}, signed_at).status, TsigVerdict::Status::valid) << size;
    auto unsigned_one = message;
    unsigned_one.resize(75);
    unsigned_one[11] = 0;
    EXPECT_EQ(tsig_verify(unsigned_one, key, {}, signed_at).status, TsigVerdict::Status::unsigned_);
}

} // namespace orrery::drivers::tsig_test
