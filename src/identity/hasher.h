#pragma once

#include "core/task.h"

#include <cstddef>
#include <memory>
#include <string>

namespace orrery::identity {

/// Password hashing on the pool: a few at a time, some waiting, `throttled` beyond that. A flood of logins costs at most so many
/// threads and 64 MiB for each. Loop thread only.
class Hasher {
public:
    Hasher(Pool& pool, std::size_t at_once, std::size_t waiting);
    ~Hasher();
    Task<std::string> hash(Context ctx, std::string password);
    Task<bool> verify(Context ctx, std::string hash, std::string password);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::identity
