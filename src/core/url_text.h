#pragma once

#include <string>
#include <string_view>

namespace orrery {

/// Masks the credentials of all URLs in a text: "etcd://me:secret@host" becomes "etcd://me:***@host", and "https://token@host"
/// becomes "https://***@host". Use it for each log line, event, error and response that contains a URL, unless net::parse_url
/// accepted the URL (it rejects credentials).
std::string mask_userinfo(std::string_view text);
/// Whether the URL has a user or a password before its host.
bool has_userinfo(std::string_view url);
/// Whether `host` is a loopback address (IPv6 with or without brackets) or "localhost". Other names are not loopback, whatever they
/// resolve to, because that can change.
bool is_loopback_host(std::string_view host);

} // namespace orrery
