#pragma once

#include "resource/kind.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::catalog {

namespace json = boost::json;

/// A service: wanted number of instances, checks, dependants.
resource::Kind service_kind();
/// One running (or soon to run) instance of a service on a node.
resource::Kind instance_kind();
/// Catalog data of a node in addition to its Node: a node that registered itself, or checks of a whole host.
resource::Kind catalog_node_kind();

/// Registers the kinds and their undeclared uses: a Service or a Node with instances cannot be removed.
void add_kinds(resource::Registry& registry);

/// The wanted number of instances: "3", "hosts(oc)", "hosts(oc)+hosts(ocdb)+1".
struct Wanted {
    std::int64_t number = 0;
    std::vector<std::string> roles; ///< each counts the Nodes with that label `role`
    /// Parses an integer or a text. Errors: `invalid` with the expected format.
    static Result<Wanted> parse(const json::value& value);
    std::string text() const;
};

/// The name of the resource of an instance or node that was registered under a foreign name: readable, valid, deterministic and
/// unique.
std::string resource_name(std::string_view node, std::string_view id);

} // namespace orrery::catalog
