#include "core/log.h"
#include "core/text.h"
#include "jobs/output.h"
#include "jobs/output_frames.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::jobs {

namespace {

constexpr std::string_view sizes_prefix = "jobs.output/";
constexpr std::size_t record_bytes = 32 << 10; ///< a record is closed beyond this; one frame adds at most 64 KiB or so
constexpr std::size_t records_a_page = 16;
/// A record that is still added to is written again as a whole. Small ones often, so that readers see them; larger ones when they
/// have grown by half.
constexpr Duration written_again = std::chrono::seconds(1), written_late = std::chrono::seconds(10);

std::uint64_t position_of(std::string_view key) {
    std::uint64_t at = 0;
    const auto digits = key.substr(key.rfind('/') + 1);
    std::from_chars(digits.data(), digits.data() + digits.size(), at, 16);
    return at;
}

} // namespace

OutputRecords::OutputRecords(store::Store& store, Clock& clock, OutputFiles& before, Options options)
    : OutputLog(options.limit), store_(store), clock_(clock), before_(before), options_(options) {
    observer_ = store_.observe(sizes_prefix, [this](const store::Event& event) {
        const auto uid = event.key.substr(sizes_prefix.size());
        if (const auto known = jobs_.find(uid); known != jobs_.end()) {
            total_ -= static_cast<std::size_t>(known->second.bytes);
            if (!event.record) jobs_.erase(known);
        }
        if (!event.record) return;
        auto& job = jobs_[uid];
        job = {0, event.record->created, event.record->value == "removed"};
        if (!job.removed)
            std::from_chars(event.record->value.data(), event.record->value.data() + event.record->value.size(), job.bytes);
        job.bytes = std::max<std::int64_t>(job.bytes, 0);
        total_ += static_cast<std::size_t>(job.bytes);
    });
}
OutputRecords::~OutputRecords() = default;

void OutputRecords::lead(std::optional<store::Fence> fence, std::function<bool(std::string_view)> is_terminal) {
    fence_ = std::move(fence);
    is_terminal_ = std::move(is_terminal);
}

std::string OutputRecords::prefix(const Name& name) {
    return fmt::format("{}{}-{}{}/", prefix(name.uid), name.task, name.attempt, name_of(name.phase)[0]);
}

Task<OutputLog::StoredOutput> OutputRecords::stored(Context ctx, Name name) {
    StoredOutput stored;
    const auto all = prefix(name);
    for (std::string after;;) {
        CO_TRY(const auto page, co_await store_.fetch(ctx, all, records_a_page, after, store::Store::Values::yes));
        for (const auto& record : page.records) {
            std::string_view rest = record->value;
            while (const auto head = frame_head_of(rest)) {
                if (rest.size() < frame_head + head->length) break;
                count_frame(stored, *head, rest.substr(frame_head, head->length));
                rest.remove_prefix(frame_head + head->length);
            }
        }
        if (page.next.empty()) break;
        after = page.next;
    }
    co_return stored;
}

Task<Unit> OutputRecords::flush(Context ctx, std::shared_ptr<Sink> sink, When when) {
    CO_TRY(std::ignore, co_await wait_for_flush(ctx, sink));
    const FlushLock lock(sink);
    while (!sink->pending_.empty()) {
        const auto waited = clock_.steady() - sink->written_at_;
        const bool due = when == When::now || sink->open_.size() + sink->pending_.size() > record_bytes || waited >= written_late ||
                         (waited >= written_again && (sink->open_.size() < 4096 || sink->pending_.size() > sink->open_.size() / 2));
        if (!due) co_return Unit{};
        if (!fence_) co_return Error{Code::conflict, "this server no longer leads"};
        CO_TRY(std::ignore, co_await make_room(ctx));
        // Whole frames, up to where a record is closed.
        std::size_t taken = 0;
        for (std::string_view rest = sink->pending_; !rest.empty() && sink->open_.size() + taken < record_bytes;) {
            const auto head = frame_head_of(rest);
            const auto size = head ? frame_head + head->length : rest.size();
            taken += size;
            rest.remove_prefix(size);
        }
        if (!sink->written_) sink->open_at_ = sink->size_ - sink->pending_.size();
        sink->written_ = true;
        auto value = sink->open_ + sink->pending_.substr(0, taken);
        auto& job = jobs_[sink->name_.uid];
        store::Transaction transaction;
        transaction.put(fmt::format("{}{:012x}", prefix(sink->name_), sink->open_at_), value);
        transaction.put(fmt::format("{}{}", sizes_prefix, sink->name_.uid),
                        std::to_string(job.bytes + static_cast<std::int64_t>(taken)));
        fence_->guard(transaction);
        CO_TRY(std::ignore, co_await store_.apply(ctx, std::move(transaction)));
        sink->written_at_ = clock_.steady();
        sink->pending_.erase(0, taken);
        sink->open_ = std::move(value);
        if (sink->open_.size() >= record_bytes) {
            sink->open_at_ += sink->open_.size();
            sink->open_.clear();
        }
    }
    co_return Unit{};
}

