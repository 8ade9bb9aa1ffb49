#pragma once

#include "jobs/artefacts.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// For tests: machines with files.
class FakeCollector final : public Collector {
public:
    std::map<std::string, std::string> files; ///< "n-1:/var/log/x" → what it holds
    std::vector<std::string> asked;
    bool away = false; ///< machines cannot be reached

    Task<Found> fetch(Context ctx, Attempt attempt, Target target, std::string path, std::size_t most) override {
        asked.push_back(target.node.name + ":" + path);
        if (away) co_return Error{Code::unavailable, "no route to host"};
        const auto found = files.find(asked.back());
        if (found == files.end()) co_return Found{{}, "is not there"};
        if (found->second.size() > most) co_return Found{{}, "is too large"};
        co_return Found{found->second, {}};
    }
};

} // namespace orrery::jobs
