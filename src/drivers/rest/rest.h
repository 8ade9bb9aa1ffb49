#pragma once

#include "core/json_fields.h"
#include "net/http_client.h"

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <string>
#include <string_view>

/// Shared code of the drivers for HTTP APIs: base URLs, refusals as errors, and bodies as JSON.
namespace orrery::drivers {

/// Parses the base URL of an API and removes the slash at its end. Returns `invalid`, naming `field`, for anything that is not a
/// URL, and for http:// beyond loopback unless `allow_plaintext`, because credentials could then be read on the way.
Result<net::Url> api_base(std::string_view field, std::string_view url, bool allow_plaintext);
/// Can the text be the value of a header? Printable ASCII without spaces, at most 8192 characters.
bool is_header_token(std::string_view text);

/// Makes an error of a response that is not a success: 400 and 422 invalid, 401 unauthenticated, 403 denied, 404 not_found, 409 and
/// 412 conflict, 413 too_large, 429 throttled, anything else unavailable. `message` is the service's own text; it is cut and made
/// one line.
Error refusal(std::string_view service, int status, std::string_view message);
/// Replaces control characters by spaces and cuts the text to `max` characters.
std::string one_line(std::string_view text, std::size_t max = 300);

/// Parses a body as JSON. Returns `unavailable`, naming the service, where the body is not JSON: a failing service or a proxy in
/// front of it answers with anything.
Result<json::value> read_answer(std::string_view service, std::string_view body);
/// The value as an object, for the readers of core/json_fields.h; an empty object, which lives for ever, for any other type.
const json::object& as_object(const json::value& value);

} // namespace orrery::drivers
