#include "dns/dnssec.h"

#include "core/digest.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstring>

namespace orrery::dns {

namespace {

template <class T, void (*Free)(T*)> struct Freed {
    void operator()(T* it) const { Free(it); }
};
using PkeyPtr = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using DigestPtr = std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX, EVP_MD_CTX_free>>;
using SignaturePtr = std::unique_ptr<ECDSA_SIG, Freed<ECDSA_SIG, ECDSA_SIG_free>>;
struct FreeBio {
    void operator()(BIO* it) const { BIO_free_all(it); }
};
using BioPtr = std::unique_ptr<BIO, FreeBio>;

void push16(std::vector<std::uint8_t>& out, std::uint16_t value) {
    out.push_back(static_cast<std::uint8_t>(value >> 8));
    out.push_back(static_cast<std::uint8_t>(value));
}
void push32(std::vector<std::uint8_t>& out, std::uint32_t value) {
    push16(out, static_cast<std::uint16_t>(value >> 16));
    push16(out, static_cast<std::uint16_t>(value));
}

/// RFC 4034 section 6.2: the canonical form of RDATA, with names in lower case.
std::vector<std::uint8_t> canonical(std::uint16_t record_type, Bytes data) {
    std::vector<std::uint8_t> out(data.begin(), data.end());
    std::size_t at = 0;
    int names = 0;
    switch (record_type) {
    case type::ns:
    case type::cname:
    case type::ptr: names = 1; break;
    case type::soa:
    case 17 /* RP */: names = 2; break;
    case type::mx:
    case 18 /* AFSDB */: at = 2, names = 1; break;
    case type::srv: at = 6, names = 1; break;
    case 35: // NAPTR: three strings precede the name
        at = 4;
        for (int i = 0; i < 3 && at < out.size(); ++i) at += 1U + out[at];
        names = 1;
        break;
    default: break;
    }
    for (; names > 0 && at < out.size(); --names) {
        while (at < out.size() && out[at] != 0) {
            const std::size_t end = std::min<std::size_t>(out.size(), at + 1 + out[at]);
            for (++at; at < end; ++at) out[at] = lower(out[at]);
        }
        ++at;
    }
    return out;
}

/// The Labels field of an RRSIG: the label count without a leading "*".
std::size_t rrsig_labels(Bytes name) {
    std::size_t count = 0;
    for (std::size_t at = 0; name[at] != 0; at += 1U + name[at]) ++count;
    return count > 0 && name[0] == 1 && name[1] == '*' ? count - 1 : count;
}

} // namespace

struct SigningKey::Key {
    PkeyPtr pkey;
};

SigningKey::~SigningKey() = default;

Result<std::shared_ptr<const SigningKey>> SigningKey::from_pem(std::string_view pem) {
    const Error bad{Code::invalid, "the DNSSEC key is not a P-256 private key in PEM format",
                    "generate one: openssl ecparam -name prime256v1 -genkey -noout"};
    if (pem.size() > 65536) return bad;
    const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
    // Without a callback, OpenSSL would prompt for the passphrase of an encrypted key.
    const auto no_passphrase = [](char*, int, int, void*) { return -1; };
    auto key =
        std::unique_ptr<Key>(new Key{PkeyPtr(bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr) : nullptr)});
    std::array<char, 64> curve{};
    std::size_t size = 0;
    if (!key->pkey || EVP_PKEY_get_base_id(key->pkey.get()) != EVP_PKEY_EC ||
        EVP_PKEY_get_group_name(key->pkey.get(), curve.data(), curve.size(), &size) != 1 ||
        std::string_view(curve.data(), size) != "prime256v1")
        return bad;
    std::array<std::uint8_t, 65> point{};
    if (EVP_PKEY_get_octet_string_param(key->pkey.get(), "encoded-pub-key", point.data(), point.size(), &size) != 1 || size != 65 ||
        point[0] != 4)
        return bad;
    std::shared_ptr<SigningKey> out(new SigningKey);
    out->key_ = std::move(key);
    out->dnskey_ = {1, 1, 3, algorithm}; // zone key and secure entry point
    out->dnskey_.insert(out->dnskey_.end(), point.begin() + 1, point.end());
    std::uint32_t sum = 0; // RFC 4034, appendix B
    for (std::size_t i = 0; i < out->dnskey_.size(); ++i) sum += i % 2 == 0 ? std::uint32_t{out->dnskey_[i]} << 8 : out->dnskey_[i];
    out->tag_ = static_cast<std::uint16_t>(sum + (sum >> 16));
    return std::shared_ptr<const SigningKey>(std::move(out));
}

Result<std::string> SigningKey::generate_pem() {
    const PkeyPtr key(EVP_EC_gen("P-256"));
    const BioPtr bio(BIO_new(BIO_s_mem()));
    if (!key || !bio || PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
        return Error{Code::internal, "cannot generate a DNSSEC key"};
    char* text = nullptr;
    const auto size = BIO_get_mem_data(bio.get(), &text);
    return std::string(text, static_cast<std::size_t>(size));
}

std::vector<std::uint8_t> SigningKey::ds(const Name& zone) const {
    std::vector<std::uint8_t> input;
    for (const auto byte : zone.wire()) input.push_back(lower(byte));
    input.insert(input.end(), dnskey_.begin(), dnskey_.end());
    std::vector<std::uint8_t> out;
    push16(out, tag_);
    out.push_back(algorithm);
    out.push_back(2);
    const auto digest = sha256({reinterpret_cast<const char*>(input.data()), input.size()});
    out.insert(out.end(), digest.begin(), digest.end());
    return out;
}

Result<SigningKey::Signature> SigningKey::sign(Bytes message) const {
    const Error failed{Code::internal, "cannot make a DNSSEC signature"};
    const DigestPtr context(EVP_MD_CTX_new());
    std::array<std::uint8_t, 128> der{};
    std::size_t size = der.size();
    if (!context || EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key_->pkey.get()) != 1 ||
        EVP_DigestSign(context.get(), der.data(), &size, message.data(), message.size()) != 1)
        return failed;
    const auto* at = der.data();
    const SignaturePtr signature(d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(size)));
    Signature out{};
    if (!signature || BN_bn2binpad(ECDSA_SIG_get0_r(signature.get()), out.data(), 32) != 32 ||
        BN_bn2binpad(ECDSA_SIG_get0_s(signature.get()), &out[32], 32) != 32)
        return failed;
    return out;
}

