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

/// From the file an option names, or asked at the terminal.
Result<std::string> secret_from(Invocation& invocation, std::string_view option, std::string_view prompt) {
    if (invocation.has(option)) return read_secret_file(invocation.streams, invocation.text(option));
    if (!invocation.streams.ask_secret || !invocation.streams.in_is_terminal)
        return Error{Code::invalid, "there is no terminal to ask for a password at",
                     fmt::format("give it in a file with --{} FILE (\"-\" is standard input)", option)};
    return invocation.streams.ask_secret(prompt);
}

/// A new password: twice the same at a terminal.
Result<std::string> new_secret(Invocation& invocation, std::string_view option, std::string_view whose) {
    TRY(auto first, secret_from(invocation, option, fmt::format("New password{}: ", whose)));
    if (first.empty()) return Error{Code::invalid, "an empty password is none"};
    if (invocation.has(option)) return first;
    TRY(const auto second, invocation.streams.ask_secret("The same again: "));
    if (first != second) return Error{Code::invalid, "the two passwords differ", "try again"};
    return first;
}

Result<std::string> login_name(Invocation& invocation) {
    if (invocation.has("USER")) return invocation.text("USER");
    auto& streams = invocation.streams;
    if (!streams.in_is_terminal) return Error{Code::invalid, "who logs in?", "orrery login USER"};
    streams.err << "User: " << std::flush;
    std::string user;
    if (!std::getline(streams.in, user) || user.empty()) return Error{Code::invalid, "no user was given", "orrery login USER"};
    return user;
}

/// A session of 12 hours that began a second ago is still one of 12.
std::string session_left(WallTime until, WallTime now) { return short_age(until - now + std::chrono::seconds(59)); }

bool is_local(std::string_view server) {
    for (const std::string_view host : {"http://127.", "http://localhost", "http://[::1]"})
        if (server.starts_with(host)) return true;
    return false;
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
        streams.err << fmt::format("warning: {} is not encrypted; passwords and tokens can be read on the way\n", server);
    TRY(const auto user, login_name(invocation));
    TRY(const auto password, secret_from(invocation, "password-file", fmt::format("Password of {} at {}: ", user, server)));
    json::object body{{"user", user}, {"password", password}};
    if (invocation.has("new-password-file")) {
        TRY(const auto fresh, new_secret(invocation, "new-password-file", ""));
        body["new_password"] = fresh;
    }
    auto answer = api->call("POST", "/v1/login", body);
    const auto* reason = api->last_problem().if_contains("reason");
    if (!answer.ok() && reason != nullptr && *reason == "password_change_required" && !body.contains("new_password")) {
        streams.err << "this password is for one login only: choose your own now\n";
        TRY(const auto fresh, new_secret(invocation, "new-password-file", ""));
        body["new_password"] = fresh;
        answer = api->call("POST", "/v1/login", body);
    }
    if (!answer.ok()) return std::move(answer).error();
    Session session{server, api->options().ca, text_of(answer->body, "user"), text_of(answer->body, "token"),
                    text_of(answer->body, "expires_at")};
    if (session.token.empty()) return Error{Code::internal, fmt::format("{} gave no token", server)};
    if (!session.ca.empty()) session.ca = std::filesystem::absolute(session.ca).string();
    TRY(const auto path, save_session(streams, session));
    if (!invocation.quiet()) {
        streams.out << fmt::format("logged in to {} as {} ({})", server, printable(session.user),
                                   printable(text_of(answer->body, "role")));
        if (const auto until = from_rfc3339(session.expires_at); until.ok())
            streams.out << fmt::format(", for {}", session_left(*until, streams.clock->wall()));
        streams.out << fmt::format("; the session is kept in {}\n", path.string());
    }
    return exit_code::ok;
}

Result<int> run_logout(Invocation& invocation) {
    auto& streams = invocation.streams;
    TRY(const auto session, load_session(streams));
    if (!session || session->token.empty()) {
        if (!invocation.quiet()) streams.out << "nobody is logged in\n";
        return exit_code::ok;
    }
    TRY(auto* api, invocation.api());
    auto answer = api->call("POST", "/v1/logout");
    // A session that is over already is as good as ended.
    const bool over = answer.ok() || answer.error().code == Code::unauthenticated;
    if (!over && !invocation.has("force")) {
        auto error = std::move(answer).error();
        error.remedy +=
            fmt::format("{}--force forgets the token here although it stays valid there", error.remedy.empty() ? "" : "; ");
        return error;
    }
    TRY(std::ignore, drop_session(streams));
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
        streams.out << fmt::format("{} ({}) at {}, through {}", printable(text_of(answer.body, "user")),
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
    TRY(const auto answer, api->call("POST", "/v1/users" + write_query(invocation),
                                     json::object{{"kind", "User"}, {"name", name}, {"spec", std::move(spec)}}));
    print_outcome(invocation, *kind, name, answer.body);
    return exit_code::ok;
}

Result<int> run_user_password(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    auto name = invocation.text("USER");
    TRY(const auto self, api->get("/v1/whoami"));
    const bool own = name.empty() || name == text_of(self.body, "user");
    if (name.empty()) name = text_of(self.body, "user");
    json::object body;
    if (own) { // whoever finds an open terminal must not be able to take the account over
        TRY(const auto current, secret_from(invocation, "current-password-file", fmt::format("Present password of {}: ", name)));
        body["current"] = current;
    }
    TRY(const auto fresh, new_secret(invocation, "password-file", " of " + name));
    body["password"] = fresh;
    TRY(std::ignore, api->call("POST", user_route(name) + "/password", body));
    if (!invocation.quiet()) invocation.streams.out << fmt::format("the password of {} was changed\n", printable(name));
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
        for (const auto& word : invocation.all("kind")) {
            TRY(const auto* scoped, kinds->find(word));
            named.emplace_back(scoped->kind);
        }
        spec["kinds"] = std::move(named);
    }
    TRY(const auto answer, api->call("POST", "/v1/tokens" + write_query(invocation),
                                     json::object{{"kind", "Token"}, {"name", name}, {"spec", std::move(spec)}}));
    auto& streams = invocation.streams;
    const auto token = text_of(answer.body, "once.token");
    // Only the token on standard output, so that it can go into a file without ever being seen.
    if (!invocation.quiet())
        streams.err << kind->title(name)
                    << (invocation.has("dry-run") ? " would be created\n" : " created; this is the only time it is shown\n");
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
