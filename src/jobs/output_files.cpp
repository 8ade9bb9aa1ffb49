#include "jobs/output.h"
#include "jobs/output_frames.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace orrery::jobs {

namespace {

class OpenFile {
public:
    OpenFile(const std::filesystem::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
    ~OpenFile() {
        if (fd_ >= 0) ::close(fd_);
    }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    int fd() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_;
};

Error file_error(std::string_view action, const std::filesystem::path& path) {
    return Error{errno == ENOSPC ? Code::no_space : Code::unavailable,
                 fmt::format("{} {}: {}", action, path.string(), std::strerror(errno))};
}

/// Reads up to `size` bytes at `from`; fewer at the end.
std::string read_at(int fd, std::uint64_t from, std::size_t size) {
    std::string out(size, '\0');
    std::size_t got = 0;
    while (got < size) {
        const auto count = ::pread(fd, out.data() + got, size - got, static_cast<off_t>(from + got));
        if (count <= 0) break;
        got += static_cast<std::size_t>(count);
    }
    out.resize(got);
    return out;
}

} // namespace

std::filesystem::path OutputFiles::path(const Name& name) const {
    return options_.folder / name.uid / fmt::format("{}-{}{}", name.task, name.attempt, name_of(name.phase)[0]);
}

Task<OutputLog::StoredOutput> OutputFiles::stored(Context, Name name) {
    auto file = path(name);
    auto work = [file]() -> Result<StoredOutput> {
        StoredOutput stored;
        const OpenFile open(file, O_RDWR);
        if (!open) return stored;
        for (;;) {
            const auto head = frame_head_of(read_at(open.fd(), stored.size, frame_head));
            if (!head) break;
            const auto bytes = read_at(open.fd(), stored.size + frame_head, head->length);
            if (bytes.size() < head->length) break;
            count_frame(stored, *head, bytes);
        }
        if (::ftruncate(open.fd(), static_cast<off_t>(stored.size)) != 0) return file_error("cannot cut", file);
        return stored;
    };
    co_return co_await blocking(pool_, std::move(work));
}

Task<Unit> OutputFiles::flush(Context ctx, std::shared_ptr<Sink> sink, When when) {
    const bool sync = when == When::now;
    CO_TRY(std::ignore, co_await wait_for_flush(ctx, sink));
    const FlushLock lock(sink);
    auto bytes = std::exchange(sink->pending_, {});
    if (bytes.empty() && !(sync && sink->written_)) co_return Unit{};
    sink->written_ = true;
    auto file = path(sink->name_);
    auto work = [file, bytes = std::move(bytes), sync]() -> Result<Unit> {
        std::error_code ignored;
        std::filesystem::create_directories(file.parent_path(), ignored);
        const OpenFile open(file, O_WRONLY | O_CREAT | O_APPEND);
        if (!open) return file_error("cannot open", file);
        for (std::string_view left = bytes; !left.empty();) {
            const auto count = ::write(open.fd(), left.data(), left.size());
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) return file_error("cannot write", file);
            left.remove_prefix(static_cast<std::size_t>(count));
        }
        if (sync && ::fdatasync(open.fd()) != 0) return file_error("cannot sync", file);
        return Unit{};
    };
    co_return co_await blocking(pool_, std::move(work));
}

Task<OutputLog::Page> OutputFiles::read(Context, Name name, std::uint64_t from, std::size_t limit) {
    auto file = path(name);
    auto work = [file, from, limit]() -> Result<Page> {
        PageBuilder builder;
        auto& page = builder.page;
        page.next = from;
        const OpenFile open(file, O_RDONLY);
        if (!open) return std::move(page);
        for (std::size_t taken = 0; taken < limit;) {
            const auto start = read_at(open.fd(), page.next, frame_head);
            if (start.size() < frame_head) break;
            const auto head = frame_head_of(start);
            if (!head) return invalid_position(from);
            auto bytes = read_at(open.fd(), page.next + frame_head, head->length);
            if (bytes.size() < head->length) break; // being written
            page.next += frame_head + head->length;
            taken += head->length;
            builder.add(*head, std::move(bytes));
        }
        return std::move(page);
    };
    co_return co_await blocking(pool_, std::move(work));
}

Task<Unit> OutputFiles::remove(Context, std::string uid) {
    auto folder = options_.folder / uid;
    auto work = [folder]() -> Result<Unit> {
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
        return Unit{};
    };
    co_return co_await blocking(pool_, std::move(work));
}

} // namespace orrery::jobs
