#include "api/state.h"

#include <fmt/format.h>

/// Routes of authentication: login, logout, current user, passwords.
namespace orrery::api {

namespace {

json::object text_fields(std::vector<std::string> required, std::vector<std::string> optional) {
    json::object properties;
    json::array needed;
    for (const auto& name : required) {
        properties[name] = json::object{{"type", "string"}};
        needed.push_back(json::string(name));
    }
    for (const auto& name : optional) properties[name] = json::object{{"type", "string"}};
    return {{"type", "object"},
            {"properties", std::move(properties)},
            {"required", std::move(needed)},
            {"additionalProperties", false}};
}

Task<Unit> login(Api::State& state, Call call) {
    CO_TRY(auto document, co_await read_document(call, 64 * 1024));
    CO_TRY(auto given, read_texts(document, {"user", "password"}, {"new_password"}));
    std::optional<std::string> new_password;
    if (given.contains("new_password")) new_password = given["new_password"];
    CO_TRY(auto login,
           co_await state.identity.login(call.ctx, given["user"], given["password"], std::move(new_password), call.request.peer));
    json::object body{{"token", login.token},
                      {"user", login.principal.user},
                      {"role", name_of(login.principal.role)},
                      {"expires_at", to_rfc3339(login.expires_at)}};
    co_return co_await send_json(call, 200, body, {{"Cache-Control", "no-store"}});
}

Task<Unit> logout(Api::State& state, Call call) {
    CO_TRY(std::ignore, co_await state.identity.logout(call.ctx, call.principal));
    co_return co_await call.out.send(call.ctx, {204, {}, {}});
}

Task<Unit> whoami(Call call) {
    json::object body{{"user", call.principal.user}, {"role", name_of(call.principal.role)}, {"via", call.principal.via}};
    if (!call.principal.token_name.empty()) body["token"] = call.principal.token_name;
    body["source"] = call.principal.source;
    if (call.principal.expires_at) body["expires_at"] = to_rfc3339(*call.principal.expires_at);
    if (!call.principal.kinds.empty()) {
        json::array kinds;
        for (const auto& kind : call.principal.kinds) kinds.push_back(json::string(kind));
        body["kinds"] = std::move(kinds);
    }
    co_return co_await send_json(call, 200, body);
}

Task<Unit> set_password(Api::State& state, Call call) {
    const auto name = call.name();
    CO_TRY(auto document, co_await read_document(call, 64 * 1024));
    CO_TRY(auto given, read_texts(document, {"password"}, {"current"}));
    std::optional<std::string> current;
    if (given.contains("current")) current = given["current"];
    CO_TRY(std::ignore, co_await state.identity.set_password(call.ctx, call.principal, name, std::move(current), given["password"],
                                                             call.request.peer));
    co_return co_await call.out.send(call.ctx, {204, {}, {}});
}

} // namespace

void add_identity_routes(Api::State& state) {
    state.router.add({.method = "POST",
                      .pattern = "/v1/login",
                      .summary = "Log in: exchange a user name and password for a token",
                      .group = "identity",
                      .role = Role::nobody,
                      .request = text_fields({"user", "password"}, {"new_password"}),
                      .response = text_fields({"token", "user", "role", "expires_at"}, {}),
                      .handler = [&state](Call call) { return login(state, std::move(call)); }});
    state.router.add({.method = "POST",
                      .pattern = "/v1/logout",
                      .summary = "End this session and revoke its token",
                      .group = "identity",
                      .role = Role::viewer,
                      .status = 204,
                      .handler = [&state](Call call) { return logout(state, std::move(call)); }});
    state.router.add({.method = "GET",
                      .pattern = "/v1/whoami",
                      .summary = "Show the authenticated user",
                      .group = "identity",
                      .role = Role::viewer,
                      .response = {{"type", "object"}},
                      .handler = [](Call call) { return whoami(std::move(call)); }});
    state.router.add({.method = "POST",
                      .pattern = "/v1/users/{name}/password",
                      .summary = "Change a password: your own, or any user's as admin",
                      .group = "identity",
                      .role = Role::viewer,
                      .request = text_fields({"password"}, {"current"}),
                      .status = 204,
                      .handler = [&state](Call call) { return set_password(state, std::move(call)); }});
}

} // namespace orrery::api
