#include "cli/commands.h"
#include "cli/render.h"
#include "cli/session.h"
#include "core/text.h"

#include <fmt/format.h>

#include <istream>
#include <ostream>

/// login, logout, whoami; users and tokens.
namespace orrery::cli {

namespace {

/// A secret from the file of an option, or from the terminal.
Result<std::string> secret_from(Invocation& invocation, std::string_view option, std::string_view prompt) {
    if (invocation.has(option)) return read_secret_file(invocation.streams, invocation.text(option));
    if (!invocation.streams.ask_secret || !invocation.streams.in_is_terminal)
        return Error{Code::invalid, "there is no terminal to ask for the password",
                     fmt::format("give --{} FILE; - reads standard input", option)};
    return invocation.streams.ask_secret(prompt);
}

/// A new password; asked twice on a terminal.
Result<std::string> new_secret(Invocation& invocation, std::string_view option, std::string_view whose) {
    TRY(auto first, secret_from(invocation, option, fmt::format("New password{}: ", whose)));
    if (first.empty()) return Error{Code::invalid, "the password is empty"};
    if (invocation.has(option)) return first;
    TRY(const auto second, invocation.streams.ask_secret("Repeat the new password: "));
    if (first != second) return Error{Code::invalid, "the two passwords differ", "try again"};
    return first;
}

Result<std::string> login_name(Invocation& invocation) {
    if (invocation.has("USER")) return invocation.text("USER");
    auto& streams = invocation.streams;
    if (!streams.in_is_terminal) return invocation.usage_error("the user is missing", "orrery login USER");
    streams.err << "User: " << std::flush;
    std::string user;
    if (!std::getline(streams.in, user) || user.empty()) return invocation.usage_error("the user is missing", "orrery login USER");
    return user;
}

/// Rounds up: a session of 12 hours that started a second ago has 12 hours left.
std::string session_left(WallTime until, WallTime now) { return short_age(until - now + std::chrono::seconds(59)); }

bool is_local(std::string_view server) {
    for (const std::string_view host : {"http://127.", "http://localhost", "http://[::1]"})
        if (server.starts_with(host)) return true;
    return false;
}

/// Saves the session in a context and makes it current: the context `name`, or that of the same server, or a new one. True if the
/// message should name the context, because there are several.
bool save_in_context(Sessions& sessions, Session session, const std::string& name) {
    auto* context = name.empty() ? sessions.for_server(session.server) : sessions.find(name);
    session.name = !name.empty() ? name : context != nullptr ? context->name : context_name(session.server);
    sessions.current = session.name;
    if (context != nullptr)
        *context = std::move(session);
    else
        sessions.all.push_back(std::move(session));
    return sessions.all.size() > 1 || !name.empty();
}

/// "/v1/users/alice"
std::string user_route(std::string_view name) { return "/v1/users/" + net::percent_encode(name); }

Result<int> write_user(Invocation& invocation, std::string_view method, json::value body) {
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    TRY(const auto* kind, kinds->find("User"));
    for (const auto& name : invocation.all("USER")) {
        TRY(const auto answer, api->call(std::string(method), user_route(name) + write_query(invocation),
                                         method == "DELETE" ? std::optional<json::value>{} : body));
        print_outcome(invocation, *kind, name, answer.body);
    }
    return exit_code::ok;
}

Result<int> list_kind(Invocation& invocation, std::string_view name) {
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    TRY(const auto* kind, kinds->find(name));
    TRY(const auto objects, list_all(*api, *kind, {}, 0));
    print_objects(invocation, *kind, objects, invocation.text("output", "table"), false);
    return exit_code::ok;
}

} // namespace

Result<int> run_login(Invocation& invocation) {
    auto& streams = invocation.streams;
    TRY(auto* api, invocation.api_without_token());
    const auto server = api->options().server;
    if (server.starts_with("http://") && !is_local(server))
        streams.err << fmt::format("warning: the connection to {} is not encrypted\n", server);
    TRY(const auto user, login_name(invocation));
    TRY(const auto password, secret_from(invocation, "password-file", fmt::format("Password of {} on {}: ", user, server)));
    json::object body{{"user", user}, {"password", password}};
    if (invocation.has("new-password-file")) {
        TRY(const auto fresh, new_secret(invocation, "new-password-file", ""));
        body["new_password"] = fresh;
    }
    auto answer = api->call("POST", "/v1/login", body);
    const auto* reason = api->last_problem().if_contains("reason");
    if (!answer.ok() && reason != nullptr && *reason == "password_change_required" && !body.contains("new_password")) {
        if (!streams.in_is_terminal || !streams.ask_secret) {
            auto error = std::move(answer).error();
            error.remedy = "give the new password with --new-password-file FILE";
            return error;
        }
        streams.err << "this is a one-time password; choose a new password\n";
        TRY(const auto fresh, new_secret(invocation, "new-password-file", ""));
        body["new_password"] = fresh;
        answer = api->call("POST", "/v1/login", body);
    }
    if (!answer.ok()) return std::move(answer).error();
    Session session{"",
                    server,
                    api->options().ca,
                    text_of(answer->body, "user"),
                    text_of(answer->body, "token"),
                    text_of(answer->body, "expires_at")};
    if (session.token.empty()) return Error{Code::internal, fmt::format("{} sent no token", server)};
    if (!session.ca.empty()) session.ca = std::filesystem::absolute(session.ca).string();
    TRY(auto sessions, load_sessions(streams));
    const bool several = save_in_context(sessions, session, invocation.text("name"));
    TRY(const auto path, save_sessions(streams, sessions));
    if (!invocation.quiet()) {
        streams.out << fmt::format("logged in to {} as {} ({})", server, printable(session.user),
                                   printable(text_of(answer->body, "role")));
        if (const auto until = from_rfc3339(session.expires_at); until.ok())
            streams.out << fmt::format(", for {}", session_left(*until, streams.clock->wall()));
        streams.out << fmt::format("; session saved in {}", path.string());
        if (several) streams.out << fmt::format(" as context {}", sessions.current);
        streams.out << '\n';
    }
    return exit_code::ok;
}

Result<int> run_logout(Invocation& invocation) {
    auto& streams = invocation.streams;
    TRY(auto sessions, load_sessions(streams));
    auto server = invocation.has("server") ? invocation.text("server") : streams.variable("ORRERY_SERVER");
    while (server.ends_with('/')) server.pop_back();
    auto* session = sessions.for_server(server);
    if (session == nullptr || session->token.empty()) {
        if (!invocation.quiet()) streams.out << "not logged in\n";
        return exit_code::ok;
    }
    TRY(auto* api, invocation.api());
    auto answer = api->call("POST", "/v1/logout");
    // A session that has expired needs no logout.
    const bool ended = answer.ok() || answer.error().code == Code::unauthenticated;
    if (!ended && !invocation.has("force")) {
        auto error = std::move(answer).error();
        error.remedy += fmt::format("{}--force deletes the local token, which stays valid on the server until it expires",
                                    error.remedy.empty() ? "" : "; ");
        return error;
    }
    session->token.clear();
    session->user.clear();
    session->expires_at.clear();
    TRY(std::ignore, save_sessions(streams, sessions));
    if (!invocation.quiet()) streams.out << fmt::format("logged out of {}\n", session->server);
    return exit_code::ok;
}

Result<int> run_whoami(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->get("/v1/whoami"));
    auto& streams = invocation.streams;
    const auto form = invocation.text("output", "table");
    if (form == "json")
        streams.out << to_pretty_json(answer.body) << '\n';
    else if (form == "yaml")
        streams.out << to_yaml(answer.body);
    else {
        streams.out << fmt::format("{} ({}) on {}, authenticated by {}", printable(text_of(answer.body, "user")),
                                   printable(text_of(answer.body, "role")), api->options().server,
                                   printable(text_of(answer.body, "via")));
        if (const auto until = from_rfc3339(text_of(answer.body, "expires_at")); until.ok())
            streams.out << ", for " << session_left(*until, streams.clock->wall());
        streams.out << '\n';
    }
    return exit_code::ok;
}

