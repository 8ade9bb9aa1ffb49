#pragma once

#include "core/task.h"
#include "identity/identity.h"
#include "net/http_client.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace orrery::drivers {

struct KeystoneOptions {
    std::string url; ///< "https://keystone:5000/v3", with or without the /v3
    /// http:// beyond loopback: our password and every token can then be read on the way.
    bool allow_plaintext = false;
    std::string user; ///< our own, that may validate tokens
    std::string user_domain = "Default";
    std::string password;
    std::string project = "service";
    std::string project_domain = "Default";
    std::map<std::string, identity::Role> roles; ///< from a Keystone role, whatever its case; the greatest counts
    /// Where not empty, only tokens of these projects (names or ids) count.
    std::vector<std::string> projects;
    Duration timeout = std::chrono::seconds(10); ///< for one check, our own login included
};

/// Asks a Keystone v3 who holds a token. Logs in as its own user when the first token comes, and again when that login has expired
/// or is no longer taken. A user outside of our own user's domain is called name@domain. `client` verifies the certificate.
/// `invalid` where the options cannot be right.
Result<std::unique_ptr<identity::TokenSource>> keystone_source(net::HttpClient& client, Clock& clock, KeystoneOptions options);

} // namespace orrery::drivers