SignatureValidity signature_validity(std::uint32_t now, std::uint32_t lifetime) { return {now - 3600, now + lifetime}; }

RrsetDigest rrset_digest(const RrsetToSign& rrset) {
    std::vector<std::uint8_t> input(rrset.owner.begin(), rrset.owner.end());
    push16(input, rrset.type);
    push32(input, rrset.ttl);
    auto all = rrset.data;
    std::sort(all.begin(), all.end(),
              [](Bytes x, Bytes y) { return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end()); });
    for (const auto& data : all) {
        push16(input, static_cast<std::uint16_t>(data.size()));
        input.insert(input.end(), data.begin(), data.end());
    }
    const auto digest = sha256({reinterpret_cast<const char*>(input.data()), input.size()});
    RrsetDigest out{};
    std::copy_n(digest.begin(), out.size(), out.begin());
    return out;
}

Result<std::vector<std::uint8_t>> make_rrsig(const SigningKey& key, Bytes zone, const RrsetToSign& rrset,
                                             SignatureValidity validity) {
    std::vector<std::uint8_t> out;
    push16(out, rrset.type);
    out.push_back(SigningKey::algorithm);
    out.push_back(static_cast<std::uint8_t>(rrsig_labels(rrset.owner)));
    push32(out, rrset.ttl);
    push32(out, validity.expiration);
    push32(out, validity.inception);
    push16(out, key.tag());
    for (const auto byte : zone) out.push_back(lower(byte));

    std::vector<std::vector<std::uint8_t>> all;
    for (const auto& data : rrset.data) all.push_back(canonical(rrset.type, data));
    std::sort(all.begin(), all.end());
    auto message = out;
    for (const auto& data : all) {
        message.insert(message.end(), rrset.owner.begin(), rrset.owner.end());
        push16(message, rrset.type);
        push16(message, dns_class::in);
        push32(message, rrset.ttl);
        push16(message, static_cast<std::uint16_t>(data.size()));
        message.insert(message.end(), data.begin(), data.end());
    }
    TRY(const auto signature, key.sign(message));
    out.insert(out.end(), signature.begin(), signature.end());
    return out;
}

bool is_signed_by(Bytes rrsig, const SigningKey& key) {
    constexpr std::size_t tag_at = 16;
    return rrsig.size() > tag_at + 2 && (rrsig[tag_at] << 8 | rrsig[tag_at + 1]) == key.tag();
}

std::vector<std::uint8_t> make_compact_nsec(Bytes owner, std::vector<std::uint16_t> types) {
    std::vector<std::uint8_t> out;
    // The immediate successor in canonical order is the name with a label "\000" prepended.
    if (owner.size() + 2 <= Name::max_size) {
        out = {1, 0};
        out.insert(out.end(), owner.begin(), owner.end());
    } else {
        out.assign(owner.begin(), owner.end());
        // No label can be prepended. The successor is the name with its first label incremented.
        for (std::size_t at = out[0]; at > 0; --at)
            if (++out[at] != 0) break;
    }
    return make_nsec(out, std::move(types));
}

bool canonical_less(Bytes one, Bytes other) {
    const auto labels_in = [](Bytes name, std::array<std::uint8_t, Name::max_size / 2 + 1>& starts) {
        std::size_t count = 0;
        for (std::size_t at = 0; name[at] != 0; at += 1U + name[at]) starts[count++] = static_cast<std::uint8_t>(at);
        return count;
    };
    std::array<std::uint8_t, Name::max_size / 2 + 1> ones, others;
    auto left = labels_in(one, ones), right = labels_in(other, others);
    while (left > 0 && right > 0) {
        const auto x = one.subspan(ones[left - 1] + 1U, one[ones[left - 1]]),
                   y = other.subspan(others[right - 1] + 1U, other[others[right - 1]]);
        if (std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end())) return true;
        if (!std::equal(x.begin(), x.end(), y.begin(), y.end())) return false;
        --left, --right;
    }
    return left == 0 && right > 0;
}

std::vector<std::uint8_t> make_nsec(Bytes next, std::vector<std::uint16_t> types) {
    std::vector<std::uint8_t> out(next.begin(), next.end());
    types.push_back(type::rrsig);
    types.push_back(type::nsec);
    std::sort(types.begin(), types.end());
    types.erase(std::unique(types.begin(), types.end()), types.end());
    for (std::size_t i = 0; i < types.size();) {
        const auto window = static_cast<std::uint8_t>(types[i] >> 8);
        std::array<std::uint8_t, 32> bits{};
        std::size_t size = 0;
        for (; i < types.size() && types[i] >> 8 == window; ++i) {
            const auto low = static_cast<std::uint8_t>(types[i]);
            bits[low / 8] = static_cast<std::uint8_t>(bits[low / 8] | 0x80 >> low % 8);
            size = low / 8U + 1;
        }
        out.push_back(window);
        out.push_back(static_cast<std::uint8_t>(size));
        out.insert(out.end(), bits.begin(), bits.begin() + static_cast<std::ptrdiff_t>(size));
    }
    return out;
}

} // namespace orrery::dns
