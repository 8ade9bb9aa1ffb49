#include "cli/session.h"

#include "cli/kinds.h"
#include "core/ids.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <istream>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>

namespace orrery::cli {

Result<std::filesystem::path> session_path(const Streams& streams) {
    if (auto named = streams.variable("ORRERY_CONFIG"); !named.empty()) return std::filesystem::path(named);
    if (auto config = streams.variable("XDG_CONFIG_HOME"); !config.empty())
        return std::filesystem::path(config) / "orrery/session.yaml";
    if (auto home = streams.variable("HOME"); !home.empty()) return std::filesystem::path(home) / ".config/orrery/session.yaml";
    return Error{Code::invalid, "the session cannot be saved: HOME is not set", "set ORRERY_CONFIG to the path of a file"};
}

Result<std::string> read_file(const Streams& streams, const std::string& path, std::size_t limit) {
    std::ifstream file;
    if (path != "-") {
        file.open(path, std::ios::binary);
        std::error_code ignored;
        if (!file || std::filesystem::is_directory(path, ignored))
            return Error{Code::invalid, fmt::format("{} cannot be read: {}", path, std::strerror(file ? EISDIR : errno))};
    }
    std::istream& in = path == "-" ? streams.in : file;
    std::string out;
    std::string piece(64 * 1024, '\0');
    while (in.good() && out.size() <= limit) {
        in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        out.append(piece, 0, static_cast<std::size_t>(in.gcount()));
    }
    if (out.size() > limit)
        return Error{Code::too_large,
                     fmt::format("{} is larger than {}", path == "-" ? "standard input" : path, bytes_text(limit))};
    return out;
}

Result<std::string> read_secret_file(const Streams& streams, const std::string& path) {
    TRY(auto text, read_file(streams, path, 64 * 1024));
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    if (text.empty()) return Error{Code::invalid, fmt::format("{} is empty", path == "-" ? "standard input" : path)};
    if (text.find('\n') != std::string::npos)
        return Error{Code::invalid, fmt::format("{} has more than one line", path == "-" ? "standard input" : path)};
    return text;
}

namespace {

Session session_from(const json::value& value) {
    Session session{text_of(value, "name"), text_of(value, "server"), text_of(value, "ca"),
                    text_of(value, "user"), text_of(value, "token"),  text_of(value, "expires_at")};
    if (session.name.empty()) session.name = context_name(session.server);
    return session;
}

json::object document_of(const Session& session) {
    json::object out{{"name", session.name}, {"server", session.server}};
    if (!session.ca.empty()) out["ca"] = session.ca;
    if (!session.user.empty()) out["user"] = session.user;
    if (!session.token.empty()) out["token"] = session.token;
    if (!session.expires_at.empty()) out["expires_at"] = session.expires_at;
    return out;
}

} // namespace

Session* Sessions::find(std::string_view name) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Session& session) { return session.name == name; });
    return found == all.end() ? nullptr : &*found;
}

Session* Sessions::for_server(std::string_view server) {
    auto* chosen = find(current);
    if (server.empty() || (chosen != nullptr && chosen->server == server)) return chosen;
    const auto found = std::find_if(all.begin(), all.end(), [&](const Session& session) { return session.server == server; });
    return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> Sessions::names() const {
    std::vector<std::string> out;
    for (const auto& session : all) out.push_back(session.name);
    return out;
}

std::string context_name(std::string_view server) {
    const auto scheme = server.find("://");
    return std::string(scheme == std::string_view::npos ? server : server.substr(scheme + 3));
}

Result<Sessions> load_sessions(const Streams& streams) {
    auto path = session_path(streams);
    if (!path.ok()) return Sessions{}; // without HOME there is no session; flags and environment variables still work
    struct stat about{};
    if (::stat(path->c_str(), &about) != 0 && errno == ENOENT) return Sessions{};
    if ((about.st_mode & (S_IRGRP | S_IROTH)) != 0)
        return Error{Code::denied, fmt::format("the token in {} is readable by other users", path->string()),
                     fmt::format("chmod 600 {}, and log in again if another user may have read it", path->string())};
    TRY(auto text, read_file(streams, path->string(), 1 << 20));
    auto documents = parse_yaml(text);
    if (!documents.ok()) return std::move(documents).error().within(path->string());
    if (documents->empty()) return Sessions{};
    const auto& value = documents->front().value;
    Sessions sessions;
    const auto* contexts = at_path(value, "contexts");
    if (contexts == nullptr || !contexts->is_array()) { // files of earlier versions have one session
        sessions.all.push_back(session_from(value));
        sessions.current = sessions.all.front().name;
        return sessions;
    }
    for (const auto& context : contexts->get_array()) sessions.all.push_back(session_from(context));
    sessions.current = text_of(value, "current");
    return sessions;
}

Result<std::filesystem::path> save_sessions(const Streams& streams, const Sessions& sessions) {
    TRY(auto path, session_path(streams));
    std::error_code error;
    if (path.has_parent_path() && !std::filesystem::exists(path.parent_path(), error)) {
        std::filesystem::create_directories(path.parent_path(), error);
        if (!error) std::filesystem::permissions(path.parent_path(), std::filesystem::perms::owner_all, error);
    }
    json::array contexts;
    for (const auto& session : sessions.all) contexts.push_back(document_of(session));
    const json::object out{{"current", sessions.current}, {"contexts", std::move(contexts)}};
    const auto text = to_yaml(out);
    const auto failed = [&](std::string_view action) {
        return Error{Code::invalid,
                     fmt::format("the session cannot be saved in {}: {}: {}", path.string(), action, std::strerror(errno)),
                     "set ORRERY_CONFIG to the path of another file"};
    };
    // Written to a new file and renamed: the session file is always complete and never readable by other users.
    const auto fresh = path.string() + "." + random_id();
    const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return failed("create");
    const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(fd);
    if (!written || ::rename(fresh.c_str(), path.c_str()) != 0) {
        const auto why = failed("write");
        ::unlink(fresh.c_str());
        return why;
    }
    return path;
}

} // namespace orrery::cli
