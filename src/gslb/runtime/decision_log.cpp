#include "gslb/runtime/decision_log.h"

#include "core/id_order.h"
#include "core/ids.h"
#include "core/json_fields.h"
#include "core/text.h"
#include "gslb/decide/decision.h"
#include "gslb/model/migrations.h"
#include "resource/events.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace orrery::gslb {

namespace {

/// Records are rendered when they are written: a batch must not block the loop for long.
constexpr std::size_t records_at_once = 40, swept_at_once = 100;
/// More records wait only while the store is unavailable: then the oldest are dropped and counted as lost.
constexpr std::size_t max_waiting = 200'000;
constexpr std::size_t max_kept = 20'000;
/// Records that a follower hands over at the beginning of a term.
constexpr std::size_t max_handed_over = 1'000;
/// The newest records of a load balancer that are compared with decisions made while there was no leader.
constexpr std::size_t compared_records = 50;
/// The highest number is among the newest few records: a clock may have been set back.
constexpr std::size_t numbered_records = 3;
/// Longer than it takes to elect a new leader after one died.
constexpr auto kept_for_another = std::chrono::seconds(30);
/// Two servers observe the same event within this time.
constexpr auto seen_together = std::chrono::seconds(15);

/// The answers of a record. Without TTLs: these depend on what one server has observed.
std::string answers_in(const json::object& record) {
    auto after = object_at(record, "after");
    after.erase("ttl");
    if (auto* classes = after.if_contains("classes"); classes != nullptr && classes->is_array())
        for (auto& one : classes->as_array())
            if (one.is_object()) one.as_object().erase("ttl");
    return to_json_text(after);
}

bool same_decision(const json::object& one, const json::object& other) {
    return flag_at(one, "changed") == flag_at(other, "changed") &&
           (flag_at(one, "changed") || text_at(one, "cause") == text_at(other, "cause")) && answers_in(one) == answers_in(other);
}

/// The action of the event for operators: the load balancer fails over, fails back, enters panic. Empty for decisions that only
/// change answers.
std::string_view operational_change(const json::object& record) {
    if (!flag_at(record, "changed")) return {};
    const auto &before = object_at(record, "before"), &after = object_at(record, "after");
    const auto was = condition_named(text_at(before, "condition")), now = condition_named(text_at(after, "condition"));
    if (now == Condition::failover && (was != now || text_at(before, "pool") != text_at(after, "pool"))) return "failover";
    if (now == was) return {};
    if (now == Condition::panic) return "panic";
    if (now == Condition::empty) return "all-down";
    return was == Condition::failover ? "failback" : "recovered";
}

void add_operational_event(const Context& ctx, const Clock& clock, const json::object& record, const std::string& id,
                           store::Transaction& transaction) {
    const auto what = operational_change(record);
    if (what.empty()) return;
    const auto in_short = [&](std::string_view side) {
        const auto& decision = object_at(record, side);
        json::object out;
        for (const auto* key : {"condition", "pool", "answers"})
            if (const auto* value = decision.if_contains(key)) out[key] = *value;
        return out;
    };
    json::object evidence{{"decision", id}, {"at", text_at(record, "at")}, {"cause", text_at(record, "cause")}};
    if (const auto* trigger = record.if_contains("trigger")) evidence["trigger"] = *trigger;
    evidence["before"] = in_short("before");
    evidence["after"] = in_short("after");
    std::string message;
    for (const auto& sentence : texts_at(record, "messages")) message += (message.empty() ? "" : "; ") + sentence;
    const auto actor = text_at(record, "actor");
    resource::add_event(actor.empty() ? ctx : ctx.with_actor(actor), clock,
                        {.subject = fmt::format("LoadBalancer/{}", text_at(record, "loadbalancer")),
                         .action = std::string(what),
                         .reason = std::move(message),
                         .evidence = std::move(evidence)},
                        transaction);
}

} // namespace

DecisionLog::DecisionLog(resource::Resources& resources, Engine& engine, Clock& clock)
    : resources_(resources), engine_(engine), clock_(clock) {}

void DecisionLog::put(Waiting one) {
    waiting_.push_back(std::move(one));
    if (waiting_.size() <= max_waiting) return;
    waiting_.pop_front();
    ++lost_;
}

void DecisionLog::add(RecordDraft draft, WallTime at) { put({std::move(draft), at, time_ordered_id(at)}); }

void DecisionLog::keep(RecordDraft draft, WallTime at) {
    kept_.push_back({std::move(draft), at, clock_.steady()});
    if (kept_.size() > max_kept) kept_.pop_front();
}

void DecisionLog::step_down() {
    for (auto& one : std::exchange(waiting_, {})) keep(std::move(one.draft), one.at);
}

void DecisionLog::forget_old() {
    while (!kept_.empty() && clock_.steady() - kept_.front().since > kept_for_another) kept_.pop_front();
}

