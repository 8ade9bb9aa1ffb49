#pragma once

#include "dns/message.h"
#include "dns/server.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace orrery::dns {

/// EDNS option codes.
namespace option {
constexpr std::uint16_t nsid = 3, subnet = 8, cookie = 10, keepalive = 11, extended_error = 15;
}
/// Info codes of extended DNS errors (RFC 8914).
namespace extended {
constexpr std::uint16_t other = 0, not_ready = 14, prohibited = 18, not_authoritative = 20, not_supported = 21, invalid_type = 30;
}

/// The EDNS options of a query that this server implements. Unknown options are ignored.
struct QueryOptions {
    bool nsid = false, keepalive = false;
    struct Subnet { ///< client subnet, ECS (RFC 7871)
        bool v6 = false;
        std::uint8_t source = 0; ///< source prefix length
        std::array<std::uint8_t, 16> address{};
    };
    std::optional<Subnet> subnet;
    Bytes client_cookie, server_cookie; ///< 8 bytes; 8 to 32 bytes or empty
};
/// False if an option is malformed; the response is then FORMERR.
bool read_options(Bytes options, QueryOptions& out);

/// The EDNS options of a response, in a buffer of fixed size. An option that does not fit is omitted.
class OptionWriter {
public:
    void put(std::uint16_t code, Bytes data, Bytes more = {});
    /// Writes an extended error; truncates `text` to the available space.
    void put_error(std::uint16_t error, std::string_view text);
    Bytes bytes() const { return Bytes(bytes_).first(size_); }
    std::uint8_t& operator[](std::size_t at) { return bytes_[at]; }
    std::size_t size() const { return size_; }

private:
    std::array<std::uint8_t, 256> bytes_;
    std::size_t size_ = 0;
};

} // namespace orrery::dns
