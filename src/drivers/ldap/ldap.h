#pragma once

#include "core/task.h"
#include "identity/identity.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>

namespace orrery::drivers {

struct LdapOptions {
    std::string url;          ///< "ldaps://host[:port]", or "ldap://host[:port]" with StartTLS
    std::filesystem::path ca; ///< who signed the directory's certificate; empty: the system's
    /// ldap:// without TLS. Accepted for loopback addresses only.
    bool plain_on_loopback = false;
    std::string bind_dn; ///< who searches; empty: anonymous
    std::string bind_password;
    std::string user_base;
    std::string user_filter = "(uid={user})";
    std::string user_attribute = "uid"; ///< what the user is then called; what was typed where the entry has none
    std::string group_base;             ///< empty: the user's memberOf counts
    std::string group_filter = "(member={dn})";
    std::map<std::string, identity::Role> roles; ///< from a group's cn or DN, whatever its case; the greatest counts
    Duration timeout = std::chrono::seconds(5);  ///< for the whole check
};

/// Checks passwords with an LDAP directory: searches the user's one entry, reads its groups, then binds as it. The certificate is
/// always verified. Has two threads of its own, because a directory that hangs must not keep others waiting; `throttled` when too
/// many wait for them. `invalid` where the options cannot be right; whether the directory answers is seen with the first login.
/// Loop thread only.
Result<std::unique_ptr<identity::PasswordSource>> ldap_source(LdapOptions options);

} // namespace orrery::drivers
