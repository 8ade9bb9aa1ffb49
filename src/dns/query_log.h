#pragma once

#include "dns/authority.h"

#include <cstdint>
#include <memory>
#include <string>

namespace orrery::dns {

/// Writes the queries of an Authority to a file, on its own thread. Answering threads only write to ring buffers and never wait.
/// One line per query:
///
///     2026-11-16T18:30:00.123Z udp 192.0.2.7 www.example.org A IN NOERROR 62
///
/// The fields: time, transport, client, name, type, class, rcode, response size (0: dropped by the rate limit). A full file is
/// renamed to FILE.1, replacing the previous one. If the file was moved away, a new one is created.
class QueryLog {
public:
    struct Options {
        std::string file;
        std::uint64_t max_file_bytes = 64 << 20; ///< there are at most two files
    };
    QueryLog(std::shared_ptr<const Authority> authority, Options options);
    ~QueryLog(); ///< stops the thread
    QueryLog(const QueryLog&) = delete;
    QueryLog& operator=(const QueryLog&) = delete;

    /// `unavailable` if the file cannot be opened.
    Result<Unit> start();
    /// Writes the buffered queries and stops the thread.
    void stop();

    struct Counts {
        std::uint64_t written = 0;
        std::uint64_t lost = 0; ///< write errors; a full buffer is counted in Authority::Statistics::query_log_dropped
    };
    Counts counts() const;
    static std::string line(const Authority::LoggedQuery& query);

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::dns