Result<int> run_user_list(Invocation& invocation) { return list_kind(invocation, "User"); }
Result<int> run_token_list(Invocation& invocation) { return list_kind(invocation, "Token"); }

Result<int> run_user_create(Invocation& invocation) {
    for (const std::string option : {"one-time", "password-file"})
        if (invocation.has("no-password") && invocation.has(option))
            return invocation.usage_error(fmt::format("--no-password and --{} exclude each other", option), "give one of them");
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    TRY(const auto* kind, kinds->find("User"));
    const auto name = invocation.text("USER");
    json::object spec{{"role", invocation.text("role", "viewer")}};
    if (invocation.has("full-name")) spec["full_name"] = invocation.text("full-name");
    if (invocation.has("email")) spec["email"] = invocation.text("email");
    if (!invocation.has("no-password")) {
        TRY(const auto password, new_secret(invocation, "password-file", " of " + name));
        spec["password"] = password;
        if (invocation.has("one-time")) spec["one_time"] = true;
    }
    auto answer = api->call("POST", "/v1/users" + write_query(invocation),
                            json::object{{"kind", "User"}, {"name", name}, {"spec", std::move(spec)}});
    if (!answer.ok()) {
        auto error = std::move(answer).error();
        if (error.code == Code::conflict)
            error.remedy = fmt::format("choose another name; \"orrery edit user {}\" changes the existing user", name);
        return error;
    }
    print_outcome(invocation, *kind, name, answer->body);
    return exit_code::ok;
}

