#pragma once

#include "core/context.h"
#include "core/result.h"
#include "net/http_server.h"

namespace orrery::api {

/// The HTTP status of an error. The only place that maps error codes to statuses.
int status_of(const Error& error);

/// An error as an application/problem+json response (RFC 9457): title, status, code, detail, remedy, fields, request_id.
net::Response problem(const Context& ctx, const Error& error);
/// The same document as text, for event streams.
std::string problem_text(const Context& ctx, const Error& error);

/// Field path of an error for a failed If-Match: the status is 412 instead of 409.
constexpr std::string_view precondition_field = "If-Match";
/// Field path of an error for the methods of a path: the Allow header of 405.
constexpr std::string_view allow_field = "Allow";

} // namespace orrery::api
