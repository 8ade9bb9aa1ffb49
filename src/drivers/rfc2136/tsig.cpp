#include "drivers/rfc2136/tsig.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace orrery::drivers {

namespace {

constexpr std::uint16_t type_tsig = 250, tsig_class = 255;
constexpr std::size_t message_head = 12;

struct Algorithm {
    TsigAlgorithm algorithm;
    std::string_view name;
    const EVP_MD* (*digest)();
};
constexpr std::array algorithms{Algorithm{TsigAlgorithm::hmac_sha1, "hmac-sha1", EVP_sha1},
                                Algorithm{TsigAlgorithm::hmac_sha256, "hmac-sha256", EVP_sha256},
                                Algorithm{TsigAlgorithm::hmac_sha384, "hmac-sha384", EVP_sha384},
                                Algorithm{TsigAlgorithm::hmac_sha512, "hmac-sha512", EVP_sha512}};

const Algorithm& of(TsigAlgorithm algorithm) {
    return *std::find_if(algorithms.begin(), algorithms.end(), [&](const auto& one) { return one.algorithm == algorithm; });
}

dns::Name algorithm_name(TsigAlgorithm algorithm) {
    return std::move(dns::Name::from_text(of(algorithm).name)).value_or(dns::Name());
}

using Octets = std::vector<std::uint8_t>;

void put16(Octets& out, std::uint16_t value) {
    out.push_back(static_cast<std::uint8_t>(value >> 8));
    out.push_back(static_cast<std::uint8_t>(value));
}
void put48(Octets& out, std::uint64_t value) {
    for (int shift = 40; shift >= 0; shift -= 8) out.push_back(static_cast<std::uint8_t>(value >> shift));
}
void put_lowered(Octets& out, const dns::Name& name) {
    for (const auto byte : name.wire()) out.push_back(dns::lower(byte));
}
std::uint16_t get16(dns::Bytes bytes, std::size_t at) { return static_cast<std::uint16_t>(bytes[at] << 8 | bytes[at + 1]); }
std::uint64_t get48(dns::Bytes bytes, std::size_t at) {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 6; ++i) out = out << 8 | bytes[at + i];
    return out;
}

std::uint64_t seconds_of(WallTime now) {
    return static_cast<std::uint64_t>(
        std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count()));
}

/// What is signed beside the message, RFC 8945 4.3.3.
Octets variables(const TsigKey& key, std::uint64_t time, std::uint16_t fudge, std::uint16_t error, dns::Bytes other) {
    Octets out;
    put_lowered(out, key.name);
    put16(out, tsig_class);
    out.insert(out.end(), 4, 0); // TTL
    put_lowered(out, algorithm_name(key.algorithm));
    put48(out, time);
    put16(out, fudge);
    put16(out, error);
    put16(out, static_cast<std::uint16_t>(other.size()));
    out.insert(out.end(), other.begin(), other.end());
    return out;
}

Octets mac_of(const TsigKey& key, const Octets& input) {
    Octets out(EVP_MAX_MD_SIZE);
    unsigned size = 0;
    HMAC(of(key.algorithm).digest(), key.secret.data(), static_cast<int>(key.secret.size()), input.data(), input.size(), out.data(),
         &size);
    out.resize(size);
    return out;
}

/// What is signed before an answer: the MAC of what it answers.
Octets before_an_answer(dns::Bytes request_mac) {
    Octets out;
    if (request_mac.empty()) return out;
    put16(out, static_cast<std::uint16_t>(request_mac.size()));
    out.insert(out.end(), request_mac.begin(), request_mac.end());
    return out;
}

/// Moves behind one record; false at the end of the bytes.
bool skip_record(dns::Bytes bytes, std::size_t& at) {
    dns::Name owner;
    if (!owner.read(bytes, at, dns::Name::Pointers::yes) || at + 10 > bytes.size()) return false;
    at += 10 + get16(bytes, at + 8);
    return at <= bytes.size();
}

} // namespace

Result<TsigKey> tsig_key(std::string_view name, std::string_view algorithm, std::string_view secret) {
    const auto wrong = [](std::string field, std::string why, std::string remedy = {}) {
        Error error{Code::invalid, fmt::format("{} {}", field, why), std::move(remedy)};
        error.fields.push_back({std::move(field), std::move(why)});
        return error;
    };
    TsigKey out;
    auto parsed = dns::Name::from_text(name);
    if (!parsed.ok() || parsed->is_root()) return wrong("rfc2136.key", "is no name of a key");
    out.name = *parsed;
    if (algorithm.ends_with('.')) algorithm.remove_suffix(1);
    const auto found = std::find_if(algorithms.begin(), algorithms.end(), [&](const auto& one) { return one.name == algorithm; });
    if (found == algorithms.end())
        return wrong("rfc2136.algorithm", fmt::format("\"{}\" is not one we sign with", algorithm.substr(0, 40)),
                     "use hmac-sha256 (or hmac-sha1, hmac-sha384, hmac-sha512)");
    out.algorithm = found->algorithm;
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r' || secret.back() == ' ')) secret.remove_suffix(1);
    const auto no_secret = wrong("rfc2136.secret", "is not base64 of a key, as tsig-keygen and keymgr write it");
    if (secret.empty() || secret.size() % 4 != 0 || secret.size() > 1024) return no_secret;
    out.secret.resize(secret.size() / 4 * 3);
    const int size =
        EVP_DecodeBlock(out.secret.data(), reinterpret_cast<const unsigned char*>(secret.data()), static_cast<int>(secret.size()));
    if (size < 0) return no_secret;
    const auto padding = secret.ends_with("==") ? 2U : secret.ends_with('=') ? 1U : 0U;
    out.secret.resize(static_cast<std::size_t>(size) - padding);
    if (out.secret.empty()) return no_secret;
    return out;
}

