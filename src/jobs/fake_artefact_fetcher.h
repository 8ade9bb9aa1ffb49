#pragma once

#include "jobs/artefacts.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// For tests: nodes with files.
class FakeArtefactFetcher final : public ArtefactFetcher {
public:
    std::map<std::string, std::string> files; ///< "n-1:/var/log/x" → content
    std::vector<std::string> requested;
    bool unreachable = false; ///< nodes cannot be reached

    Task<Found> fetch(Context ctx, Attempt attempt, Target target, std::string path, std::size_t max) override {
        requested.push_back(target.node.name + ":" + path);
        if (unreachable) co_return Error{Code::unavailable, "no route to host"};
        const auto found = files.find(requested.back());
        if (found == files.end()) co_return Found{{}, "is not there"};
        if (found->second.size() > max) co_return Found{{}, "is too large"};
        co_return Found{found->second, {}};
    }
};

} // namespace orrery::jobs
