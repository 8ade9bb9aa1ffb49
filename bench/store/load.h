#pragma once

#include <cstdint>
#include <string>

/// The parameters and the result of one measurement. bench/store/run combines the results.
namespace orrery::bench {

struct Load {
    std::string what;  ///< writes, reads, growth
    std::string where; ///< a file, or etcd's host:port
    int clients = 64;
    double seconds = 3;
    int value = 1024; ///< bytes
    int keys = 1000;  ///< keys that are written and read
    int watchers = 0; ///< watchers besides the writers
    int rewrites = 0; ///< times each key is written again, in bulk, before the measurement
};

struct Found {
    std::uint64_t calls = 0;
    double seconds = 0;
    double cpu_seconds = 0; ///< of this process
    double open_seconds = 0;
    std::uint64_t deliveries = 0;
    std::uint64_t deleted_rows = 0; ///< superseded rows that were deleted during the measurement
    std::string problem;
};

Found load_sqlite(const Load& load);
Found load_etcd(const Load& load);

double cpu_seconds();
double now_seconds();
std::string key_of(unsigned number);

} // namespace orrery::bench
