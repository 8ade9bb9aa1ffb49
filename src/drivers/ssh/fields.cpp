#include "drivers/ssh/fields.h"

#include <openssl/evp.h>

#include <algorithm>

namespace orrery::drivers {

Fields& Fields::add(std::string_view text) {
    // A shell reads a line byte by byte, and the rest at the price of a process.
    const bool plain = text.size() < 1000 && std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
    if (plain) {
        text_ += '=';
        text_ += text;
        text_ += '\n';
    } else {
        text_ += '+' + std::to_string(text.size() + 1) + '\n';
        text_ += text;
        text_ += ".\n"; // the dot keeps newlines at the end from being lost in a shell's $(...)
    }
    return *this;
}

std::string base64(std::string_view bytes) {
    std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
    const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
    out.resize(static_cast<std::size_t>(std::max(size, 0)));
    return out;
}

std::string from_base64(std::string_view text) {
    if (text.empty() || text.size() % 4 != 0) return {};
    std::string out(text.size() / 4 * 3, '\0');
    const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
    if (size < 0) return {};
    out.resize(static_cast<std::size_t>(size) - static_cast<std::size_t>(text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0));
    return out;
}

} // namespace orrery::drivers
