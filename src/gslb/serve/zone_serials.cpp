#include "gslb/serve/zone_serials.h"

#include "core/json_fields.h"
#include "core/log.h"
#include "core/text.h"

#include <algorithm>
#include <optional>

namespace orrery::gslb {

namespace {

/// How many numbers are reserved at a time; again when fewer than half are left.
constexpr std::int64_t reserved_at_once = 10'000;
/// A restored store does not know how far numbers came after the backup. They are taken to have grown by this much at most, and by
/// this much a second since the last reservation. Less than half of the serials' range altogether, so that serials go forward.
constexpr std::int64_t restore_margin = 100'000, restore_margin_per_second = 1000, max_restore_margin = 1 << 30;

struct Numbering {
    std::int64_t base = 0;
    std::int64_t reserved = 0; ///< no number after this one was given out
    std::string identity;      ///< of the store that it is of
    std::optional<WallTime> at;
    store::Revision modified = 0;

    static Numbering in(const store::Record* record) {
        Numbering out;
        if (record == nullptr) return out;
        out.modified = record->modified;
        const auto document = parse_json(record->value);
        if (!document.ok() || !document->is_object()) return out;
        const auto& object = document->as_object();
        out.base = integer_at(object, "base");
        out.reserved = integer_at(object, "reserved");
        out.identity = text_at(object, "identity");
        out.at = time_at(object, "at");
        return out;
    }
    std::string to_text() const {
        return to_json_text(json::object{{"base", base}, {"reserved", reserved}, {"identity", identity}, {"at", to_rfc3339(*at)}});
    }
};

std::int64_t margin_since(const std::optional<WallTime>& at, WallTime now) {
    const auto seconds = at && now > *at ? std::chrono::duration_cast<std::chrono::seconds>(now - *at).count() : 0;
    return std::min<std::int64_t>(restore_margin + seconds * restore_margin_per_second, max_restore_margin);
}

} // namespace

struct ZoneSerials::State {
    explicit State(store::Store& store_) : store(store_) {}

    store::Store& store;
    Numbering numbering;
    std::uint64_t last = 0;
    std::shared_ptr<void> observed;
};

Task<Unit> ZoneSerials::prepare(Context ctx, store::Store& store, Clock& clock) {
    for (int attempt = 0; attempt < 5; ++attempt) {
        const auto record = store.find(key);
        auto numbering = Numbering::in(record.get());
        const bool moved = record && numbering.identity != store.identity();
        const auto revision = store.revision();
        if (record && !moved && revision + numbering.base > numbering.reserved) co_return Unit{};
        const auto now = clock.wall();
        // Numbers are given out by a zone's changes and not only by revisions: the first ones are reserved too, before any is used.
        const auto begin = record ? numbering.reserved + 1 + (moved ? margin_since(numbering.at, now) : 0) : revision;
        numbering.base = std::max(numbering.base, begin - revision);
        numbering.reserved = revision + numbering.base + reserved_at_once;
        numbering.identity = store.identity();
        numbering.at = now;
        store::Transaction transaction;
        transaction.expect(std::string(key), numbering.modified).put(std::string(key), numbering.to_text());
        auto written = co_await store.apply(ctx, std::move(transaction));
        if (written.ok()) {
            if (moved)
                log::info(ctx, "the store was migrated or restored: serials of zones go on from {}",
                          static_cast<std::uint32_t>(revision + numbering.base));
            co_return Unit{};
        }
        if (written.error().code != Code::conflict) co_return std::move(written).error();
    }
    co_return Error{Code::conflict, "several servers start at once and number the zones", "start again"};
}

ZoneSerials::ZoneSerials(store::Store& store) : state_(std::make_shared<State>(store)) {
    state_->observed = store.observe(key, [state = state_.get()](const store::Event& event) {
        if (event.key == key && event.record) state->numbering = Numbering::in(event.record.get());
    });
}

std::uint64_t ZoneSerials::upcoming() const {
    const auto by_revision = state_->store.revision() + state_->numbering.base;
    return std::max<std::uint64_t>(state_->last + 1, static_cast<std::uint64_t>(std::max<std::int64_t>(by_revision, 0)));
}

std::uint64_t ZoneSerials::next() { return state_->last = upcoming(); }

bool ZoneSerials::needs_reserve() const {
    return static_cast<std::int64_t>(state_->last) + reserved_at_once / 2 > state_->numbering.reserved;
}

Task<Unit> ZoneSerials::reserve(Context ctx, Clock& clock, store::Fence fence) {
    const auto state = state_;
    auto numbering = state->numbering;
    numbering.reserved = static_cast<std::int64_t>(state->last) + reserved_at_once;
    numbering.identity = state->store.identity();
    numbering.at = clock.wall();
    store::Transaction transaction;
    fence.guard(transaction).expect(std::string(key), numbering.modified).put(std::string(key), numbering.to_text());
    auto written = co_await state->store.apply(ctx, std::move(transaction));
    if (!written.ok() && written.error().code != Code::conflict) co_return std::move(written).error();
    co_return Unit{};
}

} // namespace orrery::gslb
