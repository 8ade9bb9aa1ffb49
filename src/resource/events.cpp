#include "resource/events.h"

#include "core/ids.h"
#include "core/log.h"
#include "core/text.h"
#include "core/truncate.h"
#include "resource/kinds.h"
#include "resource/resources_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::resource {

namespace {

constexpr std::size_t max_evidence = 8 << 10;
constexpr std::size_t max_evidence_value = 1024;
constexpr std::string_view event_prefix = "events/";

/// Text within a limit, never half a character.
std::string cut_to(std::string_view text, std::size_t limit) {
    return text.size() <= limit ? std::string(text) : truncate(text, limit) + "...";
}

json::value cut_value(const json::value& value) {
    auto text = to_json_text(value);
    if (text.size() <= max_evidence_value) return value;
    return json::string(cut_to(text, max_evidence_value));
}

} // namespace

json::object evidence_of(const std::vector<Difference>& differences) {
    json::array changes;
    std::size_t size = 0;
    for (const auto& difference : differences) {
        json::object change{{"path", cut_to(difference.path, 256)},
                            {"before", cut_value(difference.before)},
                            {"after", cut_value(difference.after)}};
        size += to_json_text(change).size();
        if (size > max_evidence) break;
        changes.push_back(std::move(change));
    }
    const auto left_out = differences.size() - changes.size();
    json::object out;
    out.emplace("changes", std::move(changes));
    if (left_out > 0) out.emplace("more", left_out);
    return out;
}

void Resources::State::put_event(Context ctx, EventDraft draft, store::Transaction& transaction) const {
    add_event(ctx, clock, std::move(draft), transaction);
}

void add_event(const Context& ctx, const Clock& clock, EventDraft draft, store::Transaction& transaction) {
    Object event;
    const auto now = clock.wall();
    event.kind = "Event";
    event.name = time_ordered_id(now);
    event.created_at = event.updated_at = now;
    event.spec.emplace("subject", cut_to(draft.subject, 512));
    event.spec.emplace("action", cut_to(draft.action, 128));
    event.spec.emplace("actor", cut_to(ctx.actor(), 256));
    event.spec.emplace("context", cut_to(ctx.id(), 128));
    if (!draft.reason.empty()) event.spec.emplace("reason", cut_to(draft.reason, 1024));
    if (auto text = to_json_text(draft.evidence); text.size() > 2 * max_evidence)
        event.spec.emplace("evidence", json::object{{"cut", cut_to(text, max_evidence)}});
    else if (!draft.evidence.is_null() && !(draft.evidence.is_object() && draft.evidence.get_object().empty()))
        event.spec.emplace("evidence", std::move(draft.evidence));
    event.spec.emplace("at", to_rfc3339(now));
    const auto key = fmt::format("{}{}", event_prefix, event.name);
    transaction.expect(key, 0);
    transaction.put(key, to_stored(event));
}

Task<Unit> Resources::record(Context ctx, EventDraft event) {
    const auto subject = event.subject, action = event.action;
    store::Transaction transaction;
    state_->put_event(ctx, std::move(event), transaction);
    auto written = co_await state_->store.apply(ctx, std::move(transaction));
    if (written.ok()) co_return Unit{};
    log::warn(ctx, "event not recorded subject={} action={}: {}", subject, action, written.error().text());
    co_return std::move(written).error();
}

Task<int> Resources::remove_old_events(Context ctx, WallTime older_than, std::size_t max_events, const store::Fence* fence) {
    constexpr std::size_t batch = store::max_changes - 20;
    const auto bound = fmt::format("{}{}", event_prefix, time_ordered_bound(older_than));
    int removed = 0;
    for (;;) {
        const auto count = state_->store.count(event_prefix);
        const auto excess = count > max_events ? count - max_events : 0;
        store::Transaction transaction;
        for (const auto& oldest : state_->store.range(event_prefix, batch).records)
            if (oldest->key < bound || transaction.changes.size() < excess) transaction.remove(oldest->key);
        const auto some = transaction.changes.size();
        if (some == 0) co_return removed;
        if (fence != nullptr) fence->guard(transaction);
        CO_TRY(std::ignore, co_await state_->store.apply(ctx, std::move(transaction)));
        removed += static_cast<int>(some);
    }
}

} // namespace orrery::resource
