#include "api/problem.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>

namespace orrery::api {

namespace json = boost::json;

namespace {

bool names_field(const Error& error, std::string_view path) {
    return std::any_of(error.fields.begin(), error.fields.end(), [&](const FieldError& field) { return field.path == path; });
}

} // namespace

int status_of(const Error& error) {
    switch (error.code) {
    case Code::invalid: return 400;
    case Code::unauthenticated: return 401;
    case Code::denied: return 403;
    case Code::not_found: return 404;
    case Code::conflict: return names_field(error, precondition_field) ? 412 : 409;
    case Code::compacted: return 410;
    case Code::too_large: return 413;
    case Code::unsupported: return names_field(error, "Content-Type") ? 415 : names_field(error, "Accept") ? 406 : 405;
    case Code::throttled: return 429;
    case Code::cancelled: return 503;
    case Code::timeout: return 504;
    case Code::unavailable: return 503;
    case Code::no_space: return 507;
    case Code::internal: return 500;
    }
    return 500;
}

std::string problem_text(const Context& ctx, const Error& error) {
    const int status = status_of(error);
    json::object body{
        {"title", net::reason_phrase(status)}, {"status", status}, {"code", name_of(error.code)}, {"detail", error.message}};
    if (!error.remedy.empty()) body["remedy"] = error.remedy;
    if (!error.fields.empty()) {
        json::array fields;
        for (const auto& field : error.fields) fields.push_back({{"path", field.path}, {"message", field.message}});
        body["fields"] = std::move(fields);
    }
    if (error.code == Code::denied && names_field(error, new_password_field)) body["reason"] = "password_change_required";
    body["request_id"] = ctx.id();
    return json::serialize(body);
}

net::Response problem(const Context& ctx, const Error& error) {
    net::Response response{status_of(error), {{"Content-Type", "application/problem+json"}}, problem_text(ctx, error)};
    if (response.status == 401) response.headers.add("WWW-Authenticate", "Bearer realm=\"orrery\"");
    if (response.status == 429 || response.status == 503) response.headers.add("Retry-After", "1");
    return response;
}

} // namespace orrery::api
