#pragma once

#include "core/clock.h"
#include "core/result.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace orrery::health {

/// A socket address of either family.
struct Address {
    sockaddr_storage storage{};
    socklen_t size = 0;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    int family() const { return storage.ss_family; }
};
using Addresses = std::shared_ptr<const std::vector<Address>>;

/// The address a literal names; null for a name.
Addresses literal_address(const std::string& host, std::uint16_t port);

/// Names become addresses, on threads of their own, because the system's resolver blocks. An answer is used for 30 s; after that
/// the old one is still used while a new one is looked for, for up to an hour, so that a resolver that is away takes nothing down.
/// Thread-safe.
class Names {
public:
    /// `not_found`: there is no such name. `unavailable`: it could not be asked.
    using Resolve = std::function<Result<std::vector<Address>>(const std::string& host)>;
    Names();
    explicit Names(Resolve resolve);
    ~Names();
    /// Ends what is asked; after it, no call comes any more.
    void stop();

    using Answer = Result<Addresses>;
    /// The addresses with the port in them, where they are known; else null, and `then` is called later from another thread.
    Addresses find(const std::string& host, std::uint16_t port, SteadyTime now, std::function<void(Answer)> then);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::health