std::vector<resource::Object> DecisionLog::newest_of(const std::string& name, std::size_t count) const {
    resource::ListQuery query;
    query.fields = {{"loadbalancer", name}};
    query.newest_first = true;
    query.limit = count;
    std::vector<resource::Object> out;
    const auto page = resources_.list(*resources_.registry().find("Decision"), query);
    if (!page.ok()) return out;
    for (const auto& record : page->records)
        if (auto object = resource::from_stored(*record); object.ok()) out.push_back(std::move(*object));
    return out;
}

std::vector<DecisionLog::Merged>& DecisionLog::merged_records(ByLb& all, const std::string& name) const {
    const auto [at, is_new] = all.try_emplace(name);
    if (is_new)
        for (auto& object : newest_of(name, compared_records))
            if (const auto time = time_at(object.spec, "at"))
                at->second.push_back({RecordDraft(std::move(object.spec)), *time, true, {}});
    return at->second;
}

/// Adds one decision of one server. Decisions of a server arrive in order, so a record matches at most one of each server.
DecisionLog::Merged& DecisionLog::merge(ByLb& all, const std::string& source, RecordDraft draft, WallTime at) const {
    auto& known = merged_records(all, text_at(*draft, "loadbalancer"));
    Merged* same = nullptr;
    for (auto& one : known) {
        if (one.matched_by == source || std::chrono::abs(one.at - at) > seen_together || !same_decision(*one.draft, *draft))
            continue;
        if (same == nullptr || std::chrono::abs(one.at - at) < std::chrono::abs(same->at - at)) same = &one;
    }
    if (same == nullptr) {
        return known.emplace_back(Merged{std::move(draft), at, false, source});
    }
    same->matched_by = source;
    if (same->stored || same->at <= at) return *same;
    same->draft = std::move(draft); // the first server to decide has the right time
    same->at = at;
    return *same;
}

/// Returns the unwritten records in order of time. Servers decide the same a moment apart, so records that do not fit between their
/// neighbours are left out: a change to what is already answered, or a withheld change of answers that were different. Records
/// older than the newest one in the store are left out too: the leader of that time was alive and has written its own. A decision
/// that this leader made too and has not written keeps the leader's time in that case: hand-overs that arrive late lose no record.
std::multimap<WallTime, RecordDraft> DecisionLog::unwritten(ByLb& all) {
    std::multimap<WallTime, RecordDraft> out;
    for (auto& [name, records] : all) {
        std::multimap<WallTime, Merged*> in_order;
        WallTime written_until{};
        for (const auto& one : records)
            if (one.stored) written_until = std::max(written_until, one.at);
        for (auto& one : records) {
            if (!one.stored && one.at < written_until && one.pending) {
                one.draft = std::move(one.pending);
                one.at = std::max(one.pending_at, written_until);
            }
            in_order.emplace(one.at, &one);
        }
        std::optional<std::string> answered;
        for (auto& [at, one] : in_order) {
            const bool changed = flag_at(*one->draft, "changed");
            auto answers = answers_in(*one->draft);
            if (!one->stored) {
                if (at < written_until || (answered && changed == (answers == *answered))) continue;
                out.emplace(at, std::move(one->draft));
            }
            answered = std::move(answers);
        }
    }
    return out;
}

void DecisionLog::take_over() {
    last_.clear();
    taken_.clear();
    resource::ListQuery newest;
    newest.newest_first = true;
    newest.limit = 1;
    // The order of ids is the order of numbers, also when an earlier leader's clock was ahead.
    if (const auto page = resources_.list(*resources_.registry().find("Decision"), newest); page.ok() && !page->records.empty())
        continue_ids_after(std::string_view(page->records.front()->key).substr(std::string_view("decisions/").size()));
    ByLb all;
    for (const auto& record : resources_.store().range(handover_prefix, 0).records) {
        taken_.push_back(record->key);
        auto document = parse_json(record->value);
        if (!document.ok() || !document->is_object()) continue;
        const auto key = std::string_view(record->key).substr(handover_prefix.size());
        migrate_decision(document->as_object()); // a server of an earlier version may have written it
        if (const auto at = time_at(document->as_object(), "at"))
            merge(all, "from " + std::string(key.substr(0, key.rfind('/'))), RecordDraft(std::move(document->as_object())), *at);
    }
    for (auto& one : std::exchange(kept_, {})) merge(all, "own", std::move(one.draft), one.at);
    for (auto& one : std::exchange(waiting_, {})) {
        auto& merged = merge(all, "own", one.draft, one.at);
        if (merged.stored) continue;
        merged.pending = std::move(one.draft);
        merged.pending_at = one.at;
    }
    for (auto& [at, draft] : unwritten(all)) put({std::move(draft), at, time_ordered_id(at)});
}

