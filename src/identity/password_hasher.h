#pragma once

#include "core/task.h"

#include <cstddef>
#include <memory>
#include <string>

namespace orrery::identity {

/// Hashes passwords on its own threads, so that a flood of logins delays no other work. At most `max_concurrent` hashes run (64 MiB
/// and one thread each), `max_waiting` calls wait, and further calls get `throttled`. Loop thread only.
class PasswordHasher {
public:
    PasswordHasher(std::size_t max_concurrent, std::size_t max_waiting);
    ~PasswordHasher();
    Task<std::string> hash(Context ctx, std::string password);
    Task<bool> verify(Context ctx, std::string hash, std::string password);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::identity
