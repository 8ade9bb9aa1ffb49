#include "drivers/rfc2136/tsig.h"

#include "core/truncate.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

namespace orrery::drivers {

namespace {

constexpr std::uint16_t type_tsig = 250, tsig_class = 255;
constexpr std::size_t message_head = 12;
constexpr std::uint16_t error_bad_signature = 16, error_bad_key = 17, error_bad_time = 18;

struct Algorithm {
    TsigAlgorithm algorithm;
    std::string_view name;
    const EVP_MD* (*digest)();
};
constexpr std::array algorithms{Algorithm{TsigAlgorithm::hmac_sha1, "hmac-sha1", EVP_sha1},
                                Algorithm{TsigAlgorithm::hmac_sha256, "hmac-sha256", EVP_sha256},
                                Algorithm{TsigAlgorithm::hmac_sha384, "hmac-sha384", EVP_sha384},
                                Algorithm{TsigAlgorithm::hmac_sha512, "hmac-sha512", EVP_sha512}};

const Algorithm& entry_of(TsigAlgorithm algorithm) {
    return *std::find_if(algorithms.begin(), algorithms.end(), [&](const auto& one) { return one.algorithm == algorithm; });
}

dns::Name algorithm_name(TsigAlgorithm algorithm) {
    return std::move(dns::Name::from_text(entry_of(algorithm).name)).value_or(dns::Name());
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

/// The TSIG variables, which are signed with the message, RFC 8945 4.3.3.
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
    HMAC(entry_of(key.algorithm).digest(), key.secret.data(), static_cast<int>(key.secret.size()), input.data(), input.size(),
         out.data(), &size);
    out.resize(size);
    return out;
}

/// The bytes that are signed before an answer: the MAC of the request, with its length.
Octets before_an_answer(dns::Bytes request_mac) {
    Octets out;
    if (request_mac.empty()) return out;
    put16(out, static_cast<std::uint16_t>(request_mac.size()));
    out.insert(out.end(), request_mac.begin(), request_mac.end());
    return out;
}

/// The fields of a TSIG record, RFC 8945 4.2, as views of the answer.
struct TsigRecord {
    std::size_t signed_size = 0; // bytes of the message before the record
    dns::Name owner, algorithm;
    std::uint64_t time = 0;
    std::uint16_t fudge = 0, original_id = 0, error = 0;
    dns::Bytes mac, other;
};

/// Advances past one record; false at the end of the bytes.
bool skip_record(dns::Bytes bytes, std::size_t& at) {
    dns::Name owner;
    if (!owner.read(bytes, at, dns::Name::Pointers::yes) || at + 10 > bytes.size()) return false;
    at += 10 + get16(bytes, at + 8);
    return at <= bytes.size();
}

/// Reads the data of a TSIG record, behind the fields that every record has; false where it is not complete.
bool read_tsig_data(dns::Bytes data, TsigRecord& out) {
    std::size_t at = 0;
    if (!out.algorithm.read(data, at, dns::Name::Pointers::no) || at + 10 > data.size()) return false;
    out.time = get48(data, at);
    out.fudge = get16(data, at + 6);
    const std::size_t mac_size = get16(data, at + 8);
    at += 10;
    if (at + mac_size + 6 > data.size()) return false;
    out.mac = data.subspan(at, mac_size);
    at += mac_size;
    out.original_id = get16(data, at);
    out.error = get16(data, at + 2);
    const std::size_t other_size = get16(data, at + 4);
    at += 6;
    if (at + other_size != data.size()) return false;
    out.other = data.subspan(at);
    return true;
}

/// Reads the TSIG record at the end of an answer. A verdict: the answer has no such record, or is malformed.
std::optional<TsigVerdict> read_signature(dns::Bytes answer, TsigRecord& out) {
    using Status = TsigVerdict::Status;
    TsigVerdict malformed{Status::invalid, "the answer is not a complete DNS message"};
    if (answer.size() < message_head) return malformed;
    const auto records = static_cast<std::size_t>(get16(answer, 6)) + get16(answer, 8) + get16(answer, 10);
    if (get16(answer, 10) == 0) return TsigVerdict{Status::unsigned_, "the answer is not signed"};
    std::size_t at = message_head;
    for (std::size_t i = 0; i < get16(answer, 4); ++i) {
        dns::Name name;
        if (!name.read(answer, at, dns::Name::Pointers::yes) || at + 4 > answer.size()) return malformed;
        at += 4;
    }
    for (std::size_t i = 0; i + 1 < records; ++i)
        if (!skip_record(answer, at)) return malformed;
    out.signed_size = at;
    if (!out.owner.read(answer, at, dns::Name::Pointers::yes) || at + 10 > answer.size()) return malformed;
    if (get16(answer, at) != type_tsig) return TsigVerdict{Status::unsigned_, "the answer is not signed"};
    const bool well_formed = get16(answer, at + 2) == tsig_class && get16(answer, at + 4) == 0 && get16(answer, at + 6) == 0;
    const auto data_size = get16(answer, at + 8);
    at += 10;
    if (!well_formed || at + data_size != answer.size())
        return TsigVerdict{Status::invalid, "the signature is not the last record of the answer"};
    if (!read_tsig_data(answer.subspan(at), out)) return malformed;
    return std::nullopt;
}

/// The bytes that the MAC of an answer covers: the MAC of the request, the answer as it was before it was signed, the TSIG
/// variables.
Octets signed_input(dns::Bytes answer, const TsigKey& key, dns::Bytes request_mac, const TsigRecord& record) {
    auto out = before_an_answer(request_mac);
    const auto message_at = out.size();
    out.insert(out.end(), answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(record.signed_size));
    const auto set16 = [&](std::size_t where, std::uint16_t value) {
        out[message_at + where] = static_cast<std::uint8_t>(value >> 8);
        out[message_at + where + 1] = static_cast<std::uint8_t>(value);
    };
    set16(0, record.original_id);
    set16(10, static_cast<std::uint16_t>(get16(answer, 10) - 1));
    const auto rest = variables(key, record.time, record.fudge, record.error, record.other);
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
}

} // namespace

Result<TsigKey> tsig_key(std::string_view name, std::string_view algorithm, std::string_view secret) {
    const auto wrong = [](std::string field, std::string message, std::string remedy = {}) {
        Error error{Code::invalid, fmt::format("{} {}", field, message), std::move(remedy)};
        error.fields.push_back({std::move(field), std::move(message)});
        return error;
    };
    TsigKey out;
    auto parsed = dns::Name::from_text(name);
    if (!parsed.ok() || parsed->is_root()) return wrong("rfc2136.key", "must be the name of a key");
    out.name = *parsed;
    if (algorithm.ends_with('.')) algorithm.remove_suffix(1);
    const auto found = std::find_if(algorithms.begin(), algorithms.end(), [&](const auto& one) { return one.name == algorithm; });
    if (found == algorithms.end())
        return wrong("rfc2136.algorithm", fmt::format("\"{}\" is not supported", truncate(algorithm, 40)),
                     "use hmac-sha256 (or hmac-sha1, hmac-sha384, hmac-sha512)");
    out.algorithm = found->algorithm;
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r' || secret.back() == ' ')) secret.remove_suffix(1);
    const auto no_secret = wrong("rfc2136.secret", "must be a key in base64, as tsig-keygen and keymgr write it");
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
    using Status = TsigVerdict::Status;
    TsigRecord record;
    if (auto problem = read_signature(answer, record)) return std::move(*problem);
    if (record.error == error_bad_signature)
        return {Status::rejected, fmt::format("the server has another secret for the key {}", key.name.to_text())};
    if (record.error == error_bad_key)
        return {Status::rejected, fmt::format("the server does not know the key {}", key.name.to_text())};
    if (!(record.owner == key.name) || !(record.algorithm == algorithm_name(key.algorithm)))
        return {Status::invalid, "the answer is signed with another key"};
    const auto expected = mac_of(key, signed_input(answer, key, request_mac, record));
    // A truncated MAC is not accepted: no server that we know sends one.
    if (record.mac.size() != expected.size() || CRYPTO_memcmp(record.mac.data(), expected.data(), expected.size()) != 0)
        return {Status::invalid, "the signature of the answer is wrong"};
    const auto ours = seconds_of(now);
    if (record.error == error_bad_time) {
        const auto theirs = record.other.size() == 6 ? get48(record.other, 0) : 0;
        return {Status::rejected, fmt::format("the server's clock differs from ours by {} s",
                                              static_cast<std::int64_t>(theirs) - static_cast<std::int64_t>(ours))};
    }
    if (record.error != 0) return {Status::rejected, fmt::format("the server reports TSIG error {}", record.error)};
    if ((record.time > ours ? record.time - ours : ours - record.time) > record.fudge)
        return {Status::invalid, "the answer was signed at another time"};
    return {Status::valid, {}};
}

} // namespace orrery::drivers
