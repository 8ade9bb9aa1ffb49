#pragma once

#include "dns/message.h"
#include "dns/server.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace orrery::dns {

namespace option {
constexpr std::uint16_t nsid = 3, subnet = 8, cookie = 10, keepalive = 11, extended_error = 15;
}
/// Extended errors (RFC 8914): why an answer is what it is, for people who look.
namespace extended {
constexpr std::uint16_t other = 0, prohibited = 18, not_authoritative = 20, not_supported = 21, invalid_type = 30;
}

/// The options of a query that an authoritative server knows; the others are passed over.
struct AskedOptions {
    bool nsid = false, keepalive = false;
    struct Subnet { ///< RFC 7871
        bool v6 = false;
        std::uint8_t source = 0;
        std::array<std::uint8_t, 16> address{};
    };
    std::optional<Subnet> subnet;
    Bytes client_cookie, server_cookie; ///< 8 bytes, and 8 to 32 or none
};
/// False for options that are malformed: the query is.
bool read_options(Bytes options, AskedOptions& out);

/// The options of an answer, in a buffer of fixed size. What does not fit is left out.
class OptionWriter {
public:
    void put(std::uint16_t code, Bytes data, Bytes more = {});
    /// An extended error; of its text as much as fits.
    void put_error(std::uint16_t error, std::string_view text);
    Bytes bytes() const { return Bytes(bytes_).first(size_); }
    std::uint8_t& operator[](std::size_t at) { return bytes_[at]; }
    std::size_t size() const { return size_; }

private:
    std::array<std::uint8_t, 256> bytes_;
    std::size_t size_ = 0;
};

} // namespace orrery::dns
