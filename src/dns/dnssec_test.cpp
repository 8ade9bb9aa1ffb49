#include "dns/authority.h"
#include "dns/dnssec.h"

#include <gtest/gtest.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include <algorithm>

namespace orrery::dns {

namespace {

using Data = std::vector<std::uint8_t>;

constexpr std::string_view signed_zone = R"($TTL 300
@ SOA ns h 1 3600 600 86400 60
  NS ns
ns A 192.0.2.53
www A 192.0.2.2
    A 192.0.2.1
alias CNAME www
*.wild A 192.0.2.77
a.b A 192.0.2.3
safe NS ns.safe
safe DS 1 13 2 00
ns.safe A 192.0.2.98
plain NS ns.plain
ns.plain A 192.0.2.99
)";

/// Verifies a signature with OpenSSL and the DNSKEY alone, independently of the code that made it.
bool verifies(const Data& dnskey, const Data& rrsig, const std::vector<Record>& records) {
    if (dnskey.size() != 68 || rrsig.size() < 18 + 64 || records.empty()) return false;
    const Data signature(rrsig.end() - 64, rrsig.end());
    Data message(rrsig.begin(), rrsig.end() - 64);
    std::vector<Data> all;
    for (const auto& record : records) all.push_back(record.data);
    std::sort(all.begin(), all.end());
    for (const auto& data : all) {
        for (const auto byte : records[0].owner.wire()) message.push_back(lower(byte));
        for (const auto value : {records[0].type, std::uint16_t{1}}) {
            message.push_back(static_cast<std::uint8_t>(value >> 8));
            message.push_back(static_cast<std::uint8_t>(value));
        }
        message.insert(message.end(), rrsig.begin() + 4, rrsig.begin() + 8); // the original TTL
        message.push_back(static_cast<std::uint8_t>(data.size() >> 8));
        message.push_back(static_cast<std::uint8_t>(data.size()));
        message.insert(message.end(), data.begin(), data.end());
    }
    Data point{4};
    point.insert(point.end(), dnskey.begin() + 4, dnskey.end());
    auto* builder = OSSL_PARAM_BLD_new();
    OSSL_PARAM_BLD_push_utf8_string(builder, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0);
    OSSL_PARAM_BLD_push_octet_string(builder, OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size());
    auto* parameters = OSSL_PARAM_BLD_to_param(builder);
    auto* making = EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr);
    EVP_PKEY* key = nullptr;
    EVP_PKEY_fromdata_init(making);
    EVP_PKEY_fromdata(making, &key, EVP_PKEY_PUBLIC_KEY, parameters);
    auto* numbers = ECDSA_SIG_new();
    ECDSA_SIG_set0(numbers, BN_bin2bn(signature.data(), 32, nullptr), BN_bin2bn(&signature[32], 32, nullptr));
    unsigned char* der = nullptr;
    const auto size = i2d_ECDSA_SIG(numbers, &der);
    auto* context = EVP_MD_CTX_new();
    EVP_DigestVerifyInit(context, nullptr, EVP_sha256(), nullptr, key);
    const bool good = EVP_DigestVerify(context, der, static_cast<std::size_t>(size), message.data(), message.size()) == 1;
    EVP_MD_CTX_free(context);
    OPENSSL_free(der);
    ECDSA_SIG_free(numbers);
    EVP_PKEY_free(key);
    EVP_PKEY_CTX_free(making);
    OSSL_PARAM_free(parameters);
    OSSL_PARAM_BLD_free(builder);
    return good;
}

struct Signed {
    VirtualClock clock;
    std::shared_ptr<const SigningKey> key = *SigningKey::from_pem(*SigningKey::generate_pem());
    Authority authority{{.clock = &clock}};
    Name origin = *Name::from_text("example.test");

    Signed() {
        Authority::Update update{.revision = 5};
        update.zones.push_back(*parse_zone(signed_zone, origin));
        AnswerSet one{.policy = SelectionPolicy::weighted};
        for (const std::uint8_t last : {1, 2, 3})
            one.candidates.push_back({.v4 = std::array<std::uint8_t, 4>{10, 0, 0, last}, .identity = last});
        one.candidates[0].v6 = std::array<std::uint8_t, 16>{0x20, 1};
        auto few = one;
        few.policy = SelectionPolicy::subset;
        few.max_answers = 2;
        update.dynamic_names.emplace_back(*Name::from_text("one.example.test"), DynamicName{.answer_sets = {one}});
        update.dynamic_names.emplace_back(*Name::from_text("few.example.test"), DynamicName{.answer_sets = {few}});
        update.signing_keys.emplace_back(origin, key);
        const auto done = authority.apply(std::move(update));
        EXPECT_TRUE(done.ok()) << done.error().text();
    }

