#pragma once

#include "core/clock.h"
#include "core/result.h"
#include "resource/resources.h"

#include <boost/json/object.hpp>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Explanations of the state of resources, for `orrery why`. The module that owns a kind explains it; modules that use the kind
/// contribute to the explanation. `app` registers them here, so that the modules do not depend on each other.
namespace orrery::resource {

/// A request to explain one resource.
struct ExplainRequest {
    std::string name;           ///< of the resource
    std::string part = {};      ///< a part of the resource, such as a task of a Job; empty: the whole
    std::string client = {};    ///< LoadBalancer: the address of the client; empty: any
    std::optional<WallTime> at; ///< an earlier time; nullopt: now
};

/// Returns the explanation of one module: an object with a "message" of one sentence; its other members are the evidence. Errors:
/// `not_found` when the module has no information about the resource.
using Explain = std::function<Result<json::object>(const ExplainRequest& request)>;

/// All explainers of this server, by kind. Filled at start-up, read-only afterwards. Loop thread only.
class Explainers {
public:
    enum class History { no, yes }; ///< whether earlier times are supported
    /// Adds an explainer of the kind itself. The first one that succeeds supplies the "message".
    void add(std::string kind, History history, Explain explain);
    /// Adds a contribution about `kind` from resources of kind `from`. Its "message" goes into "notes".
    void contribute(std::string kind, std::string from, Explain explain);

    std::vector<std::string> kinds() const;
    /// Whether the caller may read resources of this kind.
    using MayRead = std::function<bool(std::string_view kind)>;
    /// Returns {"kind", "name", "message", "notes", ...} with the contributions from kinds that the caller may read. Errors:
    /// `not_found` when no module knows the resource; `unsupported` for a kind without an explainer, and for an earlier time of a
    /// kind without history.
    Result<json::object> explain(std::string_view kind, const ExplainRequest& request, const MayRead& may_read) const;

private:
    struct Entry {
        History history = History::no;
        std::string from; ///< of a contribution; empty: it explains the kind itself
        Explain explain;
    };
    std::map<std::string, std::vector<Entry>, std::less<>> by_kind_;
};

/// Explains address, login and maintenance of a Node.
Explain node_explainer(const Resources& resources);

} // namespace orrery::resource
