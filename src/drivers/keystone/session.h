#pragma once

#include "core/task.h"
#include "net/http_client.h"

#include <memory>
#include <string>

namespace orrery::drivers {

/// A login at an OpenStack whose services a driver calls: a user with a password, or an application credential.
struct OpenstackLogin {
    std::string url; ///< of Keystone: "https://keystone:5000/v3", with or without the /v3
    /// Allow http:// beyond loopback, for Keystone and the services. Tokens and the password can be read on the way.
    bool allow_plaintext = false;
    std::string user;
    std::string user_domain = "Default";
    std::string password;
    std::string project = "service";
    std::string project_domain = "Default";
    std::string credential; ///< id of an application credential; replaces user and project
    std::string credential_secret;
    std::string region;                ///< of the services; empty: the first region of the catalog
    std::string interface_ = "public"; ///< or internal, admin
};

/// A login at Keystone that is kept: one token for all callers, fetched at the first call, renewed after four fifths of its
/// lifetime, and renewed once, immediately, when a service refuses it. Concurrent callers wait for one login. Loop thread only.
class OpenstackSession {
public:
    /// Returns `invalid`, naming the field below `where` ("designate.keystone"), where the login is not valid.
    static Result<std::shared_ptr<OpenstackSession>> make(net::HttpClient& client, Clock& clock, std::string where,
                                                          OpenstackLogin login);
    virtual ~OpenstackSession() = default;

    struct Call {
        std::string service;  ///< type of the service in the catalog: "dns", "load-balancer"
        std::string endpoint; ///< overrides the endpoint of the catalog; may be empty
        std::string method = "GET";
        std::string path; ///< below the endpoint: "/v2/zones"; a version at the end of the endpoint is not repeated
        std::string body; ///< JSON; may be empty
        std::size_t max_answer = 8U << 20U;
    };
    /// Returns the service's answer, whatever its status; 401 only where a new token did not help. `unauthenticated`: Keystone
    /// refuses the login; `not_found`: the catalog has no such service; `unavailable`, `timeout`.
    virtual Task<net::ClientResponse> send(Context ctx, Call call) = 0;
};

} // namespace orrery::drivers
