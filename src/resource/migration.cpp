#include "resource/migration.h"

#include "core/for_each_concurrent.h"
#include "core/log.h"
#include "core/text.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::resource {

namespace {

constexpr std::string_view migration_marker = "sys/migrated-fields";
constexpr std::size_t migrated_page = 100;
static_assert(migrated_page <= store::max_changes);
/// Half of the limit of a transaction, because only values are counted, not keys.
constexpr std::size_t migrated_bytes = store::max_transaction_size / 2;
/// Transactions in progress at a time: enough for group commit, so that a store with 100,000 events is migrated in seconds.
constexpr std::size_t concurrent_transactions = 32;

bool has_renames(const Field& field) {
    if (!field.old_name().empty()) return true;
    for (const auto& child : field.children())
        if (has_renames(child)) return true;
    return field.item() != nullptr && has_renames(*field.item());
}

/// One line for each rename, "Monitor spec.fast_interval < fast": the marker of a migrated store.
void append_renames(const Field& field, const std::string& path, std::string& out) {
    if (!field.old_name().empty()) out += fmt::format("{} < {}\n", path, field.old_name());
    for (const auto& child : field.children()) append_renames(child, path + "." + child.name(), out);
    if (field.item() != nullptr) append_renames(*field.item(), path + "[]", out);
}

std::string all_renames(const Registry& registry) {
    std::string out;
    for (const auto& kind : registry.all()) {
        append_renames(kind->spec(), kind->name() + " spec", out);
        append_renames(kind->status(), kind->name() + " status", out);
        if (kind->migration()) out += kind->name() + " rewritten\n";
    }
    return out;
}

void rename_fields(const Field& declared, json::object& value);

void rename_within(const Field& field, json::value& value) {
    if (auto* object = value.if_object(); object != nullptr && field.type() == Type::object) rename_fields(field, *object);
    if (field.item() == nullptr) return;
    if (auto* list = value.if_array())
        for (auto& item : *list) rename_within(*field.item(), item);
    if (auto* map = value.if_object(); map != nullptr && field.type() == Type::map)
        for (auto& item : *map) rename_within(*field.item(), item.value());
}

void rename_fields(const Field& declared, json::object& value) {
    for (const auto& field : declared.children()) {
        if (const auto old = field.old_name().empty() ? value.end() : value.find(field.old_name()); old != value.end()) {
            auto moved = std::move(old->value());
            value.erase(old);
            if (!value.contains(field.name())) value[field.name()] = std::move(moved);
        }
        if (auto* now = value.if_contains(field.name())) rename_within(field, *now);
    }
}

/// The text to store instead, or nothing where the record is current.
std::optional<std::string> migrated(const Kind& kind, const store::Record& record) {
    auto object = from_stored(record);
    if (!object.ok()) return std::nullopt;
    rename_fields(kind.spec(), object->spec);
    rename_fields(kind.status(), object->status);
    if (kind.migration()) kind.migration()(object->spec, object->status);
    auto text = to_stored(*object);
    return text == record.value ? std::nullopt : std::optional(std::move(text));
}

/// Transactions that do not depend on each other, and the key to continue after; nullopt at the end of the kind.
struct MigrationBatch {
    std::vector<store::Transaction> transactions;
    std::optional<std::string> next;
};

/// Adds the rewrites of one page as one transaction. Returns the key to continue after.
std::optional<std::string> add_page(const store::Store& store, const Kind& kind, std::string_view after, MigrationBatch& batch) {
    const auto page = store.range(kind.prefix(), migrated_page, after);
    store::Transaction transaction;
    std::size_t bytes = 0;
    auto next = page.next.empty() ? std::nullopt : std::optional(page.next);
    for (std::size_t i = 0; i < page.records.size(); ++i) {
        const auto& record = *page.records[i];
        auto text = migrated(kind, record);
        if (!text) continue;
        if (!transaction.changes.empty() && bytes + text->size() > migrated_bytes) {
            next = page.records[i - 1]->key;
            break;
        }
        bytes += text->size();
        transaction.expect(record.key, record.modified).put(record.key, std::move(*text), record.lease);
    }
    if (!transaction.changes.empty()) batch.transactions.push_back(std::move(transaction));
    return next;
}

/// The next rewrites of a kind after the key `after`.
MigrationBatch next_batch(const store::Store& store, const Kind& kind, std::string after) {
    MigrationBatch batch;
    batch.next = std::move(after);
    while (batch.next && batch.transactions.size() < concurrent_transactions)
        batch.next = add_page(store, kind, *batch.next, batch);
    return batch;
}

asio::awaitable<void> apply_into(Context ctx, store::Store& store, store::Transaction transaction,
                                 Result<store::Revision>& outcome) {
    outcome = co_await store.apply(std::move(ctx), std::move(transaction));
}

/// Applies a batch and returns the key to continue after: `after` itself when another server has changed one of the resources, so
/// that they are read again.
Task<std::optional<std::string>> apply_batch(Context ctx, store::Store& store, MigrationBatch batch, std::string after,
                                             std::size_t& count) {
    auto& transactions = batch.transactions;
    std::vector<std::size_t> changes;
    for (const auto& transaction : transactions) changes.push_back(transaction.changes.size());
    std::vector<Result<store::Revision>> outcomes(transactions.size());
    CO_TRY(std::ignore, co_await for_each_concurrent(transactions.size(), transactions.size(), [&](std::size_t i) {
               return apply_into(ctx, store, std::move(transactions[i]), outcomes[i]);
           }));
    bool conflict = false;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        if (outcomes[i].ok()) {
            count += changes[i];
        } else if (outcomes[i].error().code == Code::conflict) {
            conflict = true;
        } else {
            co_return outcomes[i].error();
        }
    }
    co_return conflict ? std::optional(std::move(after)) : std::move(batch.next);
}

} // namespace

Task<std::size_t> migrate_stored_fields(Context ctx, store::Store& store, const Registry& registry) {
    const auto renames = all_renames(registry);
    const auto marker = store.find(migration_marker);
    std::size_t count = 0;
    if (renames.empty() || (marker && marker->value == renames)) co_return count;
    for (const auto& kind : registry.all()) {
        if (!has_renames(kind->spec()) && !has_renames(kind->status()) && !kind->migration()) continue;
        std::optional<std::string> after = std::string();
        while (after) {
            auto batch = next_batch(store, *kind, *after);
            CO_TRY(after, co_await apply_batch(ctx, store, std::move(batch), std::move(*after), count));
        }
    }
    store::Transaction done;
    done.put(std::string(migration_marker), renames);
    CO_TRY(std::ignore, co_await store.apply(ctx, std::move(done)));
    if (count > 0) log::info(ctx, "stored resources migrated to the field names of this version count={}", count);
    co_return count;
}

} // namespace orrery::resource
