#pragma once

#include "resource/object.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <string>
#include <string_view>

/// What the API that Kosmos (OpenStack GSLB) specified, v0.1, says, in the words of our kinds, and the other way round. Pure: the
/// routes are in kosmos_routes.cpp.
namespace orrery::api::kosmos {

namespace json = boost::json;

/// What a body says of a resource.
struct Written {
    json::object spec, labels;
};

/// One sort of thing: what it is called there, what it is here, and how one becomes the other.
struct Sort {
    std::string single, plural, kind;
    json::object (*shown)(const resource::Object&);
    /// On top of what was there before. `invalid` names the field.
    Result<Written> (*read)(const json::object& body, Written before);
};
const Sort& gslb();
const Sort& pool();
const Sort& member();
const Sort& monitor();

/// {"gslb": {...}}, or the fields by themselves. `invalid` for anything else.
Result<json::object> body_of(const Sort& sort, const json::value& document);
Error wrong(std::string field, std::string message);

std::string text_in(const json::object& object, std::string_view key); ///< empty where there is none
const json::array& list_in(const json::object& object, std::string_view key);

/// The states of Kosmos: of gslbs and monitors PENDING, ACTIVE, ERROR; of pools and members also DEGRADED and DOWN, each of which
/// may follow the other.
std::string_view gslb_state(const json::object& status);
std::string_view pool_state(const json::object& status);
std::string_view member_state(const json::object& status);

} // namespace orrery::api::kosmos
