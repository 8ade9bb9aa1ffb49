#pragma once

#include "resource/object.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <string>
#include <string_view>
#include <vector>

/// Conversion between the resources of the Kosmos API (OpenStack GSLB) v0.1 and our kinds. Pure functions; kosmos_routes.cpp has
/// the routes.
namespace orrery::api::kosmos {

namespace json = boost::json;

/// The spec and labels of a resource, made from a request body.
struct ResourceBody {
    json::object spec, labels;
};

/// A field of a Kosmos resource.
struct BodyField {
    enum class Use {
        both,     ///< in requests and responses
        required, ///< the same, and required to create a resource
        shown,    ///< in responses; ignored in requests
        sent,     ///< in requests only
        listed,   ///< in some lists only; refused in requests
    };
    std::string name, doc;
    json::object schema; ///< JSON Schema
    Use use = Use::both;
};
const std::vector<BodyField>& gslb_fields();
const std::vector<BodyField>& pool_fields();
const std::vector<BodyField>& member_fields();
const std::vector<BodyField>& monitor_fields();

/// A resource type of Kosmos: its names, our kind, and the conversions.
struct ResourceType {
    std::string single, plural, kind;
    json::object (*shown)(const resource::Object&);
    /// Applies a request body to `before`. `invalid` names the field.
    Result<ResourceBody> (*read)(const json::object& body, ResourceBody before);
    const std::vector<BodyField>& (*fields)();
};
const ResourceType& gslb();
const ResourceType& pool();
const ResourceType& member();
const ResourceType& monitor();

/// JSON Schemas of a response, and of a request that creates or changes a resource.
json::object answer_schema(const ResourceType& type);
json::object request_schema(const ResourceType& type, bool creates);

/// The fields of a request: of {"gslb": {...}}, or of the top level. `invalid` for anything else.
Result<json::object> body_of(const ResourceType& type, const json::value& document);
Error wrong(std::string field, std::string message);

/// The states of Kosmos: PENDING, ACTIVE and ERROR of gslbs and monitors; pools and members also have DEGRADED and DOWN.
std::string_view gslb_state(const json::object& status);
std::string_view pool_state(const json::object& status);
std::string_view member_state(const json::object& status);

} // namespace orrery::api::kosmos
