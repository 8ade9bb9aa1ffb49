#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace orrery::app {

struct ListenAddress {
    std::string address; ///< without brackets
    std::uint16_t port = 0;
    bool loopback = false;
    std::string text() const;
};

/// "127.0.0.1:8421", "[::1]:8421", "0.0.0.0:8421", "localhost:8421"; port 0 takes any free one.
Result<ListenAddress> parse_listen(std::string_view text);

} // namespace orrery::app
