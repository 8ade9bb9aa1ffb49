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
    /// Allow http:// beyond loopback, where the password and every token can be read on the way.
    bool allow_plaintext = false;
    std::string user; ///< the service user, which is allowed to validate tokens
    std::string user_domain = "Default";
    std::string password;
    std::string project = "service";
    std::string project_domain = "Default";
    std::map<std::string, identity::Role> roles; ///< by Keystone role, without regard to case; the highest role counts
    /// Names or ids of projects; where not empty, only tokens of these projects are accepted.
    std::vector<std::string> projects;
    Duration timeout = std::chrono::seconds(10); ///< of one check, with the login of the service user
};

/// Validates tokens with a Keystone v3. The source logs in as the service user at the first token, and again when that login
/// expires or is refused. A user of another domain than the service user's is called name@domain. `client` verifies the
/// certificate. Returns `invalid` where the options are not valid.
Result<std::unique_ptr<identity::TokenSource>> keystone_source(net::HttpClient& client, Clock& clock, KeystoneOptions options);

} // namespace orrery::drivers
