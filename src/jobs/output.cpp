#include "jobs/output.h"

#include "core/text.h"

#include <boost/asio/this_coro.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace orrery::jobs {

namespace {

/// A frame: kind, end of the attempt's stream after it (8 bytes), length (4), bytes. Little-endian.
constexpr std::size_t frame_head = 13;
constexpr std::size_t longest_frame = 8u << 20;

void put_bytes(std::string& out, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}
std::uint64_t get_bytes(std::string_view from, int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i)
        value |= std::uint64_t{static_cast<unsigned char>(from[static_cast<std::size_t>(i)])} << (8 * i);
    return value;
}

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

Error file_error(std::string_view what, const std::filesystem::path& path) {
    return Error{errno == ENOSPC ? Code::no_space : Code::unavailable,
                 fmt::format("{} {}: {}", what, path.string(), std::strerror(errno))};
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

std::string valid_utf8(std::string_view bytes) {
    std::string out;
    out.reserve(bytes.size());
    for (std::size_t i = 0; i < bytes.size();) {
        const auto first = static_cast<unsigned char>(bytes[i]);
        const std::size_t length = first < 0x80                    ? 1
                                   : first >= 0xc2 && first < 0xe0 ? 2
                                   : (first & 0xf0) == 0xe0        ? 3
                                   : first >= 0xf0 && first < 0xf5 ? 4
                                                                   : 0;
        bool good = length > 0 && i + length <= bytes.size();
        for (std::size_t k = 1; good && k < length; ++k) good = (static_cast<unsigned char>(bytes[i + k]) & 0xc0) == 0x80;
        if (good && length >= 3) { // too long a form, a surrogate, beyond the end
            const auto second = static_cast<unsigned char>(bytes[i + 1]);
            good = !(first == 0xe0 && second < 0xa0) && !(first == 0xed && second > 0x9f) && !(first == 0xf0 && second < 0x90) &&
                   !(first == 0xf4 && second > 0x8f);
        }
        if (good && (first != 0)) {
            out += bytes.substr(i, length);
            i += length;
        } else {
            out += "\xef\xbf\xbd";
            ++i;
        }
    }
    return out;
}

void OutputFiles::Sink::frame(char kind, std::uint64_t end, std::string_view bytes) {
    if (size_ + bytes.size() > limit_ && kind != 'n') {
        dropped_ += bytes.size();
        return;
    }
    size_ += bytes.size() + frame_head;
    if (pending_.empty() && on_pending) on_pending();
    pending_ += kind;
    put_bytes(pending_, end, 8);
    put_bytes(pending_, bytes.size(), 4);
    pending_ += bytes;
}

void OutputFiles::Sink::write(Stream stream, std::uint64_t offset, std::string_view bytes) {
    auto& side = sides_[static_cast<std::size_t>(stream)];
    if (offset + bytes.size() <= side.seen) return;
    if (offset < side.seen) bytes.remove_prefix(side.seen - offset);
    side.seen = std::max(side.seen, offset) + bytes.size();
    for (; !bytes.empty(); bytes.remove_prefix(std::min<std::size_t>(bytes.size(), 64 << 10))) {
        const auto kept = masker_.feed(side.held, bytes.substr(0, 64 << 10));
        const auto rest = bytes.size() > (64 << 10) ? bytes.size() - (64 << 10) : 0;
        if (!kept.empty()) frame(stream == Stream::out ? 'o' : 'e', side.seen - rest - side.held.size(), kept);
    }
}

void OutputFiles::Sink::step(Step step) {
    json::object object{{"host", valid_utf8(step.host)},
                        {"name", valid_utf8(masker_.mask(step.name))},
                        {"result", name_of(step.result)},
                        {"took_ms", std::chrono::duration_cast<std::chrono::milliseconds>(step.took).count()}};
    if (!step.key.empty()) object["key"] = valid_utf8(step.key);
    if (!step.words.empty()) object["words"] = valid_utf8(masker_.mask(step.words).substr(0, 16 << 10));
    frame('s', 0, to_json_text(object));
}

void OutputFiles::Sink::resume(Offsets kept, std::uint64_t size) {
    sides_[0].seen = kept.out;
    sides_[1].seen = kept.err;
    size_ = size;
}

void OutputFiles::Sink::finish() {
    for (const auto stream : {Stream::out, Stream::err}) {
        auto& side = sides_[static_cast<std::size_t>(stream)];
        const auto rest = masker_.finish(side.held);
        if (!rest.empty()) frame(stream == Stream::out ? 'o' : 'e', side.seen, rest);
    }
    if (dropped_ > 0)
        frame('n', 0, fmt::format("{} more bytes were not kept: the limit is {}", std::exchange(dropped_, 0), limit_));
}

std::filesystem::path OutputFiles::path(const Name& name) const {
    return options_.folder / name.uid / fmt::format("{}-{}{}", name.task, name.attempt, name_of(name.phase)[0]);
}

Task<OutputFiles::Kept> OutputFiles::kept(Name name) {
    auto file = path(name);
    auto work = [file]() -> Result<Kept> {
        Kept kept;
        const OpenFile open(file, O_RDWR);
        if (!open) return kept;
        for (;;) {
            const auto head = read_at(open.fd(), kept.size, frame_head);
            if (head.size() < frame_head) break;
            const auto length = get_bytes(std::string_view(head).substr(9), 4);
            if (length > longest_frame || read_at(open.fd(), kept.size + frame_head, length).size() < length) break;
            const auto end = get_bytes(std::string_view(head).substr(1), 8);
            if (head[0] == 'o') kept.offsets.out = end;
            if (head[0] == 'e') kept.offsets.err = end;
            kept.size += frame_head + length;
        }
        if (::ftruncate(open.fd(), static_cast<off_t>(kept.size)) != 0) return file_error("cannot cut", file);
        return kept;
    };
    co_return co_await blocking(pool_, std::move(work));
}

Task<Unit> OutputFiles::flush(std::shared_ptr<Sink> sink, bool sync) {
    while (sink->busy_) { // pieces of one file go there in their order
        if (!sink->idle_) sink->idle_ = std::make_unique<Notifier>(co_await asio::this_coro::executor);
        CO_TRY(std::ignore, co_await sink->idle_->wait(Context::background()));
    }
    auto bytes = std::exchange(sink->pending_, {});
    if (bytes.empty() && !(sync && sink->written_)) co_return Unit{};
    sink->written_ = sink->busy_ = true;
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
    auto written = co_await blocking(pool_, std::move(work));
    sink->busy_ = false;
    if (sink->idle_) sink->idle_->notify_all();
    co_return written;
}

Task<OutputFiles::Page> OutputFiles::read(Name name, std::uint64_t from, std::size_t limit) {
    auto file = path(name);
    auto work = [file, from, limit]() -> Result<Page> {
        Page page;
        page.next = from;
        const OpenFile open(file, O_RDONLY);
        if (!open) return page;
        for (std::size_t taken = 0; taken < limit;) {
            const auto head = read_at(open.fd(), page.next, frame_head);
            if (head.size() < frame_head) break;
            const auto length = get_bytes(std::string_view(head).substr(9), 4);
            if (std::strchr("oesn", head[0]) == nullptr || length > longest_frame)
                return Error{Code::invalid, fmt::format("{} is not a place in this output", from),
                             "give what the last page gave as next"};
            auto bytes = read_at(open.fd(), page.next + frame_head, length);
            if (bytes.size() < length) break; // being written
            page.next += frame_head + length;
            taken += length;
            if (!page.pieces.empty() && page.pieces.back().kind == head[0] && head[0] != 's')
                page.pieces.back().bytes += bytes;
            else
                page.pieces.push_back({head[0], std::move(bytes)});
        }
        return page;
    };
    co_return co_await blocking(pool_, std::move(work));
}

Task<Unit> OutputFiles::remove(std::string uid) {
    auto folder = options_.folder / uid;
    auto work = [folder]() -> Result<Unit> {
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
        return Unit{};
    };
    co_return co_await blocking(pool_, std::move(work));
}

} // namespace orrery::jobs
