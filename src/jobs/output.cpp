#include "jobs/output.h"

#include "core/text.h"
#include "jobs/output_frames.h"

#include <boost/asio/this_coro.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

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

void OutputLog::Sink::frame(char kind, std::uint64_t end, std::string_view bytes) {
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

void OutputLog::Sink::write(Stream stream, std::uint64_t offset, std::string_view bytes) {
    auto& side = sides_[static_cast<std::size_t>(stream)];
    if (offset + bytes.size() <= side.seen) return;
    if (offset < side.seen) bytes.remove_prefix(side.seen - offset);
    side.seen = std::max(side.seen, offset) + bytes.size();
    if (!withheld_.empty()) return;
    for (; !bytes.empty(); bytes.remove_prefix(std::min<std::size_t>(bytes.size(), 64 << 10))) {
        const auto kept = masker_.feed(side.held, bytes.substr(0, 64 << 10));
        const auto rest = bytes.size() > (64 << 10) ? bytes.size() - (64 << 10) : 0;
        if (!kept.empty()) frame(stream == Stream::out ? 'o' : 'e', side.seen - rest - side.held.size(), kept);
    }
}

void OutputLog::Sink::step(Step step) {
    if (!withheld_.empty()) return;
    json::object object{{"host", valid_utf8(step.host)},
                        {"name", valid_utf8(masker_.mask_cut(step.name))},
                        {"result", name_of(step.result)},
                        {"took_ms", std::chrono::duration_cast<std::chrono::milliseconds>(step.took).count()}};
    if (!step.key.empty()) object["key"] = valid_utf8(masker_.mask_cut(step.key));
    if (!step.words.empty()) object["words"] = valid_utf8(masker_.mask_cut(step.words).substr(0, 16 << 10));
    frame('s', 0, to_json_text(object));
}

void OutputLog::Sink::troubled(std::string words, std::shared_ptr<const std::atomic<bool>> over) {
    const bool is_new = trouble().empty();
    trouble_ = valid_utf8(masker_.mask(words).substr(0, 1024));
    trouble_over_ = std::move(over);
    if (is_new) frame('n', 0, trouble_ + "\n");
}

void OutputLog::Sink::resume(Offsets kept, std::uint64_t size) {
    sides_[0].seen = kept.out;
    sides_[1].seen = kept.err;
    size_ = size;
}

void OutputLog::Sink::withhold(std::string why) { withheld_ = std::move(why); }

void OutputLog::Sink::finish() {
    if (!withheld_.empty()) return frame('n', 0, withheld_);
    for (const auto stream : {Stream::out, Stream::err}) {
        auto& side = sides_[static_cast<std::size_t>(stream)];
        const auto rest = masker_.finish(side.held);
        if (!rest.empty()) frame(stream == Stream::out ? 'o' : 'e', side.seen, rest);
    }
    if (dropped_ > 0)
        frame('n', 0, fmt::format("{} more bytes were not kept: the limit is {}", std::exchange(dropped_, 0), limit_));
}

Task<Unit> OutputLog::wait_for_turn(Context ctx, std::shared_ptr<Sink> sink) {
    while (sink->busy_) {
        if (!sink->idle_) sink->idle_ = std::make_unique<Notifier>(co_await asio::this_coro::executor);
        CO_TRY(std::ignore, co_await sink->idle_->wait(ctx));
    }
    co_return Unit{};
}

OutputLog::Turn::~Turn() {
    sink_->busy_ = false;
    if (sink_->idle_) sink_->idle_->notify_all();
}

} // namespace orrery::jobs
