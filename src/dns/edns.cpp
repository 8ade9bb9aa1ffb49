#include "dns/edns.h"

#include <algorithm>
#include <cstring>

namespace orrery::dns {

namespace {

bool read_subnet(Bytes data, std::optional<QueryOptions::Subnet>& out) {
    if (out || data.size() < 4 || data[0] != 0 || (data[1] != 1 && data[1] != 2)) return false;
    QueryOptions::Subnet subnet;
    subnet.v6 = data[1] == 2;
    subnet.source = data[2];
    if (subnet.source > (subnet.v6 ? 128 : 32) || data[3] != 0) return false;
    const std::size_t bytes = (subnet.source + 7U) / 8;
    if (data.size() != 4 + bytes) return false;
    if (bytes > 0) std::memcpy(subnet.address.data(), &data[4], bytes);
    if (subnet.source % 8 != 0 && (subnet.address[bytes - 1] & (0xFF >> subnet.source % 8)) != 0) return false;
    out = subnet;
    return true;
}

} // namespace

bool read_options(Bytes options, QueryOptions& out) {
    // read_query has checked that no option extends beyond the end.
    while (options.size() >= 4) {
        const auto code = options[0] << 8 | options[1];
        const auto length = static_cast<std::size_t>(options[2] << 8 | options[3]);
        const auto data = options.subspan(4, length);
        options = options.subspan(4 + length);
        switch (code) {
        case option::nsid: out.nsid = true; break;
        case option::keepalive: out.keepalive = true; break;
        case option::subnet:
            if (!read_subnet(data, out.subnet)) return false;
            break;
        case option::cookie:
            if (data.size() != 8 && (data.size() < 16 || data.size() > 40)) return false;
            if (!out.client_cookie.empty()) break; // RFC 7873 section 5.2: only the first one counts
            out.client_cookie = data.first(8);
            out.server_cookie = data.subspan(8);
            break;
        default: break;
        }
    }
    return true;
}

void OptionWriter::put(std::uint16_t code, Bytes data, Bytes more) {
    const auto length = data.size() + more.size();
    if (size_ + 4 + length > bytes_.size()) return;
    bytes_[size_++] = static_cast<std::uint8_t>(code >> 8);
    bytes_[size_++] = static_cast<std::uint8_t>(code);
    bytes_[size_++] = static_cast<std::uint8_t>(length >> 8);
    bytes_[size_++] = static_cast<std::uint8_t>(length);
    for (const auto part : {data, more}) {
        if (!part.empty()) std::memcpy(&bytes_[size_], part.data(), part.size());
        size_ += part.size();
    }
}

void OptionWriter::put_error(std::uint16_t error, std::string_view text) {
    constexpr std::size_t head = 4 + 2;
    if (size_ + head > bytes_.size()) return;
    const std::array<std::uint8_t, 2> code{static_cast<std::uint8_t>(error >> 8), static_cast<std::uint8_t>(error)};
    text = text.substr(0, bytes_.size() - size_ - head);
    put(option::extended_error, code, Bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

} // namespace orrery::dns
