#pragma once

#include "fleet/benchmark/outliers.h"
#include "fleet/model.h"
#include "resource/resources.h"

#include <boost/json/object.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

/// The machines of the store with all that is known about them.
namespace orrery::fleet {

/// The stored records that planning reads. Collected on the loop thread; records are immutable, so that any thread may read them.
struct FleetRecords {
    std::vector<store::RecordPtr> machines, facts, benchmarks, flavors, roles, images, plans;
    static FleetRecords collect(const resource::Resources& resources);
};

/// A machine as stored, parsed once for each revision.
struct StoredMachine {
    MachineSpec spec;
    std::string digest; ///< of spec and deployment
};
/// Facts of one machine.
struct StoredFacts {
    std::string machine;
    std::vector<Fact> facts;
    HardwareProperties properties;
    std::vector<Metric> metrics; ///< ramdisks report measurements among the facts too
    std::string digest;
};
/// One benchmark run.
struct StoredBenchmark {
    std::string machine, measured_at;
    std::vector<Metric> metrics;
    std::string digest;
};

struct InventoryMachine {
    std::shared_ptr<const StoredMachine> stored;
    std::shared_ptr<const StoredFacts> facts; ///< null: not introspected
    HardwareProperties properties;            ///< found, or declared where nothing was found
    MachinePerformance performance;
    std::string digest; ///< of all of the above
    const MachineSpec& spec() const { return stored->spec; }
};

/// All machines, in the order of their names.
struct Inventory {
    std::vector<InventoryMachine> machines;
    const InventoryMachine* find(std::string_view name) const;
};

/// Parses records; what has not changed since the last call is not parsed again. Safe to use from several threads.
class InventoryReader {
public:
    /// `ignored_categories` of facts do not distinguish hardware when benchmarks are compared.
    Inventory read(const FleetRecords& records, const std::set<std::string>& ignored_categories);

private:
    template <class T> using Cache = std::unordered_map<std::string, std::pair<store::Revision, std::shared_ptr<const T>>>;
    template <class T, class Parse>
    static std::vector<std::shared_ptr<const T>> parse_all(Cache<T>& cache, const std::vector<store::RecordPtr>& records,
                                                           Parse parse);
    std::mutex mutex_;
    Cache<StoredMachine> machines_;
    Cache<StoredFacts> facts_;
    Cache<StoredBenchmark> benchmarks_;
};

json::object to_json(const HardwareProperties& properties);
/// {"verdict", "message", "evidence": [...]}, with at most `max_evidence` measurements.
json::object to_json(const MachinePerformance& performance, std::size_t max_evidence = 10);

} // namespace orrery::fleet
