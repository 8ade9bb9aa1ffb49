#pragma once

#include "core/task.h"
#include "net/process.h"

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orrery::health {

/// Runs the programs of checks, with a limit of how many run at once. Shared by all probes that run programs. Loop thread only.
class Programs {
public:
    /// `account`: the programs run as this user; nullopt: as the user of this process. An error: no program may run, and every
    /// attempt returns that error.
    explicit Programs(asio::any_io_executor executor, std::size_t at_once = 16,
                      Result<std::optional<net::ProcessUser>> account = std::optional<net::ProcessUser>{});
    ~Programs();

    struct Ended {
        int exit_code = -1;
        std::string output;
    };
    /// Runs a program without a shell, in its own process group, which is killed with all children at the deadline. The program has
    /// the working directory /, this environment plus PATH and a locale, the standard streams only, and cannot gain privileges.
    /// `throttled`: the limit was reached until the deadline. `denied`: the program may not run.
    Task<Ended> run(Context ctx, std::vector<std::string> argv, std::map<std::string, std::string> environment);
    std::size_t running() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::health
