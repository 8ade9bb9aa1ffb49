#pragma once

#include "net/http_client.h"

#include <boost/json/value.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What drivers of foreign HTTP APIs share.
namespace orrery::drivers {

namespace json = boost::json;

/// The base of an API, without a slash at its end. `invalid`, naming `field`, for what is no URL, and for http:// beyond loopback
/// unless that is allowed: our credentials can then be read on the way.
Result<net::Url> api_base(std::string_view field, std::string_view url, bool allow_plaintext);
bool is_loopback(std::string_view host);
/// May it stand in a header? Printable ASCII without spaces, at most 8192 of it.
bool is_header_token(std::string_view text);

/// An answer that is no success, classed: 400 and 422 invalid, 401 unauthenticated, 403 denied, 404 not_found, 409 and 412
/// conflict, 413 too_large, 429 throttled, all else unavailable. `words`: what the service says, cut and made one line.
Error refusal(std::string_view who, int status, std::string_view words);
/// One line of at most `most` characters, without control characters.
std::string one_line(std::string_view text, std::size_t most = 300);

/// A body as JSON. `unavailable`, naming `who`, for what is none: a service in trouble says anything.
Result<json::value> read_answer(std::string_view who, std::string_view body);

/// Fields of what may be anything: null, "", `otherwise` or nothing where they are absent or of another type.
const json::value* at(const json::value* of, std::string_view key);
std::string text_at(const json::value* of, std::string_view key);
std::int64_t number_at(const json::value* of, std::string_view key, std::int64_t otherwise);
bool flag_at(const json::value* of, std::string_view key, bool otherwise);
const json::array& list_at(const json::value* of, std::string_view key);

} // namespace orrery::drivers
