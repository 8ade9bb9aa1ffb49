#include "jobs/journal.h"

#include "core/text.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::jobs {

namespace {

constexpr std::size_t record_size = 256 << 10; ///< a record is closed beyond this; one row adds at most 300 KiB or so
constexpr std::size_t most_inputs = 256 << 10;

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

class Bytes {
public:
    explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
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
    template <class T> T choice(std::uint64_t limit) {
        const auto value = number();
        if (value >= limit) bad_ = true;
        return static_cast<T>(value < limit ? value : 0);
    }

private:
    std::string_view bytes_;
    bool bad_ = false;
};

void put_row(std::string& out, std::uint32_t task, const Row& row) {
    out += 'r';
    put(out, task);
    put(out, static_cast<std::uint64_t>(row.state));
    put(out, static_cast<std::uint64_t>(row.phase));
    put(out, static_cast<std::uint64_t>(row.waits));
    put(out, static_cast<std::uint64_t>(row.change));
    put(out, static_cast<std::uint64_t>(row.error));
    put(out, (row.approved ? 1u : 0u) | (row.lapsed ? 2u : 0u) | (row.done_once ? 4u : 0u) | (row.undone ? 8u : 0u) |
                 (row.uncleaned ? 16u : 0u));
    put(out, std::uint64_t{row.attempt});
    put(out, std::uint64_t{row.tries});
    put_signed(out, row.exit_code);
    put(out, (std::uint64_t{row.blocked_by} + 1) & 0xffffffff);
    put_signed(out, row.since);
    put_signed(out, row.started - row.since);
    put_signed(out, row.ended - row.since);
    put(out, row.inputs);
    put(out, row.words());
    const auto past = row.detail ? row.detail->past.size() : 0;
    put(out, past);
    for (std::size_t i = 0; i < past; ++i) {
        const auto& one = row.detail->past[i];
        put(out, static_cast<std::uint64_t>(one.number));
        put(out, static_cast<std::uint64_t>(one.ended));
        put(out, static_cast<std::uint64_t>(one.error));
        put_signed(out, one.exit_code);
        put_signed(out, one.started);
        put_signed(out, one.over);
        put(out, one.words);
    }
}

void read_row(Bytes& in, Row& row) {
    row.state = in.choice<TaskState>(9);
    row.phase = in.choice<Phase>(4);
    row.waits = in.choice<Waits>(6);
    row.change = in.choice<Outcome::Change>(3);
    row.error = in.choice<ErrorClass>(8);
    const auto flags = in.number();
    row.approved = (flags & 1) != 0;
    row.lapsed = (flags & 2) != 0;
    row.done_once = (flags & 4) != 0;
    row.undone = (flags & 8) != 0;
    row.uncleaned = (flags & 16) != 0;
    row.attempt = in.choice<std::uint32_t>(std::uint64_t{1} << 32);
    row.tries = in.choice<std::uint16_t>(0x10000);
    row.exit_code = static_cast<std::int32_t>(in.signed_number());
    row.blocked_by = static_cast<std::uint32_t>(in.number() - 1);
    row.since = in.signed_number();
    row.started = in.signed_number() + row.since;
    row.ended = in.signed_number() + row.since;
    row.inputs = in.number();
    const auto words = in.text();
    if (!words.empty() || row.detail) row.more().words = words;
    const auto past = in.choice<std::size_t>(kept_past + 1);
    if (past > 0 || row.detail) row.more().past.clear();
    for (std::size_t i = 0; i < past && !in.bad(); ++i) {
        Past one;
        one.number = static_cast<int>(in.number());
        one.ended = in.choice<Outcome::Ended>(3);
        one.error = in.choice<ErrorClass>(8);
        one.exit_code = static_cast<int>(in.signed_number());
        one.started = in.signed_number();
        one.over = in.signed_number();
        one.words = in.text();
        row.more().past.push_back(std::move(one));
    }
}

void put_head(std::string& out, const JobHead& head) {
    out += 'h';
    put(out, static_cast<std::uint64_t>(head.state));
    put(out, (head.approved ? 1u : 0u) | (head.paused ? 2u : 0u) | (head.undo ? 4u : 0u));
    put(out, head.words);
    put_signed(out, head.since);
    put_signed(out, head.began);
    put_signed(out, head.ended);
}

void read_head(Bytes& in, JobHead& head) {
    head.state = in.choice<JobState>(7);
    const auto flags = in.number();
    head.approved = (flags & 1) != 0;
    head.paused = (flags & 2) != 0;
    head.undo = (flags & 4) != 0;
    head.words = in.text();
    head.since = in.signed_number();
    head.began = in.signed_number();
    head.ended = in.signed_number();
}

void put_json(std::string& out, char type, std::uint32_t task, const json::value& value) {
    auto text = to_json_text(value);
    // What cannot be kept is not cut in the middle: its digest, which is in the row, stays.
    if (text.size() > most_inputs) text = "null";
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

void Journal::add_row(const Scheduler& scheduler, std::uint32_t task, std::string& body) {
    put_row(body, task, scheduler.row(task));
    rows_at_[task] = next_;
}

std::vector<Journal::Entry> Journal::record(Scheduler& scheduler, const std::vector<std::uint32_t>& dirty, bool head,
                                            const std::vector<std::uint32_t>& cleaned) {
    std::vector<Entry> out;
    std::string body = "1";
    if (head) {
        put_head(body, scheduler.head());
        head_at_ = next_;
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
        add_row(scheduler, task, body);
        auto& detail = scheduler.replayed(task).detail;
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
    Bytes in(value.substr(1));
    while (!in.empty()) {
        const auto type = static_cast<char>(in.number());
        if (type == 'h') {
            read_head(in, scheduler.replayed_head());
            head_at_ = number;
        } else if (type == 'r' || type == 'i' || type == 'v' || type == 's' || type == 'c') {
            const auto task = in.choice<std::uint32_t>(rows_at_.size());
            if (in.bad()) return damaged;
            auto& row = scheduler.replayed(task);
            if (type == 'c') {
                row.uncleaned = false;
            } else if (type == 'r') {
                read_row(in, row);
                rows_at_[task] = number;
            } else {
                boost::system::error_code failed;
                auto read = json::parse(in.text(), failed);
                if (failed) return damaged;
                (type == 'i' ? inputs_at_ : type == 'v' ? values_at_ : servers_at_)[task] = number;
                if (type == 'i')
                    row.more().inputs = std::move(read);
                else if (type == 's' && read.is_string())
                    row.more().server = std::string_view(read.get_string());
                else if (read.is_object())
                    row.more().values = std::move(read.get_object());
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
    constexpr std::size_t least_bytes = 1 << 20, row_estimate = 48, most_records = 60, most_bytes = 256 << 10;
    if (sizes_.size() < 100 || (bytes_ < least_bytes + 4 * row_estimate * rows_at_.size() && sizes_.size() < 5000)) return {};
    Compaction out;
    std::size_t taken = 0;
    std::uint64_t last = 0;
    for (const auto& [number, size] : sizes_) {
        if (out.remove.size() >= most_records || (taken > 0 && taken + size > most_bytes)) break;
        taken += size;
        last = number;
        out.remove.push_back(fmt::format("{}{:016x}", log_prefix(uid_), number));
    }
    std::string body = "1";
    if (head_at_ != 0 && head_at_ <= last) {
        put_head(body, scheduler.head());
        head_at_ = next_;
    }
    for (std::uint32_t task = 0; task < rows_at_.size(); ++task)
        if (rows_at_[task] != 0 && rows_at_[task] <= last) add_row(scheduler, task, body);
    const auto rewrite = [&](std::map<std::uint32_t, std::uint64_t>& places, char type) {
        for (auto& [task, number] : places) {
            if (number > last || !scheduler.row(task).detail) continue;
            const auto& detail = *scheduler.row(task).detail;
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
    for (auto place = sizes_.begin(); place != sizes_.end() && place->first <= last; place = sizes_.erase(place))
        bytes_ -= place->second;
    if (body.size() > 1) out.entries.push_back(seal(std::move(body)));
    return out;
}

} // namespace orrery::jobs
