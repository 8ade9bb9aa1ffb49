#include "drivers/keystone/keystone_messages.h"

#include "core/ascii.h"
#include "drivers/rest/rest.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::drivers {

namespace {

bool is_plain_name(std::string_view text) {
    return !text.empty() && text.size() <= 256 &&
           std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

} // namespace

std::string login_request(const KeystoneOptions& options) {
    const auto domain = [](const std::string& name) { return json::object{{"name", name}}; };
    json::object user{{"name", options.user}, {"domain", domain(options.user_domain)}, {"password", options.password}};
    json::object identity{{"methods", json::array{"password"}}, {"password", json::object{{"user", std::move(user)}}}};
    json::object project{{"name", options.project}, {"domain", domain(options.project_domain)}};
    json::object scope{{"project", std::move(project)}};
    return json::serialize(json::object{{"auth", json::object{{"identity", std::move(identity)}, {"scope", std::move(scope)}}}});
}

Result<WallTime> read_expiry(std::string_view body) {
    TRY(const auto document, read_answer("Keystone", body));
    auto expires_at = from_rfc3339(text_at(object_at(as_object(document), "token"), "expires_at"));
    if (!expires_at.ok()) return Error{Code::unavailable, "the answer of Keystone has no expiry of the token"};
    return *expires_at;
}

Result<identity::TokenSource::Answer> read_holder(const KeystoneOptions& options, std::string_view body) {
    TRY(const auto document, read_answer("Keystone", body));
    const auto& token = object_at(as_object(document), "token");
    const auto& user = object_at(token, "user");
    auto name = text_at(user, "name");
    const auto domain = text_at(object_at(user, "domain"), "name");
    auto expires_at = from_rfc3339(text_at(token, "expires_at"));
    if (!is_plain_name(name) || !is_plain_name(domain) || !expires_at.ok())
        return Error{Code::unavailable, "the answer of Keystone does not name the holder of the token"};
    if (ascii_lower(domain) != ascii_lower(options.user_domain)) name += "@" + domain;

    const auto refused = [&](std::string why) {
        return Error{Code::unauthenticated, fmt::format("the token of {} {}", name, why)};
    };
    if (!options.projects.empty()) {
        const auto& project = object_at(token, "project");
        const auto project_name = text_at(project, "name"), project_id = text_at(project, "id");
        const auto project_domain = ascii_lower(text_at(object_at(project, "domain"), "name"));
        const bool wanted = std::any_of(options.projects.begin(), options.projects.end(), [&](const auto& one) {
            // An id is unique; a name is unique only within its domain.
            return !one.empty() &&
                   (one == project_id || (one == project_name && project_domain == ascii_lower(options.project_domain)));
        });
        if (!wanted) return refused("belongs to a project that is not in identity.keystone.projects");
    }
    auto role = identity::Role::nobody;
    for (const auto& held : array_at(token, "roles"))
        for (const auto& [theirs, ours] : options.roles)
            if (ascii_lower(theirs) == ascii_lower(text_at(as_object(held), "name"))) role = std::max(role, ours);
    if (role == identity::Role::nobody) return refused("has no role that is in identity.keystone.roles");

    identity::TokenSource::Answer answer;
    answer.principal.user = std::move(name);
    answer.principal.role = role;
    answer.expires_at = *expires_at;
    return answer;
}

bool is_token_text(std::string_view token) {
    return !token.empty() && token.size() <= 8192 &&
           std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

} // namespace orrery::drivers