std::vector<std::uint8_t> tsig_sign(std::vector<std::uint8_t>& message, const TsigKey& key, WallTime now, dns::Bytes request_mac) {
    const auto time = seconds_of(now);
    auto input = before_an_answer(request_mac);
    input.insert(input.end(), message.begin(), message.end());
    const auto rest = variables(key, time, tsig_fudge, 0, {});
    input.insert(input.end(), rest.begin(), rest.end());
    const auto mac = mac_of(key, input);

    const auto id = get16(message, 0);
    put_lowered(message, key.name);
    put16(message, type_tsig);
    put16(message, tsig_class);
    message.insert(message.end(), 4, 0);
    const auto algorithm = algorithm_name(key.algorithm);
    put16(message, static_cast<std::uint16_t>(algorithm.size() + 16 + mac.size()));
    put_lowered(message, algorithm);
    put48(message, time);
    put16(message, tsig_fudge);
    put16(message, static_cast<std::uint16_t>(mac.size()));
    message.insert(message.end(), mac.begin(), mac.end());
    put16(message, id);
    put16(message, 0);
    put16(message, 0);
    const auto records = static_cast<std::uint16_t>(get16(message, 10) + 1);
    message[10] = static_cast<std::uint8_t>(records >> 8);
    message[11] = static_cast<std::uint8_t>(records);
    return mac;
}

TsigVerdict tsig_verify(dns::Bytes answer, const TsigKey& key, dns::Bytes request_mac, WallTime now) {
    using What = TsigVerdict::What;
    const TsigVerdict broken{What::bad, "the answer is no whole DNS message"};
    if (answer.size() < message_head) return broken;
    const auto records = static_cast<std::size_t>(get16(answer, 6)) + get16(answer, 8) + get16(answer, 10);
    if (get16(answer, 10) == 0) return {What::absent, "the answer is not signed"};
    std::size_t at = message_head;
    for (std::size_t i = 0; i < get16(answer, 4); ++i) {
        dns::Name name;
        if (!name.read(answer, at, dns::Name::Pointers::yes) || at + 4 > answer.size()) return broken;
        at += 4;
    }
    for (std::size_t i = 0; i + 1 < records; ++i)
        if (!skip_record(answer, at)) return broken;

    const auto signed_size = at;
    dns::Name owner;
    if (!owner.read(answer, at, dns::Name::Pointers::yes) || at + 10 > answer.size()) return broken;
    if (get16(answer, at) != type_tsig) return {What::absent, "the answer is not signed"};
    const bool well_formed = get16(answer, at + 2) == tsig_class && get16(answer, at + 4) == 0 && get16(answer, at + 6) == 0;
    const auto data_size = get16(answer, at + 8);
    at += 10;
    if (!well_formed || at + data_size != answer.size()) return {What::bad, "its signature is not the last of the answer"};
    const auto data = answer.subspan(at);
    std::size_t inside = 0;
    dns::Name algorithm;
    if (!algorithm.read(data, inside, dns::Name::Pointers::no) || inside + 10 > data.size()) return broken;
    const auto time = get48(data, inside);
    const auto fudge = get16(data, inside + 6);
    const std::size_t mac_size = get16(data, inside + 8);
    inside += 10;
    if (inside + mac_size + 6 > data.size()) return broken;
    const auto mac = data.subspan(inside, mac_size);
    inside += mac_size;
    const auto original_id = get16(data, inside), error = get16(data, inside + 2), other_size = get16(data, inside + 4);
    inside += 6;
    if (inside + other_size != data.size()) return broken;
    const auto other = data.subspan(inside);

    if (error == 16 || error == 17)
        return {What::complains, error == 17 ? fmt::format("the server does not know the key {}", key.name.to_text())
                                             : fmt::format("the server has another secret for the key {}", key.name.to_text())};
    if (!(owner == key.name) || !(algorithm == algorithm_name(key.algorithm)))
        return {What::bad, "the answer is signed with another key"};

    auto input = before_an_answer(request_mac);
    const auto message_at = input.size();
    input.insert(input.end(), answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(signed_size));
    const auto set16 = [&](std::size_t where, std::uint16_t value) {
        input[message_at + where] = static_cast<std::uint8_t>(value >> 8);
        input[message_at + where + 1] = static_cast<std::uint8_t>(value);
    };
    set16(0, original_id);
    set16(10, static_cast<std::uint16_t>(get16(answer, 10) - 1));
    const auto rest = variables(key, time, fudge, error, other);
    input.insert(input.end(), rest.begin(), rest.end());
    const auto expected = mac_of(key, input);
    // A shortened MAC is not taken: nobody needs one here.
    if (mac.size() != expected.size() || CRYPTO_memcmp(mac.data(), expected.data(), mac.size()) != 0)
        return {What::bad, "the answer's signature is wrong"};
    if (error == 18) {
        const auto theirs = other.size() == 6 ? get48(other, 0) : 0;
        return {What::complains, fmt::format("the server's clock differs from ours by {} s",
                                             static_cast<std::int64_t>(theirs) - static_cast<std::int64_t>(seconds_of(now)))};
    }
    if (error != 0) return {What::complains, fmt::format("the server says TSIG error {}", error)};
    const auto ours = seconds_of(now);
    if ((time > ours ? time - ours : ours - time) > fudge) return {What::bad, "the answer was signed at another time"};
    return {What::good, {}};
}

} // namespace orrery::drivers
