#include "core/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <stdexcept>

namespace orrery {

Sha256 sha256(std::string_view bytes) {
    // EVP_sha256() is looked up again by every digest, under locks; a fetched algorithm is not. Each request digests its token.
    static EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    Sha256 digest{};
    unsigned int size = 0;
    // Without this check a broken installation of OpenSSL would give all tokens the same digest.
    if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, algorithm, nullptr) != 1)
        throw std::runtime_error("OpenSSL has no SHA-256");
    return digest;
}

std::string sha256_hex(std::string_view bytes, std::size_t digits) {
    auto out = to_hex(sha256(bytes));
    out.resize(std::min(out.size(), digits));
    return out;
}

std::string to_hex(std::string_view bytes, HexCase letters) {
    constexpr std::string_view lower = "0123456789abcdef", upper = "0123456789ABCDEF";
    const auto digits = letters == HexCase::lower ? lower : upper;
    std::string out;
    out.reserve(2 * bytes.size());
    for (const unsigned char c : bytes) {
        out += digits[c >> 4U];
        out += digits[c & 15U];
    }
    return out;
}

std::string to_hex(const Sha256& digest) {
    return to_hex(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

} // namespace orrery
