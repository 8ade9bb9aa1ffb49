#pragma once

#include "core/task.h"
#include "health/lookout.h"
#include "store/store.h"

#include <memory>
#include <string>

namespace orrery::gslb {

/// Servers that share a store are vantages of each other. Each has a sign of life there, under a lease, with whether its word
/// counts, and an entry for each target that it does not find well; what it does not mention it finds well. So a server among many
/// writes only what is out of order, and one that dies takes its word with it. While this server cannot keep its own sign of life,
/// it does not hear the others either, and counts on none of them. Loop thread only.
class Peers {
public:
    struct Options {
        std::string server; ///< as the others know it
        Duration ttl = std::chrono::seconds(6);
        Duration gather = std::chrono::milliseconds(20);
        Duration ready_after = std::chrono::seconds(60); ///< with whatever could not be looked at by then
    };
    /// All must outlive this.
    Peers(asio::any_io_executor executor, store::Store& store, Clock& clock, health::Lookout& lookout, Options options);
    ~Peers();

    /// Works until it is cancelled; then its sign of life is taken back.
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
