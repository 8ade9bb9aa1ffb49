#include "drivers/keystone/keystone_messages.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::drivers {

namespace json = boost::json;

namespace {

const json::value* member(const json::value* of, std::string_view name) {
    const auto* object = of ? of->if_object() : nullptr;
    return object ? object->if_contains(name) : nullptr;
}

std::string text_member(const json::value* of, std::string_view name) {
    const auto* value = member(of, name);
    const auto* text = value ? value->if_string() : nullptr;
    return text ? std::string(*text) : std::string();
}

std::string small_letters(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return out;
}

Result<json::value> read_body(std::string_view body) {
    boost::system::error_code error;
    json::parse_options options;
    options.max_depth = 16;
    auto value = json::parse(body, error, {}, options);
    if (error) return Error{Code::unavailable, fmt::format("Keystone's answer is not JSON: {}", error.message())};
    return value;
}

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
    TRY(const auto document, read_body(body));
    auto expires_at = from_rfc3339(text_member(member(&document, "token"), "expires_at"));
    if (!expires_at.ok()) return Error{Code::unavailable, "Keystone's answer does not say when the token expires"};
    return *expires_at;
}

Result<identity::TokenSource::Answer> read_holder(const KeystoneOptions& options, std::string_view body) {
    TRY(const auto document, read_body(body));
    const auto* token = member(&document, "token");
    const auto* user = member(token, "user");
    auto name = text_member(user, "name");
    const auto domain = text_member(member(user, "domain"), "name");
    auto expires_at = from_rfc3339(text_member(token, "expires_at"));
    if (!is_plain_name(name) || !is_plain_name(domain) || !expires_at.ok())
        return Error{Code::unavailable, "Keystone's answer does not say whose token it is"};
    if (small_letters(domain) != small_letters(options.user_domain)) name += "@" + domain;

    const auto refused = [&](std::string why) {
        return Error{Code::unauthenticated, fmt::format("the token of {} {}", name, why)};
    };
    if (!options.projects.empty()) {
        const auto* project = member(token, "project");
        const auto project_name = text_member(project, "name"), project_id = text_member(project, "id");
        const bool wanted = std::any_of(options.projects.begin(), options.projects.end(), [&](const auto& one) {
            // A name means something in one domain only; an id everywhere.
            return !one.empty() &&
                   (one == project_id || (one == project_name && small_letters(text_member(member(project, "domain"), "name")) ==
                                                                     small_letters(options.project_domain)));
        });
        if (!wanted) return refused("is not of a project that counts here");
    }
    auto role = identity::Role::nobody;
    if (const auto* roles = member(token, "roles"); roles && roles->is_array())
        for (const auto& held : roles->get_array())
            for (const auto& [theirs, ours] : options.roles)
                if (small_letters(theirs) == small_letters(text_member(&held, "name"))) role = std::max(role, ours);
    if (role == identity::Role::nobody) return refused("has no role that counts here");

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
