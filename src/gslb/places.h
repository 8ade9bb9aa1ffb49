#pragma once

#include "core/task.h"
#include "gslb/geo_classes.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::gslb {

/// Where clients are, from MaxMind DB files. Files are read, and clients sorted, on a thread of its own; what is there now is used
/// until that is done. A file that is replaced is taken over within seconds; one that cannot be read, or is damaged, changes
/// nothing but the words. Loop thread only.
class Places {
public:
    struct Options {
        std::vector<std::filesystem::path> files; ///< at most most_geo_databases; none: nobody's place is known
        Duration look_every = std::chrono::seconds(10);
        std::uintmax_t most_bytes = 1U << 30U;
    };
    /// Reads the files at once, so that the first answers are right already. `clock` must outlive this.
    Places(asio::any_io_executor executor, Clock& clock, Options options);
    ~Places();

    /// Null: it is being worked out, and will be reported. Until `run` it is worked out at once. Whoever uses it keeps it: what
    /// nobody keeps is not worked out again when a file is another.
    std::shared_ptr<const GeoClasses> sort(const GeoQuestion& question);
    /// Called when some answers are others than before, or are there.
    void report_to(std::function<void()> on_change);

    /// Looks after the files. Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);

    std::vector<std::pair<std::string, double>> gauges() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
