#include "jobs/journal.h"

#include "core/text.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::jobs {

namespace {

constexpr std::size_t record_size = 256 << 10; ///< an entry is closed beyond this; one record adds at most about 300 KiB
constexpr std::size_t max_inputs = 256 << 10;

void put(std::string& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
}
void put_signed(std::string& out, std::int64_t value) {
    put(out, (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
}
void put(std::string& out, std::string_view text) {
    put(out, static_cast<std::uint64_t>(text.size()));
    out += text;
}

class ByteReader {
public:
    explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
    bool empty() const { return bytes_.empty(); }
    bool bad() const { return bad_; }
    std::uint64_t number() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            if (bytes_.empty()) break;
            const auto byte = static_cast<unsigned char>(bytes_.front());
            bytes_.remove_prefix(1);
            value |= std::uint64_t{byte & 0x7fu} << shift;
            if (byte < 0x80) return value;
        }
        bad_ = true;
        return 0;
    }
    std::int64_t signed_number() {
        const auto value = number();
        return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
    }
    std::string_view text() {
        const auto size = number();
        if (size > bytes_.size()) {
            bad_ = true;
            return {};
        }
        const auto out = bytes_.substr(0, size);
        bytes_.remove_prefix(size);
        return out;
    }
    /// A number that must be below `limit`.
    template <class T> T bounded(std::uint64_t limit) {
        const auto value = number();
        if (value >= limit) bad_ = true;
        return static_cast<T>(value < limit ? value : 0);
    }

private:
    std::string_view bytes_;
    bool bad_ = false;
};

void put_record(std::string& out, std::uint32_t task, const TaskRecord& record) {
    out += 'r';
    put(out, task);
    put(out, static_cast<std::uint64_t>(record.state));
    put(out, static_cast<std::uint64_t>(record.phase));
    put(out, static_cast<std::uint64_t>(record.waits));
    put(out, static_cast<std::uint64_t>(record.change));
    put(out, static_cast<std::uint64_t>(record.error));
    put(out, (record.approved ? 1u : 0u) | (record.lapsed ? 2u : 0u) | (record.done_once ? 4u : 0u) | (record.undone ? 8u : 0u) |
                 (record.uncleaned ? 16u : 0u));
    put(out, std::uint64_t{record.attempt});
    put(out, std::uint64_t{record.tries});
    put_signed(out, record.exit_code);
    put(out, (std::uint64_t{record.blocked_by} + 1) & 0xffffffff);
    put_signed(out, record.since);
    put_signed(out, record.started - record.since);
    put_signed(out, record.ended - record.since);
    put(out, record.inputs);
    put(out, record.message());
    const auto past = record.detail ? record.detail->past.size() : 0;
    put(out, past);
    for (std::size_t i = 0; i < past; ++i) {
        const auto& one = record.detail->past[i];
        put(out, static_cast<std::uint64_t>(one.number));
        put(out, static_cast<std::uint64_t>(one.ended));
        put(out, static_cast<std::uint64_t>(one.error));
        put_signed(out, one.exit_code);
        put_signed(out, one.started);
        put_signed(out, one.ended_at);
        put(out, one.message);
    }
}

void read_record(ByteReader& in, TaskRecord& record) {
    record.state = in.bounded<TaskState>(task_states);
    record.phase = in.bounded<Phase>(4);
    record.waits = in.bounded<Waits>(6);
    record.change = in.bounded<Outcome::Change>(3);
    record.error = in.bounded<ErrorClass>(8);
    const auto flags = in.number();
    record.approved = (flags & 1) != 0;
    record.lapsed = (flags & 2) != 0;
    record.done_once = (flags & 4) != 0;
    record.undone = (flags & 8) != 0;
    record.uncleaned = (flags & 16) != 0;
    record.attempt = in.bounded<std::uint32_t>(std::uint64_t{1} << 32);
    record.tries = in.bounded<std::uint16_t>(0x10000);
    record.exit_code = static_cast<std::int32_t>(in.signed_number());
    record.blocked_by = static_cast<std::uint32_t>(in.number() - 1);
    record.since = in.signed_number();
    record.started = in.signed_number() + record.since;
    record.ended = in.signed_number() + record.since;
    record.inputs = in.number();
    const auto message = in.text();
    if (!message.empty() || record.detail) record.more().message = message;
    const auto past = in.bounded<std::size_t>(max_past_attempts + 1);
    if (past > 0 || record.detail) record.more().past.clear();
    for (std::size_t i = 0; i < past && !in.bad(); ++i) {
        PastAttempt one;
        one.number = static_cast<int>(in.number());
        one.ended = in.bounded<Outcome::Ended>(3);
        one.error = in.bounded<ErrorClass>(8);
        one.exit_code = static_cast<int>(in.signed_number());
        one.started = in.signed_number();
        one.ended_at = in.signed_number();
        one.message = in.text();
        record.more().past.push_back(std::move(one));
    }
}

void put_job(std::string& out, const JobRecord& job) {
    out += 'h';
    put(out, static_cast<std::uint64_t>(job.state));
    put(out, (job.approved ? 1u : 0u) | (job.paused ? 2u : 0u) | (job.undo ? 4u : 0u));
    put(out, job.message);
    put_signed(out, job.since);
    put_signed(out, job.began);
    put_signed(out, job.ended);
}

void read_job_record(ByteReader& in, JobRecord& job) {
    job.state = in.bounded<JobState>(job_states);
    const auto flags = in.number();
    job.approved = (flags & 1) != 0;
    job.paused = (flags & 2) != 0;
    job.undo = (flags & 4) != 0;
    job.message = in.text();
    job.since = in.signed_number();
    job.began = in.signed_number();
    job.ended = in.signed_number();
}

void put_json(std::string& out, char type, std::uint32_t task, const json::value& value) {
    auto text = to_json_text(value);
    // A value over the limit is dropped, not cut; its digest stays in the record.
    if (text.size() > max_inputs) text = "null";
    out += type;
    put(out, task);
    put(out, text);
}

} // namespace

