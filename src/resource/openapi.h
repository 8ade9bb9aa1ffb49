#pragma once

#include "resource/kind.h"

#include <boost/json/object.hpp>

namespace orrery::resource {

/// The direction of a document. Requests may have null for absent fields; responses have a mark instead of secrets.
enum class Side { request, answer };

/// JSON Schema (the dialect of OpenAPI 3.1) of a field.
json::object schema_of(const Field& field, Side side);
/// Schema of the request that creates a resource.
json::object request_schema(const Kind& kind);
/// Schema of the request that replaces a resource; the name is in the path.
json::object replacement_schema(const Kind& kind);
/// Schema of the response.
json::object response_schema(const Kind& kind);

/// Description of a kind for the command line: names, columns, verbs, fields (for completion and `explain`).
json::object describe_kind(const Kind& kind);

} // namespace orrery::resource
