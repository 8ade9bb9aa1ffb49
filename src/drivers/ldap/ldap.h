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
    std::filesystem::path ca; ///< authority of the directory's certificate; empty: the system's
    /// Allow ldap:// without TLS, for loopback addresses only.
    bool plain_on_loopback = false;
    std::string bind_dn; ///< DN that searches; empty: anonymous
    std::string bind_password;
    std::string user_base;
    std::string user_filter = "(uid={user})";
    std::string user_attribute = "uid"; ///< attribute with the user's name; without it, the name that was typed
    std::string group_base;             ///< empty: the groups are the user's memberOf
    std::string group_filter = "(member={dn})";
    std::map<std::string, identity::Role> roles; ///< by a group's cn or DN, without regard to case; the highest counts
    Duration timeout = std::chrono::seconds(5);  ///< of the whole check
};

/// Checks passwords with an LDAP directory: searches the user's entry, reads its groups, then binds as the user. The certificate is
/// always verified. libldap blocks, so the source has two threads of its own; `throttled` when too many checks wait for them.
/// Returns `invalid` where the options are not valid; the first login shows whether the directory answers. Loop thread only.
Result<std::unique_ptr<identity::PasswordSource>> ldap_source(LdapOptions options);

} // namespace orrery::drivers
