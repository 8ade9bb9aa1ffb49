#pragma once

#include "core/task.h"
#include "net/ssh.h"
#include "resource/kinds.h"
#include "resource/resources.h"

namespace orrery::drivers {

/// Says how to log in to a node.
class Logins {
public:
    virtual ~Logins() = default;
    /// With the private key in the clear, the pinned host key and the way there. `not_found`, `invalid` in words.
    virtual Result<net::SshTarget> login(const resource::Node& node) = 0;
};

/// From the resources: the key is the value "private_key" of the Secret that the Node names; the host's key is `ssh.host_key`, or,
/// where the Node says `ssh.trust_first_use`, the one that was seen first, which is kept in the Node's status. Loop thread only.
class ResourceLogins final : public Logins {
public:
    /// `fence`: writes of the status count only while this server leads; may be null.
    explicit ResourceLogins(resource::Resources& resources, const store::Fence* fence = nullptr)
        : resources_(resources), fence_(fence) {}
    Result<net::SshTarget> login(const resource::Node& node) override;

private:
    Result<net::SshTarget> login(const resource::Node& node, int depth);
    Task<Unit> keep_host_key(Context ctx, std::string node, std::string host_key);

    resource::Resources& resources_;
    const store::Fence* fence_;
};

} // namespace orrery::drivers
