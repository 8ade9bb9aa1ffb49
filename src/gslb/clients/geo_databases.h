#pragma once

#include "core/task.h"
#include "gslb/clients/geo_classes.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::gslb {

/// The geo databases of the server (setting `dns.geo_databases`). Reads the files and classifies clients on a thread of its own;
/// the present classes are used until new ones are ready. Loads a replaced file within seconds; a missing or damaged file changes
/// only the message. Loop thread only.
class GeoDatabases {
public:
    struct Options {
        std::vector<std::filesystem::path> files; ///< at most max_geo_databases; empty: no client has a location
        Duration poll_interval = std::chrono::seconds(10);
        std::uintmax_t max_bytes = 1U << 30U;
    };
    /// Reads the files before it returns, so that the first answers are right. `clock` must outlive this.
    GeoDatabases(asio::any_io_executor executor, Clock& clock, Options options);
    ~GeoDatabases();

    /// Null while the classes are being computed; `report_to` then reports. Before `run` the result is computed at once. The caller
    /// keeps the result: queries whose result no caller keeps are not computed again when a file changes.
    std::shared_ptr<const GeoClasses> classify(const GeoQuery& query);
    /// Called when results change or become available.
    void report_to(std::function<void()> on_change);

    /// Polls the files. Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx);

    std::vector<std::pair<std::string, double>> gauges() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
