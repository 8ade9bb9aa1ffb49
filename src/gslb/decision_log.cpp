#include "gslb/decision_log.h"

#include "core/ids.h"
#include "core/text.h"
#include "gslb/read.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

namespace orrery::gslb {

namespace {

/// They are made as they are written: so many as the loop may be kept busy with at a time.
constexpr std::size_t records_at_once = 40, swept_at_once = 100;
/// More than this wait only while the store is away: then the oldest are given up, and it is said.
constexpr std::size_t most_waiting = 200'000;
constexpr std::size_t most_kept = 20'000;
/// Longer than it takes until another leads in place of one that is gone.
constexpr auto kept_for_another = std::chrono::seconds(30);
/// Two servers see the same within so long, each at its own pace.
constexpr auto seen_together = std::chrono::seconds(15);

bool same_decision(const json::object& one, const json::object& other) {
    return flag_at(one, "changed") == flag_at(other, "changed") &&
           to_json_text(object_at(one, "after")) == to_json_text(object_at(other, "after")) &&
           (flag_at(one, "changed") || text_at(one, "cause") == text_at(other, "cause"));
}

} // namespace

DecisionLog::DecisionLog(resource::Resources& resources, const Engine& engine, Clock& clock)
    : resources_(resources), engine_(engine), clock_(clock) {}

void DecisionLog::put(Waiting one) {
    waiting_.push_back(std::move(one));
    if (waiting_.size() <= most_waiting) return;
    waiting_.pop_front();
    ++lost_;
}

void DecisionLog::add(RecordDraft draft, WallTime at) { put({std::move(draft), at, time_ordered_id(at)}); }

void DecisionLog::keep(RecordDraft draft, WallTime at) {
    kept_.push_back({std::move(draft), at, clock_.steady()});
    if (kept_.size() > most_kept) kept_.pop_front();
}

void DecisionLog::step_down() {
    for (auto& one : std::exchange(waiting_, {})) keep(std::move(one.draft), one.at);
}

void DecisionLog::forget_old() {
    while (!kept_.empty() && clock_.steady() - kept_.front().since > kept_for_another) kept_.pop_front();
}

void DecisionLog::take_over() {
    const auto& kind = *resources_.registry().find("Decision");
    std::set<std::string> matched;
    for (auto& one : std::exchange(kept_, {})) {
        resource::ListQuery query;
        query.fields = {{"loadbalancer", text_at(*one.draft, "loadbalancer")}};
        query.newest_first = true;
        query.limit = 50;
        const auto page = resources_.list(kind, query);
        if (!page.ok()) continue;
        bool written = false;
        std::int64_t last = 0;
        for (const auto& record : page->records) {
            const auto object = resource::from_stored(*record);
            if (!object.ok()) continue;
            last = std::max(last, static_cast<std::int64_t>(number_at(object->spec, "seq", 0)));
            const auto at = time_at(object->spec, "at");
            if (!at || std::chrono::abs(*at - one.at) > seen_together || !same_decision(object->spec, *one.draft)) continue;
            if (!matched.insert(record->key).second) continue;
            written = true;
            break;
        }
        if (written) continue;
        const bool taken = static_cast<std::int64_t>(number_at(*one.draft, "seq", 0)) <= last;
        put({std::move(one.draft), one.at, time_ordered_id(one.at), taken ? last + 1 : 0});
    }
}

Task<Unit> DecisionLog::write_some(Context ctx, store::Fence fence) {
    std::vector<Waiting> batch;
    store::Transaction transaction;
    fence.guard(transaction);
    std::size_t size = 0;
    while (!waiting_.empty() && batch.size() < records_at_once) {
        auto& one = waiting_.front();
        resource::Object object;
        object.kind = "Decision";
        object.created_at = object.updated_at = one.at;
        object.name = one.id;
        object.spec = *one.draft;
        if (one.seq != 0) object.spec["seq"] = one.seq;
        auto text = resource::to_stored(object);
        size += text.size();
        if (!batch.empty() && size > store::max_transaction_size / 2) break;
        transaction.put("decisions/" + one.id, std::move(text));
        batch.push_back(std::move(one));
        waiting_.pop_front();
    }
    if (batch.empty()) co_return Unit{};
    auto written = co_await resources_.store().apply(ctx, std::move(transaction));
    if (written.ok()) co_return Unit{};
    // One that is too large for the store can never be written.
    if (written.error().code == Code::too_large && batch.size() == 1) {
        ++lost_;
        co_return Unit{};
    }
    waiting_.insert(waiting_.begin(), std::make_move_iterator(batch.begin()), std::make_move_iterator(batch.end()));
    co_return std::move(written).error();
}

Task<Unit> DecisionLog::sweep(Context ctx, store::Fence fence, Duration keep, std::size_t most) {
    auto& store = resources_.store();
    const auto& kind = *resources_.registry().find("Decision");
    const auto bound =
        "decisions/" + time_ordered_bound(clock_.wall() - std::chrono::duration_cast<std::chrono::milliseconds>(keep));
    std::string after;
    auto excess = store.count("decisions/");
    excess = excess > most ? excess - most : 0;
    while (true) {
        const auto page = store.range("decisions/", swept_at_once, after);
        if (page.records.empty()) co_return Unit{};
        store::Transaction transaction;
        fence.guard(transaction);
        bool over = false;
        for (const auto& record : page.records) {
            after = record->key;
            if (record->key >= bound && excess == 0) {
                over = true;
                break;
            }
            if (excess > 0) --excess;
            if (!is_newest(kind, *record)) transaction.remove(record->key);
        }
        if (!transaction.changes.empty()) {
            CO_TRY(std::ignore, co_await store.apply(ctx, std::move(transaction)));
        }
        if (over || page.next.empty()) co_return Unit{};
    }
}

bool DecisionLog::is_newest(const resource::Kind& kind, const store::Record& record) const {
    const auto object = resource::from_stored(record);
    if (!object.ok()) return false;
    const auto name = text_at(object->spec, "loadbalancer");
    if (engine_.rule(name) == nullptr) return false;
    resource::ListQuery query;
    query.fields = {{"loadbalancer", name}};
    query.newest_first = true;
    query.limit = 1;
    const auto page = resources_.list(kind, query);
    return page.ok() && !page->records.empty() && page->records.front()->key == record.key;
}

Result<json::object> DecisionLog::record_at(std::string_view name, WallTime at) const {
    const auto& kind = *resources_.registry().find("Decision");
    const auto bound = time_ordered_bound(at + std::chrono::milliseconds(1));
    std::optional<json::object> out;
    resource::ListQuery query;
    query.fields = {{"loadbalancer", std::string(name)}};
    query.until = bound;
    query.newest_first = true;
    query.limit = 1;
    TRY(const auto page, resources_.list(kind, query));
    if (!page.records.empty()) {
        TRY(auto object, resource::from_stored(*page.records.front()));
        out = std::move(object.spec);
    }
    // Names of records never go back; a clock may have. What it then decided stands behind, with its true time inside.
    query.until.clear();
    query.from = bound;
    query.newest_first = false;
    query.limit = 100;
    TRY(const auto behind, resources_.list(kind, query));
    for (const auto& record : behind.records) {
        TRY(auto object, resource::from_stored(*record));
        const auto made = time_at(object.spec, "at");
        if (!made || *made > at) break;
        out = std::move(object.spec);
    }
    if (out) return std::move(*out);
    return Error{Code::not_found, fmt::format("no decision about {} from before {} is kept", name, to_rfc3339(at)),
                 fmt::format("see what is kept: orrery get decisions --field loadbalancer={}", name)};
}

} // namespace orrery::gslb