Task<Unit> DecisionLog::hand_over(Context ctx, store::Fence fence, std::string server) {
    ByLb all;
    for (const auto& one : kept_) merge(all, "own", one.draft, one.at);
    const auto records = unwritten(all);
    std::size_t count = 0;
    for (auto next = records.begin(); next != records.end() && count < max_handed_over;) {
        store::Transaction transaction;
        fence.guard(transaction);
        std::size_t size = 0;
        for (; next != records.end() && transaction.changes.size() < records_at_once; ++next, ++count) {
            auto text = to_json_text(*next->second);
            size += text.size();
            if (!transaction.changes.empty() && size > store::max_transaction_size / 2) break;
            if (text.size() > store::max_value_size) continue;
            transaction.put(fmt::format("{}{}/{}", handover_prefix, server, time_ordered_id(next->first)), std::move(text));
        }
        if (transaction.changes.empty()) continue;
        CO_TRY(std::ignore, co_await resources_.store().apply(ctx, std::move(transaction)));
    }
    co_return Unit{};
}

std::int64_t DecisionLog::last_number(const std::string& name) {
    const auto [at, is_new] = last_.try_emplace(name, 0);
    if (is_new)
        for (const auto& object : newest_of(name, numbered_records))
            at->second = std::max(at->second, static_cast<std::int64_t>(number_at(object.spec, "seq", 0)));
    return at->second;
}

Task<Unit> DecisionLog::write_some(Context ctx, store::Fence fence) {
    std::vector<Waiting> batch;
    store::Transaction transaction;
    fence.guard(transaction);
    std::size_t size = 0;
    std::map<std::string, std::int64_t> numbers;
    while (!waiting_.empty() && batch.size() < records_at_once) {
        auto& one = waiting_.front();
        const auto key = "decisions/" + one.id;
        if (resources_.store().find(key)) { // written before, and the answer was lost
            waiting_.pop_front();
            continue;
        }
        const auto name = text_at(*one.draft, "loadbalancer");
        const auto number = numbers.try_emplace(name, last_number(name)).first;
        resource::Object object;
        object.kind = "Decision";
        object.created_at = object.updated_at = one.at;
        object.name = one.id;
        object.spec = *one.draft;
        object.spec["seq"] = number->second + 1;
        auto text = resource::to_stored(object);
        size += text.size();
        if (!batch.empty() && size > store::max_transaction_size / 2) break;
        ++number->second;
        transaction.put(key, std::move(text));
        add_operational_event(ctx, clock_, object.spec, one.id, transaction);
        batch.push_back(std::move(one));
        waiting_.pop_front();
    }
    // Only after all handed-over records are written: a leader that stops earlier leaves them to the next.
    const auto room = store::max_changes - 1 - transaction.changes.size();
    const std::size_t removed = waiting_.empty() ? std::min({taken_.size(), records_at_once, room}) : 0;
    for (std::size_t i = 0; i < removed; ++i) transaction.remove(taken_[i]);
    if (transaction.changes.empty()) co_return Unit{};
    auto written = co_await resources_.store().apply(ctx, std::move(transaction));
    if (written.ok()) {
        for (const auto& [name, number] : numbers) {
            last_[name] = number;
            engine_.set_count(name, number);
        }
        taken_.erase(taken_.begin(), taken_.begin() + static_cast<std::ptrdiff_t>(std::min(removed, taken_.size())));
        co_return Unit{};
    }
    last_.clear();
    // A record that is too large for the store can never be written.
    if (written.error().code == Code::too_large && batch.size() == 1) {
        ++lost_;
        co_return Unit{};
    }
    waiting_.insert(waiting_.begin(), std::make_move_iterator(batch.begin()), std::make_move_iterator(batch.end()));
    co_return std::move(written).error();
}

Task<Unit> DecisionLog::sweep(Context ctx, store::Fence fence, Duration keep, std::size_t max) {
    auto& store = resources_.store();
    const auto& kind = *resources_.registry().find("Decision");
    const auto bound =
        "decisions/" + time_ordered_bound(clock_.wall() - std::chrono::duration_cast<std::chrono::milliseconds>(keep));
    std::string after;
    auto excess = store.count("decisions/");
    excess = excess > max ? excess - max : 0;
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
    if (engine_.spec(name) == nullptr) return false;
    resource::ListQuery query;
    query.fields = {{"loadbalancer", name}};
    query.newest_first = true;
    query.limit = 1;
    const auto page = resources_.list(kind, query);
    return page.ok() && !page->records.empty() && page->records.front()->key == record.key;
}

Result<json::object> DecisionLog::last_record(std::string_view name) const {
    resource::ListQuery query;
    query.fields = {{"loadbalancer", std::string(name)}};
    query.newest_first = true;
    query.limit = 20;
    TRY(const auto page, resources_.list(*resources_.registry().find("Decision"), query));
    std::optional<json::object> out;
    for (const auto& record : page.records) {
        TRY(auto object, resource::from_stored(*record));
        if (!out || number_at(object.spec, "seq", 0) > number_at(*out, "seq", 0)) out = std::move(object.spec);
    }
    if (out) return std::move(*out);
    return Error{Code::not_found, fmt::format("no decision about {} is kept", name)};
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
    // Ids of records never decrease, but a clock may have been set back: such records have a later id than their time.
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
