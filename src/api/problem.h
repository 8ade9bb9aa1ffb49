#pragma once

#include "core/context.h"
#include "core/result.h"
#include "net/http_server.h"

namespace orrery::api {

/// The HTTP status of an error: the one place where codes become statuses.
int status_of(const Error& error);

/// An error as application/problem+json: title, status, code, detail, remedy, fields, request_id.
net::Response problem(const Context& ctx, const Error& error);
/// The same document's text, for event streams.
std::string problem_text(const Context& ctx, const Error& error);

/// The field path by which an error says that If-Match did not hold (412 rather than 409).
constexpr std::string_view precondition_field = "If-Match";
/// The field path by which a login says that a new password is needed.
constexpr std::string_view new_password_field = "new_password";

} // namespace orrery::api