    Message ask(std::string_view of, std::uint16_t type, bool compact = false, bool tcp = true) {
        auto query = write_query(1, *Name::from_text(of), type, 1232);
        query[query.size() - 4] = compact ? 0xC0 : 0x80; // DO, and CO
        Data out(65535);
        out.resize(authority.respond(query, {.transport = tcp ? Client::Transport::tcp : Client::Transport::udp}, out));
        auto message = read_message(out);
        EXPECT_TRUE(message.ok()) << of;
        return message.ok() ? std::move(*message) : Message{};
    }

    /// Verifies the signature of every authoritative RRset in the response; returns the number of RRsets.
    std::size_t check(const Message& message, std::string_view what) {
        std::size_t sets = 0;
        for (const auto* section : {&message.answer, &message.authority}) {
            for (const auto& first : *section) {
                if (first.type == type::rrsig || (section == &message.authority && first.type == type::ns)) continue;
                std::vector<Record> set;
                const Record* signature = nullptr;
                for (const auto& record : *section) {
                    if (!(record.owner == first.owner)) continue;
                    if (record.type == first.type) set.push_back(record);
                    if (record.type == type::rrsig && (record.data[0] << 8 | record.data[1]) == first.type) signature = &record;
                }
                if (set.front().data != first.data) continue;
                ++sets;
                EXPECT_NE(signature, nullptr) << what << " " << first.to_text();
                if (signature == nullptr) continue;
                EXPECT_TRUE(verifies(key->dnskey(), signature->data, set)) << what << " " << first.to_text();
                EXPECT_EQ(signature->data[3], first.owner.label_count());
            }
        }
        return sets;
    }
};

const Record* of_type(const std::vector<Record>& records, std::uint16_t wanted) {
    for (const auto& record : records)
        if (record.type == wanted) return &record;
    return nullptr;
}

} // namespace

TEST(Dnssec, ParsesAndRejectsKeys) {
    EXPECT_FALSE(SigningKey::from_pem("nothing").ok());
    const auto pem = SigningKey::generate_pem();
    ASSERT_TRUE(pem.ok());
    const auto key = SigningKey::from_pem(*pem), again = SigningKey::from_pem(*pem);
    ASSERT_TRUE(key.ok() && again.ok());
    EXPECT_EQ((*key)->dnskey(), (*again)->dnskey());
    EXPECT_EQ((*key)->dnskey().size(), 68U);
    EXPECT_EQ((*key)->ds(*Name::from_text("Example.Test")), (*key)->ds(*Name::from_text("example.test")));
    EXPECT_EQ((*key)->ds(Name()).size(), 36U);
}

TEST(Dnssec, EveryRrsetHasAValidSignature) {
    Signed fixture;
    for (const auto& [of, type, sets] :
         {std::tuple("www.example.test", type::a, 1U), std::tuple("example.test", type::soa, 1U),
          std::tuple("example.test", type::dnskey, 1U), std::tuple("example.test", type::cds, 1U),
          std::tuple("example.test", type::cdnskey, 1U), std::tuple("alias.example.test", type::a, 2U),
          std::tuple("x.wild.example.test", type::a, 1U), std::tuple("one.example.test", type::a, 1U),
          std::tuple("few.example.test", type::a, 1U), std::tuple("www.example.test", type::any, 1U),
          std::tuple("safe.example.test", type::ds, 1U),
          // NODATA: SOA and NSEC
          std::tuple("www.example.test", type::mx, 2U), std::tuple("b.example.test", type::a, 2U),
          std::tuple("x.wild.example.test", type::mx, 2U), std::tuple("alias.example.test", type::mx, 3U),
          std::tuple("plain.example.test", type::ds, 2U), std::tuple("few.example.test", type::mx, 2U)}) {
        const auto message = fixture.ask(of, type);
        EXPECT_EQ(message.rcode, Rcode::noerror) << of;
        EXPECT_EQ(fixture.check(message, of), sets) << of << " " << type;
    }
    // Without DO there are no DNSSEC records.
    Data out(4096);
    out.resize(fixture.authority.respond(write_query(1, *Name::from_text("www.example.test"), type::a, 1232), {}, out));
    EXPECT_EQ(read_message(out)->answer.size(), 2U);
}

TEST(Dnssec, DeniesCompactly) {
    Signed fixture;
    const auto missing = fixture.ask("no.example.test", type::a);
    EXPECT_EQ(missing.rcode, Rcode::noerror);
    EXPECT_EQ(fixture.check(missing, "missing"), 2U);
    const auto* nsec = of_type(missing.authority, type::nsec);
    ASSERT_NE(nsec, nullptr);
    EXPECT_EQ(nsec->owner, *Name::from_text("no.example.test"));
    // \000.no.example.test, RRSIG NSEC NXNAME
    EXPECT_EQ((Data(nsec->data.begin(), nsec->data.begin() + 2)), (Data{1, 0}));
    EXPECT_EQ((Data(nsec->data.end() - 19, nsec->data.end())), (Data{0, 17, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80}));
    EXPECT_EQ(fixture.ask("no.example.test", type::a, true).rcode, Rcode::nxdomain);
    // With one candidate of the family, that one is always the answer.
    const auto drawn = fixture.ask("one.example.test", type::aaaa);
    EXPECT_EQ(drawn.answer.size(), 2U);
    EXPECT_EQ(fixture.check(drawn, "one"), 1U);
}

