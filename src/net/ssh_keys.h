#pragma once

#include "core/result.h"

#include <libssh/libssh.h>
#include <memory>
#include <string>
#include <string_view>

/// Keys in the representation of libssh. Private to net/ssh.
namespace orrery::net {

struct SshKeyFree {
    void operator()(ssh_key key) const { ssh_key_free(key); }
};
using SshKey = std::unique_ptr<ssh_key_struct, SshKeyFree>;

Result<SshKey> read_ssh_private_key(const std::string& text);
/// "ssh-ed25519 AAAA... comment".
Result<SshKey> read_ssh_public_key(std::string_view text);
/// "ssh-ed25519 AAAA..."; empty when libssh cannot export the key.
std::string ssh_public_key_text(ssh_key key);
/// "SHA256:..."
std::string ssh_key_fingerprint(ssh_key key);
/// The signature algorithms that fit the type of a host key ("ssh-rsa").
std::string ssh_host_key_algorithms(std::string_view public_key);

} // namespace orrery::net
