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

/// The server cookie (RFC 9018) of a client. All servers with the same secret make the same cookie. `now`: Unix time in seconds.
ServerCookie make_cookie(const CookieSecret& secret, Bytes client_cookie, const Client& client, std::uint32_t now);

struct CookieCheck {
    bool valid = false;
    bool renew = true; ///< send a new cookie: the client has none, or its cookie is over half an hour old
};
/// Checks that the server cookie was made with one of the secrets, for this client, within the last hour.
CookieCheck check_cookie(std::span<const CookieSecret> secrets, Bytes client_cookie, Bytes server_cookie, const Client& client,
                         std::uint32_t now);

} // namespace orrery::dns
