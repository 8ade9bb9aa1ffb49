#pragma once

#include "dns/authority.h"

#include <cstdint>
#include <memory>
#include <string>

namespace orrery::dns {

/// Writes what an authority was asked to a file, on a thread of its own: who answers only puts it into a ring of fixed size, and
/// never waits. A line a question:
///
///     2026-11-16T18:30:00.123Z udp 192.0.2.7 www.example.org A IN NOERROR 62
///
/// time, transport, client, name, type, class, code, bytes of the answer (0: the client was over its limit). A file that is full
/// becomes FILE.1, in the place of the one before; one that somebody moved away is begun anew.
class QueryLog {
public:
    struct Options {
        std::string file;
        std::uint64_t most_bytes = 64 << 20; ///< of one file; there are two at most
    };
    QueryLog(std::shared_ptr<const Authority> authority, Options options);
    ~QueryLog(); ///< stops
    QueryLog(const QueryLog&) = delete;
    QueryLog& operator=(const QueryLog&) = delete;

    /// `unavailable` where the file cannot be written to.
    Result<Unit> start();
    /// Writes what is left and ends.
    void stop();

    struct Counts {
        std::uint64_t written = 0;
        std::uint64_t lost = 0; ///< that could not be written; those that found no room are the authority's `unlogged`
    };
    Counts counts() const;
    static std::string line(const Authority::Asked& asked);

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::dns
