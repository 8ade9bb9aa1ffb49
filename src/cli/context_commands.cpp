#include "cli/commands.h"
#include "cli/render.h"
#include "cli/session.h"
#include "core/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ostream>

/// context list, use and delete.
namespace orrery::cli {

namespace {

Result<Session*> named_context(Sessions& sessions, const std::string& name) {
    if (auto* found = sessions.find(name)) return found;
    const auto known = sessions.names();
    return Error{Code::not_found, fmt::format("there is no context \"{}\"", name),
                 known.empty() ? std::string("\"orrery login USER -s URL\" creates one")
                               : fmt::format("there are: {}", fmt::join(known, ", "))};
}

/// The remaining lifetime of a session, or why it cannot be used.
std::string session_state(const Session& session, WallTime now) {
    if (session.token.empty()) return "logged out";
    const auto until = from_rfc3339(session.expires_at);
    if (!until.ok()) return "-";
    return *until <= now ? "expired" : short_age(*until - now);
}

} // namespace

Result<int> run_context_list(Invocation& invocation) {
    auto& streams = invocation.streams;
    TRY(const auto sessions, load_sessions(streams));
    if (invocation.text("output", "table") == "json") {
        json::array items;
        for (const auto& session : sessions.all)
            items.push_back(json::object{{"name", session.name},
                                         {"current", session.name == sessions.current},
                                         {"server", session.server},
                                         {"user", session.user},
                                         {"expires_at", session.expires_at}});
        streams.out << to_pretty_json(items) << '\n';
        return exit_code::ok;
    }
    if (sessions.all.empty()) {
        if (!invocation.quiet()) streams.err << "there are no contexts; \"orrery login USER -s URL\" creates one\n";
        return exit_code::ok;
    }
    Table table({"NAME", "CURRENT", "SERVER", "USER", "EXPIRES"});
    for (const auto& session : sessions.all)
        table.add({{printable(session.name), Style::bold},
                   {session.name == sessions.current ? "*" : ""},
                   {printable(session.server)},
                   {session.user.empty() ? "-" : printable(session.user)},
                   {session_state(session, streams.clock->wall())}});
    streams.out << table.render(streams.width, streams.colour());
    return exit_code::ok;
}

Result<int> run_context_use(Invocation& invocation) {
    TRY(auto sessions, load_sessions(invocation.streams));
    TRY(const auto* chosen, named_context(sessions, invocation.text("CONTEXT")));
    sessions.current = chosen->name;
    TRY(std::ignore, save_sessions(invocation.streams, sessions));
    if (!invocation.quiet()) invocation.streams.out << fmt::format("current context: {1} ({0})\n", chosen->server, chosen->name);
    return exit_code::ok;
}

Result<int> run_context_delete(Invocation& invocation) {
    TRY(auto sessions, load_sessions(invocation.streams));
    TRY(const auto* chosen, named_context(sessions, invocation.text("CONTEXT")));
    if (!chosen->token.empty() && !invocation.has("force"))
        return Error{Code::conflict, fmt::format("context {} is logged in to {}", chosen->name, chosen->server),
                     fmt::format("log out first (orrery logout -s {}), or use --force: the token stays valid until it expires",
                                 chosen->server)};
    const auto name = chosen->name;
    std::erase_if(sessions.all, [&](const Session& session) { return session.name == name; });
    if (sessions.current == name) sessions.current = sessions.all.empty() ? "" : sessions.all.front().name;
    TRY(std::ignore, save_sessions(invocation.streams, sessions));
    if (!invocation.quiet()) invocation.streams.out << fmt::format("context {} deleted\n", name);
    return exit_code::ok;
}

} // namespace orrery::cli