Result<int> run_user_password(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    auto name = invocation.text("USER");
    TRY(const auto self, api->get("/v1/whoami"));
    const bool own = name.empty() || name == text_of(self.body, "user");
    if (name.empty()) name = text_of(self.body, "user");
    json::object body;
    if (own) { // a person at an unlocked terminal must not be able to change the password
        TRY(const auto current, secret_from(invocation, "current-password-file", fmt::format("Current password of {}: ", name)));
        body["current"] = current;
    }
    TRY(const auto fresh, new_secret(invocation, "password-file", " of " + name));
    body["password"] = fresh;
    TRY(std::ignore, api->call("POST", user_route(name) + "/password", body));
    if (!invocation.quiet()) invocation.streams.out << fmt::format("password of {} changed\n", printable(name));
    return exit_code::ok;
}

Result<int> run_user_disable(Invocation& invocation) {
    return write_user(invocation, "PATCH", json::object{{"spec", json::object{{"disabled", true}}}});
}
Result<int> run_user_enable(Invocation& invocation) {
    return write_user(invocation, "PATCH", json::object{{"spec", json::object{{"disabled", false}}}});
}
Result<int> run_user_delete(Invocation& invocation) { return write_user(invocation, "DELETE", nullptr); }

Result<int> run_token_create(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    TRY(const auto* kind, kinds->find("Token"));
    const auto name = invocation.text("TOKEN");
    json::object spec;
    for (const auto& [option, field] :
         {std::pair{"user", "user"}, std::pair{"role", "role"}, std::pair{"ttl", "ttl"}, std::pair{"description", "description"}})
        if (invocation.has(option)) spec[field] = invocation.text(option);
    if (invocation.has("kind")) {
        json::array named;
        for (const auto& kind_name : invocation.all("kind")) {
            TRY(const auto* scoped, kinds->find(kind_name));
            named.emplace_back(scoped->kind);
        }
        spec["kinds"] = std::move(named);
    }
    TRY(const auto answer, api->call("POST", "/v1/tokens" + write_query(invocation),
                                     json::object{{"kind", "Token"}, {"name", name}, {"spec", std::move(spec)}}));
    auto& streams = invocation.streams;
    const auto token = text_of(answer.body, "once.token");
    // Standard output has only the token, so that it can be redirected to a file.
    if (!invocation.quiet())
        streams.err << kind->title(name)
                    << (invocation.has("dry-run") ? " would be created\n" : " created; the token is shown only once\n");
    if (!token.empty()) streams.out << token << '\n';
    return exit_code::ok;
}

Result<int> run_token_revoke(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    TRY(const auto* kind, kinds->find("Token"));
    for (const auto& name : invocation.all("TOKEN")) {
        TRY(const auto answer, api->call("DELETE", kind->route(name) + write_query(invocation)));
        print_outcome(invocation, *kind, name, answer.body);
    }
    return exit_code::ok;
}

} // namespace orrery::cli
