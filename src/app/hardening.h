#pragma once

namespace orrery::app {

/// Protects the memory of this process (sealing key, tokens, SSH keys) from other processes of the same user: disables core dumps
/// and ptrace, and makes /proc/PID/mem readable by root only. Child processes are not affected. Call it first in main.
void forbid_dumps();

} // namespace orrery::app
