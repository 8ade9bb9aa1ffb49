#pragma once

#include "dns/server.h"

#include <array>
#include <cstdint>
#include <span>

namespace orrery::dns {

using CookieSecret = std::array<std::uint8_t, 16>;
using ServerCookie = std::array<std::uint8_t, 16>;

/// SipHash-2-4.
std::uint64_t siphash(const CookieSecret& key, Bytes bytes);

/// RFC 9018: the cookie a client at this address is given, the same from every server that has the secret. `now`: seconds.
ServerCookie make_cookie(const CookieSecret& secret, Bytes client_cookie, const Asker& asker, std::uint32_t now);

struct CookieCheck {
    bool valid = false;
    bool renew = true; ///< give it a new one: it has none, or one that is no longer young
};
/// Whether the server part was made with one of the secrets, for this client, at most an hour ago.
CookieCheck check_cookie(std::span<const CookieSecret> secrets, Bytes client_cookie, Bytes server_cookie, const Asker& asker,
                         std::uint32_t now);

} // namespace orrery::dns
