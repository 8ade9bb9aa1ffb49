#include "api/problem.h"

#include "identity/identity.h"

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
    case Code::conflict: return names_field(error, precondition_field) ? 412 : 409;
    case Code::unsupported: return names_field(error, "Content-Type") ? 415 : names_field(error, "Accept") ? 406 : 405;
    default: return net::http_status(error.code);
    }
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
    if (error.code == Code::denied && names_field(error, identity::new_password_field)) body["reason"] = "password_change_required";
    body["request_id"] = ctx.id();
    return json::serialize(body);
}

net::Response problem(const Context& ctx, const Error& error) {
    net::Response response{status_of(error), {{"Content-Type", "application/problem+json"}}, problem_text(ctx, error)};
    if (response.status == 401) response.headers.add("WWW-Authenticate", "Bearer realm=\"orrery\"");
    if (response.status == 429 || response.status == 503) response.headers.add("Retry-After", "1");
    for (const auto& field : error.fields)
        if (response.status == 405 && field.path == allow_field) response.headers.add("Allow", field.message);
    return response;
}

} // namespace orrery::api
