#pragma once

#include "core/clock.h"
#include "core/result.h"
#include "net/outbound.h"

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

/// The address of a literal; null if the host is a name.
Addresses literal_address(const std::string& host, std::uint16_t port);

/// The addresses that the rules permit (null: all of them); the first denial if none is left.
Result<Addresses> permitted_addresses(const net::OutboundRules* rules, Addresses addresses);

/// Resolves names on its own threads, because the system's resolver blocks. An answer is used for 30 s. An older answer is still
/// used while the name is resolved again, for up to an hour, so that an unavailable name server takes no target down. Thread-safe.
class Resolver {
public:
    /// `not_found`: the name does not exist. `unavailable`: the name server did not answer.
    using Resolve = std::function<Result<std::vector<Address>>(const std::string& host)>;
    Resolver();
    explicit Resolver(Resolve resolve);
    ~Resolver();
    /// Cancels all queries; no callback runs after it.
    void stop();

    using Answer = Result<Addresses>;
    /// The known addresses, with the port. Null if they are not known; then `then` is called later from another thread.
    Addresses find(const std::string& host, std::uint16_t port, SteadyTime now, std::function<void(Answer)> then);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::health
