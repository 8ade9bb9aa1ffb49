#include "cli/session.h"

#include "cli/kinds.h"
#include "core/ids.h"
#include "core/text.h"

#include <fmt/format.h>

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
    return Error{Code::invalid, "there is no place to keep the session in: HOME is not set", "name a file with ORRERY_CONFIG"};
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
                     fmt::format("{} is longer than {}", path == "-" ? "standard input" : path, bytes_text(limit))};
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

Result<std::optional<Session>> load_session(const Streams& streams) {
    auto path = session_path(streams);
    if (!path.ok()) return std::optional<Session>{}; // no home, no session: flags and environment may do
    struct stat about{};
    if (::stat(path->c_str(), &about) != 0 && errno == ENOENT) return std::optional<Session>{};
    if ((about.st_mode & (S_IRGRP | S_IROTH)) != 0)
        return Error{Code::denied, fmt::format("{} holds a token, and others can read it", path->string()),
                     fmt::format("chmod 600 {}; if others may have, log in again", path->string())};
    TRY(auto text, read_file(streams, path->string(), 1 << 20));
    auto documents = parse_yaml(text);
    if (!documents.ok()) return std::move(documents).error().within(path->string());
    if (documents->empty()) return std::optional<Session>{};
    const auto& value = documents->front().value;
    return std::optional<Session>{Session{text_of(value, "server"), text_of(value, "ca"), text_of(value, "user"),
                                          text_of(value, "token"), text_of(value, "expires_at")}};
}

Result<std::filesystem::path> save_session(const Streams& streams, const Session& session) {
    TRY(auto path, session_path(streams));
    std::error_code error;
    if (path.has_parent_path() && !std::filesystem::exists(path.parent_path(), error)) {
        std::filesystem::create_directories(path.parent_path(), error);
        if (!error) std::filesystem::permissions(path.parent_path(), std::filesystem::perms::owner_all, error);
    }
    json::object out{{"server", session.server}};
    if (!session.ca.empty()) out["ca"] = session.ca;
    if (!session.user.empty()) out["user"] = session.user;
    if (!session.token.empty()) out["token"] = session.token;
    if (!session.expires_at.empty()) out["expires_at"] = session.expires_at;
    const auto text = to_yaml(out);
    const auto failed = [&](std::string_view what) {
        return Error{Code::invalid,
                     fmt::format("the session cannot be kept in {}: {}: {}", path.string(), what, std::strerror(errno)),
                     "name another file with ORRERY_CONFIG"};
    };
    // Written beside it and renamed: nobody ever reads half a session, or one that others could open for a moment.
    const auto fresh = path.string() + "." + random_id();
    const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return failed("it cannot be made");
    const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(fd);
    if (!written || ::rename(fresh.c_str(), path.c_str()) != 0) {
        const auto why = failed("it cannot be written");
        ::unlink(fresh.c_str());
        return why;
    }
    return path;
}

Result<Unit> drop_session(const Streams& streams) {
    TRY(auto session, load_session(streams));
    if (!session) return Unit{};
    session->token.clear();
    session->user.clear();
    session->expires_at.clear();
    TRY(std::ignore, save_session(streams, *session));
    return Unit{};
}

} // namespace orrery::cli
