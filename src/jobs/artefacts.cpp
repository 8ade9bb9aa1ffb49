#include "jobs/artefacts.h"

#include "core/json_fields.h"
#include "core/text.h"
#include "jobs/output.h"
#include "jobs/records.h"
#include "jobs/stored_text.h"
#include "jobs/values.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace orrery::jobs {

namespace {

/// Writes a file atomically and durably.
Result<Unit> write_atomically(const std::filesystem::path& path, std::string_view bytes) {
    std::error_code ignored;
    std::filesystem::create_directories(path.parent_path(), ignored);
    const auto beside = path.string() + ".new";
    const auto failed = [&](std::string_view action) {
        const int error = errno;
        ::unlink(beside.c_str());
        return Error{error == ENOSPC ? Code::no_space : Code::unavailable,
                     fmt::format("cannot {} {}: {}", action, beside, std::strerror(error))};
    };
    const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return failed("create");
    while (!bytes.empty()) {
        const auto count = ::write(fd, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            ::close(fd);
            return failed("write");
        }
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    const bool synced = ::fdatasync(fd) == 0;
    ::close(fd);
    if (!synced) return failed("sync");
    if (::rename(beside.c_str(), path.c_str()) != 0) return failed("rename");
    // The name too must survive a loss of power: a listed file exists.
    const int folder = ::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool durable = folder >= 0 && ::fsync(folder) == 0;
    if (folder >= 0) ::close(folder);
    if (!durable) return failed("sync the folder of");
    return Unit{};
}

} // namespace

json::object to_json(const Artefact& artefact) {
    json::object out{{"node", artefact.node}, {"path", valid_utf8(artefact.path)}};
    if (artefact.message.empty()) {
        out["size"] = artefact.size;
        out["sha256"] = artefact.sha256;
    } else {
        out["message"] = valid_utf8(artefact.message);
    }
    return out;
}

std::filesystem::path ArtefactFiles::path(const Name& name, std::string_view part) const {
    return options_.folder / name.uid / fmt::format("{}-{}a{}", name.task, name.attempt, part);
}

Task<Artefact> ArtefactFiles::keep(Name name, std::size_t number, Artefact artefact, std::string bytes, Masker masker) {
    auto file = path(name, std::to_string(number));
    co_return co_await blocking(
        pool_,
        [file, artefact = std::move(artefact), bytes = std::move(bytes), masker = std::move(masker)]() mutable -> Result<Artefact> {
            if (masker.mask(bytes) != bytes) {
                artefact.message = "holds a secret of its task, and is not stored";
                return artefact;
            }
            TRY(std::ignore, write_atomically(file, bytes));
            artefact.size = bytes.size();
            artefact.sha256 = sha256_text(bytes, 64);
            return artefact;
        });
}

Task<Unit> ArtefactFiles::finish(Name name, std::vector<Artefact> all) {
    json::array list;
    for (const auto& one : all) list.push_back(to_json(one));
    auto file = path(name, "");
    auto old = name;
    old.attempt -= static_cast<int>(max_past_attempts);
    auto outdated = path(old, "");
    auto work = [file, text = to_json_text(list), outdated]() -> Result<Unit> {
        std::error_code ignored;
        if (std::filesystem::remove(outdated, ignored))
            for (std::size_t number = 0; number < 1000; ++number)
                std::filesystem::remove(outdated.string() + std::to_string(number), ignored);
        return write_atomically(file, text);
    };
    co_return co_await blocking(pool_, std::move(work));
}

Task<std::vector<Artefact>> ArtefactFiles::list(Name name) {
    auto work = [file = path(name, "")]() -> Result<std::vector<Artefact>> {
        std::vector<Artefact> out;
        std::ifstream stream(file, std::ios::binary);
        if (!stream) return out;
        const std::string text{std::istreambuf_iterator<char>(stream), {}};
        boost::system::error_code failed;
        const auto read = json::parse(text, failed);
        if (failed || !read.is_array()) return Error{Code::internal, fmt::format("{} cannot be read", file.string())};
        for (const auto& value : read.get_array()) {
            if (!value.is_object()) continue;
            const auto& object = value.get_object();
            Artefact one{text_at(object, "node"), text_at(object, "path"), 0, text_at(object, "sha256"),
                         StoredText{object, "message"}.renamed_from("words")};
            if (const auto* size = object.if_contains("size"); size != nullptr && size->is_number())
                one.size = size->to_number<std::uint64_t>();
            out.push_back(std::move(one));
        }
        return out;
    };
    co_return co_await blocking(pool_, std::move(work));
}

Task<std::string> ArtefactFiles::read(Name name, std::size_t number, std::uint64_t from, std::size_t limit) {
    auto work = [file = path(name, std::to_string(number)), from, limit]() -> Result<std::string> {
        std::ifstream stream(file, std::ios::binary);
        if (!stream) return Error{Code::not_found, "the file is no longer stored"};
        stream.seekg(static_cast<std::streamoff>(from));
        std::string out(limit, '\0');
        stream.read(out.data(), static_cast<std::streamsize>(limit));
        out.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, stream.gcount())));
        return out;
    };
    co_return co_await blocking(pool_, std::move(work));
}

Task<std::uint64_t> ArtefactFiles::used(std::string uid) {
    auto work = [folder = options_.folder / uid]() -> Result<std::uint64_t> {
        std::uint64_t sum = 0;
        std::error_code ignored;
        for (const auto& file : std::filesystem::directory_iterator(folder, ignored))
            if (file.path().filename().string().find('a') != std::string::npos) sum += file.file_size(ignored);
        return sum;
    };
    co_return co_await blocking(pool_, std::move(work));
}

} // namespace orrery::jobs
