#pragma once

#include "core/task.h"
#include "net/ssh.h"
#include "resource/kinds.h"
#include "resource/resources.h"

namespace orrery::drivers {

/// Port: how to log in to a node.
class Logins {
public:
    virtual ~Logins() = default;
    /// The private key in clear text, the pinned host key and the jump hosts. `not_found` or `invalid` names what is missing.
    virtual Result<net::SshTarget> login(const resource::Node& node) = 0;
};

/// Logins from the resources: the key is the value "private_key" of the Secret that the Node names; the host key is `ssh.host_key`
/// or, with `ssh.trust_first_use`, the first one that the host presented, which is stored in the Node's status. Loop thread only.
class ResourceLogins final : public Logins {
public:
    /// `fence`: the status is written only while this server leads; may be null.
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
