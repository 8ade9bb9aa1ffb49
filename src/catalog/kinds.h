#pragma once

#include "resource/kind.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::catalog {

namespace json = boost::json;

/// A service by name: how many of it there should be, how to tell that one works, who needs it.
resource::Kind service_kind();
/// One running (or soon to run) instance of a service on a node.
resource::Kind instance_kind();
/// A node as the catalog knows it beyond its Node: one that registered itself from outside, or checks of a whole machine.
resource::Kind catalog_node_kind();

/// How many instances are wanted: "3", "hosts(oc)", "hosts(oc)+hosts(ocdb)+1".
struct Wanted {
    std::int64_t number = 0;
    std::vector<std::string> roles; ///< each counts the Nodes whose label `role` is that
    /// From an integer or a text. `invalid` says what would be right.
    static Result<Wanted> parse(const json::value& value);
    std::string text() const;
};

/// A name for the resource of an instance or node that came with one of its own: readable, valid, the same each time, and never
/// that of another.
std::string resource_name(std::string_view node, std::string_view id);

} // namespace orrery::catalog