TEST(Dnssec, QueriesForNsecAndRrsigAreAnsweredAtEveryName) {
    Signed fixture;
    for (const std::string_view of : {"www.example.test", "example.test", "b.example.test", "alias.example.test",
                                      "one.example.test", "no.example.test", "x.wild.example.test", "y.x.wild.example.test"}) {
        const auto nsec = fixture.ask(of, type::nsec);
        EXPECT_EQ(nsec.rcode, Rcode::noerror) << of;
        ASSERT_EQ(nsec.answer.size(), 2U) << of;
        EXPECT_EQ(fixture.check(nsec, of), 1U) << of;
        // The next name is the successor of the query name, not of the wildcard.
        const auto wanted = *Name::from_text(of);
        EXPECT_EQ(nsec.answer[0].owner, wanted);
        Data next{1, 0};
        next.insert(next.end(), wanted.wire().begin(), wanted.wire().end());
        EXPECT_TRUE(std::equal(next.begin(), next.end(), nsec.answer[0].data.begin())) << of;
        const auto signature = fixture.ask(of, type::rrsig);
        EXPECT_EQ(signature.rcode, Rcode::noerror) << of;
        ASSERT_EQ(signature.answer.size(), 1U) << of;
        EXPECT_EQ(signature.answer[0].type, type::rrsig);
        EXPECT_TRUE(verifies(fixture.key->dnskey(), signature.answer[0].data, {nsec.answer[0]})) << of;
    }
    // Names that match a wildcard have its types: A at x.wild (first window: 6 bytes).
    const auto wild = fixture.ask("x.wild.example.test", type::nsec);
    EXPECT_EQ(wild.answer[0].data[wild.answer[0].data.size() - 6], 0x40);
    // Without DO the NSEC of the wildcard's own name is not returned.
    Data out(4096);
    out.resize(fixture.authority.respond(write_query(1, *Name::from_text("x.wild.example.test"), type::nsec, 1232), {}, out));
    EXPECT_TRUE(read_message(out)->answer.empty());
}

TEST(Dnssec, DelegationsHaveDsOrAProofOfItsAbsence) {
    Signed fixture;
    const auto safe = fixture.ask("x.safe.example.test", type::a);
    EXPECT_FALSE(safe.authoritative);
    EXPECT_NE(of_type(safe.authority, type::ds), nullptr);
    EXPECT_EQ(fixture.check(safe, "safe"), 1U);
    const auto plain = fixture.ask("x.plain.example.test", type::a);
    EXPECT_EQ(of_type(plain.authority, type::ds), nullptr);
    ASSERT_NE(of_type(plain.authority, type::nsec), nullptr);
    EXPECT_EQ(of_type(plain.authority, type::nsec)->owner, *Name::from_text("plain.example.test"));
    EXPECT_EQ(fixture.check(plain, "plain"), 1U);
}

TEST(Dnssec, SignaturesAreRenewedAtHalfTheirLifetime) {
    Signed fixture;
    const auto expiry = [&](std::string_view of, std::uint16_t type) {
        const auto message = fixture.ask(of, type);
        const auto& data = of_type(message.answer, type::rrsig)->data;
        return std::uint32_t{data[8]} << 24 | std::uint32_t{data[9]} << 16 | std::uint32_t{data[10]} << 8 | data[11];
    };
    const auto first = expiry("www.example.test", type::a), on_demand = expiry("x.wild.example.test", type::a);
    EXPECT_EQ(fixture.authority.refresh_signatures(), 0U);
    fixture.clock.advance(std::chrono::hours(49));
    EXPECT_EQ(expiry("www.example.test", type::a), first);
    EXPECT_EQ(fixture.authority.refresh_signatures(3), 3U);
    while (fixture.authority.refresh_signatures(3) > 0) {
    }
    EXPECT_EQ(expiry("www.example.test", type::a), first + 49 * 3600);
    EXPECT_EQ(expiry("x.wild.example.test", type::a), on_demand + 49 * 3600);
    fixture.check(fixture.ask("www.example.test", type::mx), "after");
}

TEST(Dnssec, SigningOnDemandIsLimited) {
    Signed fixture;
    std::size_t truncated = 0;
    for (int i = 0; i < 2100; ++i)
        truncated += fixture.ask("n" + std::to_string(i) + ".example.test", type::a, false, false).truncated ? 1 : 0;
    EXPECT_EQ(truncated, 100U);
    EXPECT_EQ(fixture.authority.statistics().signing_limited, 100U);
    fixture.clock.advance(std::chrono::seconds(1));
    EXPECT_FALSE(fixture.ask("n2099.example.test", type::a, false, false).truncated);
    // Signatures made in advance do not count.
    EXPECT_EQ(fixture.authority.statistics().signed_on_demand, 2001U);
}

} // namespace orrery::dns