Task<OutputLog::Page> OutputRecords::read(Context ctx, Name name, std::uint64_t from, std::size_t limit) {
    const auto all = prefix(name);
    CO_TRY(const auto keys, co_await store_.fetch(ctx, all, 0, {}, store::Store::Values::no));
    PageBuilder builder;
    auto& page = builder.page;
    page.next = from;
    if (keys.records.empty()) {
        const auto job = jobs_.find(name.uid);
        if (job == jobs_.end() || !job->second.removed) co_return co_await before_.read(ctx, std::move(name), from, limit);
        if (from == 0) {
            page.pieces.push_back({'n', "its output was removed to make room for later jobs: see jobs.output_total"});
            page.next = 1;
        }
        co_return std::move(page);
    }
    // The record that holds this place is the last that does not begin after it; reading begins after the one before.
    std::string after;
    for (std::size_t i = 1; i < keys.records.size() && position_of(keys.records[i]->key) <= from; ++i)
        after = keys.records[i - 1]->key;
    for (std::size_t taken = 0; taken < limit;) {
        CO_TRY(const auto found, co_await store_.fetch(ctx, all, 4, after, store::Store::Values::yes));
        for (const auto& record : found.records) {
            const auto begins = position_of(record->key);
            if (begins > page.next || page.next > begins + record->value.size()) co_return invalid_position(from);
            std::string_view rest = std::string_view(record->value).substr(page.next - begins);
            while (!rest.empty() && taken < limit) {
                const auto head = frame_head_of(rest);
                if (!head || rest.size() < frame_head + head->length) co_return invalid_position(from);
                builder.add(*head, std::string(rest.substr(frame_head, head->length)));
                rest.remove_prefix(frame_head + head->length);
                page.next += frame_head + head->length;
                taken += head->length;
            }
            if (taken >= limit) co_return std::move(page);
        }
        if (found.next.empty()) break;
        after = found.next;
    }
    co_return std::move(page);
}

Task<Unit> OutputRecords::remove(Context ctx, std::string uid) {
    CO_TRY(std::ignore, co_await remove_records(ctx, uid));
    store::Transaction transaction;
    transaction.remove(fmt::format("{}{}", sizes_prefix, uid));
    if (fence_) fence_->guard(transaction);
    CO_TRY(std::ignore, co_await store_.apply(ctx, std::move(transaction)));
    co_return co_await before_.remove(ctx, std::move(uid));
}

Task<Unit> OutputRecords::remove_records(Context ctx, std::string uid) {
    for (;;) {
        CO_TRY(const auto page, co_await store_.fetch(ctx, prefix(uid), 100, {}, store::Store::Values::no));
        if (page.records.empty()) co_return Unit{};
        if (!fence_) co_return Error{Code::conflict, "this server no longer leads"};
        store::Transaction transaction;
        for (const auto& record : page.records) transaction.remove(record->key);
        fence_->guard(transaction);
        CO_TRY(std::ignore, co_await store_.apply(ctx, std::move(transaction)));
    }
}

/// Removes the output of the oldest ended jobs until the total is within its limit.
Task<Unit> OutputRecords::make_room(Context ctx) {
    if (making_room_) co_return Unit{};
    struct Busy {
        bool& flag;
        explicit Busy(bool& of) : flag(of) { flag = true; }
        ~Busy() { flag = false; }
        Busy(const Busy&) = delete;
        Busy& operator=(const Busy&) = delete;
    } busy(making_room_);
    while (total_ > options_.total) {
        std::string oldest;
        store::Revision since = 0;
        for (const auto& [uid, job] : jobs_)
            if (!job.removed && (oldest.empty() || job.since < since) && is_terminal_ && is_terminal_(uid)) {
                oldest = uid;
                since = job.since;
            }
        if (oldest.empty()) co_return Unit{}; // all of it is of jobs that run, each attempt within its limit
        log::info(ctx, "output of an old job removed to make room stored_bytes={} max_bytes={}", total_, options_.total);
        store::Transaction transaction;
        transaction.put(fmt::format("{}{}", sizes_prefix, oldest), "removed");
        if (!fence_) co_return Error{Code::conflict, "this server no longer leads"};
        fence_->guard(transaction);
        CO_TRY(std::ignore, co_await store_.apply(ctx, std::move(transaction)));
        CO_TRY(std::ignore, co_await remove_records(ctx, oldest));
    }
    co_return Unit{};
}

} // namespace orrery::jobs
