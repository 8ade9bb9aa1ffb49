#pragma once

#include "resource/kind.h"

#include <boost/json/object.hpp>

namespace orrery::resource {

/// JSON Schema (the dialect of OpenAPI 3.1) of a field, of what a user sends for a kind, and of what is given back.
json::object schema_of(const Field& field);
json::object request_schema(const Kind& kind);
json::object response_schema(const Kind& kind);

/// What the command line needs to know of a kind: names, columns, verbs, fields (for completion and `explain`).
json::object describe_kind(const Kind& kind);

} // namespace orrery::resource