Journal::Entry Journal::seal(std::string body) {
    const auto number = next_++;
    bytes_ += body.size();
    sizes_[number] = body.size();
    return {fmt::format("{}{:016x}", log_prefix(uid_), number), std::move(body)};
}

void Journal::add_record(const Scheduler& scheduler, std::uint32_t task, std::string& body) {
    put_record(body, task, scheduler.record(task));
    records_at_[task] = next_;
}

std::vector<Journal::Entry> Journal::record(Scheduler& scheduler, const std::vector<std::uint32_t>& dirty, bool job,
                                            const std::vector<std::uint32_t>& cleaned) {
    std::vector<Entry> out;
    std::string body = "1";
    if (job) {
        put_job(body, scheduler.job());
        job_at_ = next_;
    }
    for (const auto task : cleaned) {
        body += 'c';
        put(body, task);
    }
    for (const auto task : dirty) {
        if (body.size() > record_size) {
            out.push_back(seal(std::move(body)));
            body = "1";
        }
        add_record(scheduler, task, body);
        auto& detail = scheduler.mutable_record(task).detail;
        if (!detail) continue;
        if (std::exchange(detail->inputs_new, false)) {
            put_json(body, 'i', task, detail->inputs);
            inputs_at_[task] = next_;
        }
        if (std::exchange(detail->values_new, false)) {
            put_json(body, 'v', task, detail->values);
            values_at_[task] = next_;
        }
        if (std::exchange(detail->server_new, false)) {
            put_json(body, 's', task, json::value(detail->server));
            servers_at_[task] = next_;
        }
    }
    if (body.size() > 1) out.push_back(seal(std::move(body)));
    return out;
}

Result<Unit> Journal::replay(Scheduler& scheduler, std::string_view key, std::string_view value) {
    const Error damaged{Code::internal, fmt::format("the journal's record {} cannot be read", key),
                        "restore the store from a backup"};
    std::uint64_t number = 0;
    const auto digits = key.substr(key.rfind('/') + 1);
    if (auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
        failed != std::errc{} || end != digits.data() + digits.size())
        return damaged;
    if (value.empty() || value.front() != '1') return damaged;
    ByteReader in(value.substr(1));
    while (!in.empty()) {
        const auto type = static_cast<char>(in.number());
        if (type == 'h') {
            read_job_record(in, scheduler.mutable_job());
            job_at_ = number;
        } else if (type == 'r' || type == 'i' || type == 'v' || type == 's' || type == 'c') {
            const auto task = in.bounded<std::uint32_t>(records_at_.size());
            if (in.bad()) return damaged;
            auto& record = scheduler.mutable_record(task);
            if (type == 'c') {
                record.uncleaned = false;
            } else if (type == 'r') {
                read_record(in, record);
                records_at_[task] = number;
            } else {
                boost::system::error_code failed;
                auto read = json::parse(in.text(), failed);
                if (failed) return damaged;
                (type == 'i' ? inputs_at_ : type == 'v' ? values_at_ : servers_at_)[task] = number;
                if (type == 'i')
                    record.more().inputs = std::move(read);
                else if (type == 's' && read.is_string())
                    record.more().server = std::string_view(read.get_string());
                else if (read.is_object())
                    record.more().values = std::move(read.get_object());
            }
        } else {
            return damaged;
        }
        if (in.bad()) return damaged;
    }
    next_ = std::max(next_, number + 1);
    bytes_ += value.size();
    sizes_[number] = value.size();
    return Unit{};
}

Journal::Compaction Journal::compact(Scheduler& scheduler) {
    constexpr std::size_t min_bytes = 1 << 20, row_estimate = 48, max_records = 60, max_bytes = 256 << 10;
    if (sizes_.size() < 100 || (bytes_ < min_bytes + 4 * row_estimate * records_at_.size() && sizes_.size() < 5000)) return {};
    Compaction out;
    std::size_t taken = 0;
    std::uint64_t last = 0;
    for (const auto& [number, size] : sizes_) {
        if (out.remove.size() >= max_records || (taken > 0 && taken + size > max_bytes)) break;
        taken += size;
        last = number;
        out.remove.push_back(fmt::format("{}{:016x}", log_prefix(uid_), number));
    }
    std::string body = "1";
    if (job_at_ != 0 && job_at_ <= last) {
        put_job(body, scheduler.job());
        job_at_ = next_;
    }
    for (std::uint32_t task = 0; task < records_at_.size(); ++task)
        if (records_at_[task] != 0 && records_at_[task] <= last) add_record(scheduler, task, body);
    const auto rewrite = [&](std::map<std::uint32_t, std::uint64_t>& newest, char type) {
        for (auto& [task, number] : newest) {
            if (number > last || !scheduler.record(task).detail) continue;
            const auto& detail = *scheduler.record(task).detail;
            if (type == 'i')
                put_json(body, type, task, detail.inputs);
            else if (type == 'v')
                put_json(body, type, task, detail.values);
            else
                put_json(body, type, task, json::value(detail.server));
            number = next_;
        }
    };
    rewrite(inputs_at_, 'i');
    rewrite(values_at_, 'v');
    rewrite(servers_at_, 's');
    for (auto entry = sizes_.begin(); entry != sizes_.end() && entry->first <= last; entry = sizes_.erase(entry))
        bytes_ -= entry->second;
    if (body.size() > 1) out.entries.push_back(seal(std::move(body)));
    return out;
}

} // namespace orrery::jobs
