#pragma once

#include "core/task.h"
#include "net/http_client.h"

#include <memory>
#include <string>

namespace orrery::drivers {

/// How we log in where we call the services of an OpenStack ourselves: as a user, or with an application credential.
struct OpenstackLogin {
    std::string url; ///< of Keystone: "https://keystone:5000/v3", with or without the /v3
    /// http:// beyond loopback, of Keystone and of the services: tokens and the password can then be read on the way.
    bool allow_plaintext = false;
    std::string user;
    std::string user_domain = "Default";
    std::string password;
    std::string project = "service";
    std::string project_domain = "Default";
    std::string credential; ///< id of an application credential, in place of user and project
    std::string credential_secret;
    std::string region;                ///< of the services; empty: the first there is
    std::string interface_ = "public"; ///< or internal, admin
};

/// A login at Keystone that lasts: one token for all who call through it, got when first needed, renewed when four fifths of its
/// life are over, and once, at once, when a service no longer takes it. Whoever comes while it is being got waits for it. Loop
/// thread only.
class OpenstackSession {
public:
    /// `invalid`, naming the field below `where` ("designate.keystone"), where the login cannot be right.
    static Result<std::shared_ptr<OpenstackSession>> make(net::HttpClient& client, Clock& clock, std::string where,
                                                          OpenstackLogin login);
    virtual ~OpenstackSession() = default;

    struct Call {
        std::string service;  ///< its type in the catalog: "dns", "load-balancer"
        std::string endpoint; ///< in place of the catalog's; may be empty
        std::string method = "GET";
        std::string path; ///< below the endpoint: "/v2/zones"; a version that the endpoint ends with is not doubled
        std::string body; ///< JSON; may be empty
        std::size_t max_answer = 8U << 20U;
    };
    /// The service's answer, whatever its status, but 401 only where a new token did not help. `unauthenticated`: Keystone does not
    /// take our login; `not_found`: no such service in the catalog; `unavailable`, `timeout`.
    virtual Task<net::ClientResponse> send(Context ctx, Call call) = 0;
};

} // namespace orrery::drivers
