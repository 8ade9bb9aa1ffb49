#include "jobs/output.h"

#include "core/text.h"
#include "core/truncate.h"
#include "jobs/output_frames.h"

#include <boost/asio/this_coro.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

namespace {

constexpr std::size_t max_piece = 64 << 10, small_piece = 4 << 10; ///< of a frame

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
        if (good && length >= 3) { // overlong form, surrogate, or beyond U+10FFFF
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

void OutputLog::Sink::frame(char kind, std::uint64_t end, std::string_view bytes) {
    const bool full = dropped_ > 0 || !tail_.empty() || size_ + bytes.size() > limit_ - tail_limit_;
    if (full && kind != 'n') return keep_in_tail(kind, end, bytes);
    append(kind, end, bytes);
}

/// The last part of the output explains the outcome: it is kept here until the output is complete.
void OutputLog::Sink::keep_in_tail(char kind, std::uint64_t end, std::string_view bytes) {
    constexpr std::size_t joined = 4096;
    if (!tail_.empty() && tail_.back().kind == kind && kind != 's' && tail_.back().bytes.size() < joined) {
        tail_.back().bytes += bytes;
        tail_.back().end = end;
    } else {
        tail_.push_back({kind, end, std::string(bytes)});
        tail_size_ += frame_head;
    }
    tail_size_ += bytes.size();
    while (tail_size_ > tail_limit_) {
        auto& first = tail_.front();
        const auto excess = tail_size_ - tail_limit_;
        if (tail_.size() == 1 && first.kind != 's' && first.bytes.size() > excess) {
            first.bytes.erase(0, excess);
            tail_size_ -= excess;
            dropped_ += excess;
            return;
        }
        dropped_ += first.bytes.size();
        tail_size_ -= first.bytes.size() + frame_head;
        tail_.pop_front();
    }
}

void OutputLog::Sink::flush_tail() {
    if (dropped_ > 0) {
        if (!tail_.empty() && tail_.front().kind != 's') // the rest of a line that is not whole
            if (const auto line = tail_.front().bytes.find('\n'); line != std::string::npos) {
                tail_.front().bytes.erase(0, line + 1);
                dropped_ += line + 1;
            }
        append('n', 0, fmt::format("{} bytes were left out here: the limit is {}", std::exchange(dropped_, 0), limit_));
    }
    for (const auto& one : std::exchange(tail_, {})) append(one.kind, one.end, one.bytes);
    tail_size_ = 0;
}

void OutputLog::Sink::append(char kind, std::uint64_t end, std::string_view bytes) {
    if (pending_.empty() && on_pending) on_pending();
    if (const auto now = clock_.wall(); now < marked_ || now - marked_ >= time_mark_interval) {
        marked_ = now;
        size_ += frame_head;
        pending_ += time_mark;
        put_bytes(pending_, static_cast<std::uint64_t>(now.time_since_epoch().count()), 8);
        put_bytes(pending_, 0, 4);
    }
    size_ += bytes.size() + frame_head;
    pending_ += kind;
    put_bytes(pending_, end, 8);
    put_bytes(pending_, bytes.size(), 4);
    pending_ += bytes;
}

void OutputLog::Sink::write(Stream stream, std::uint64_t offset, std::string_view bytes) {
    auto& side = sides_[static_cast<std::size_t>(stream)];
    if (offset + bytes.size() <= side.seen) return;
    if (offset < side.seen) bytes.remove_prefix(side.seen - offset);
    side.seen = std::max(side.seen, offset) + bytes.size();
    if (!withheld_.empty()) return;
    while (!bytes.empty()) {
        // Small pieces where the first part ends, so that it is as long as it may be.
        const std::size_t piece = size_ + max_piece > limit_ - tail_limit_ ? small_piece : max_piece;
        const auto taken = std::min(bytes.size(), piece);
        const auto masked = masker_.feed(side.partial, bytes.substr(0, taken));
        bytes.remove_prefix(taken);
        if (!masked.empty()) frame(stream == Stream::out ? 'o' : 'e', side.seen - bytes.size() - side.partial.size(), masked);
    }
}

void OutputLog::Sink::step(Step step) {
    if (!withheld_.empty()) return;
    json::object object{{"host", valid_utf8(step.host)},
                        {"name", valid_utf8(masker_.mask_cut(step.name))},
                        {"result", name_of(step.result)},
                        {"took_ms", std::chrono::duration_cast<std::chrono::milliseconds>(step.took).count()}};
    if (!step.key.empty()) object["key"] = valid_utf8(masker_.mask_cut(step.key));
    if (!step.message.empty()) object["message"] = valid_utf8(masker_.mask_cut(step.message).substr(0, 16 << 10));
    frame('s', 0, to_json_text(object));
}

void OutputLog::Sink::report_problem(std::string message, std::shared_ptr<const std::atomic<bool>> resolved) {
    const bool is_new = problem().empty();
    problem_ = valid_utf8(truncate(masker_.mask(message), 1024));
    problem_resolved_ = std::move(resolved);
    if (is_new) frame('n', 0, problem_ + "\n");
}

void OutputLog::Sink::resume(Offsets stored, std::uint64_t size) {
    sides_[0].seen = stored.out;
    sides_[1].seen = stored.err;
    size_ = size;
}

void OutputLog::Sink::withhold(std::string why) { withheld_ = std::move(why); }

void OutputLog::Sink::finish() {
    if (!withheld_.empty()) return frame('n', 0, withheld_);
    for (const auto stream : {Stream::out, Stream::err}) {
        auto& side = sides_[static_cast<std::size_t>(stream)];
        const auto rest = masker_.finish(side.partial);
        if (!rest.empty()) frame(stream == Stream::out ? 'o' : 'e', side.seen, rest);
    }
    flush_tail();
}

Task<Unit> OutputLog::wait_for_flush(Context ctx, std::shared_ptr<Sink> sink) {
    while (sink->busy_) {
        if (!sink->idle_) sink->idle_ = std::make_unique<Notifier>(co_await asio::this_coro::executor);
        CO_TRY(std::ignore, co_await sink->idle_->wait(ctx));
    }
    co_return Unit{};
}

OutputLog::FlushLock::~FlushLock() {
    sink_->busy_ = false;
    if (sink_->idle_) sink_->idle_->notify_all();
}

} // namespace orrery::jobs
