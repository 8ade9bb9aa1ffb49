#include "store/migrate.h"

#include "core/digest.h"
#include "core/log.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace orrery::store {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t batch_keys = 100;
constexpr std::size_t batch_bytes = 512 * 1024;
constexpr std::size_t max_concurrent_batches = 8;

/// Size and digest of the keys of a store that a migration copies.
struct Contents {
    std::size_t keys = 0, bytes = 0, skipped = 0;
    std::string digest;
};

bool is_copied(const Record& record) { return record.lease == 0 && record.key != migration_key; }

void digest_text(EVP_MD_CTX* context, std::string_view text) {
    std::array<unsigned char, 8> size{};
    for (std::size_t i = 0; i < size.size(); ++i) size[i] = static_cast<unsigned char>(text.size() >> (8 * i));
    EVP_DigestUpdate(context, size.data(), size.size());
    EVP_DigestUpdate(context, text.data(), text.size());
}

/// Yields to the loop between pages, because hashing a large store takes long.
Task<Contents> contents_of(const Store& store) {
    auto context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
    EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
    Contents contents;
    std::string after;
    do {
        const auto page = store.range("", 1'000, after);
        for (const auto& record : page.records) {
            if (!is_copied(*record)) {
                contents.skipped += record->key != migration_key;
                continue;
            }
            ++contents.keys;
            contents.bytes += record->key.size() + record->value.size();
            digest_text(context.get(), record->key);
            digest_text(context.get(), record->value);
        }
        after = page.next;
        if (!after.empty()) {
            CO_TRY(std::ignore, co_await real_clock().sleep(0s));
        }
    } while (!after.empty());
    std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
    unsigned int size = 0;
    EVP_DigestFinal_ex(context.get(), hash.data(), &size);
    contents.digest = to_hex({reinterpret_cast<const char*>(hash.data()), size});
    co_return contents;
}

/// Applies an idempotent batch, with retries.
Task<Revision> apply_with_retry(Context ctx, Store& store, Transaction transaction) {
    for (int attempt = 1;; ++attempt) {
        auto applied = co_await store.apply(ctx, transaction);
        const bool transient =
            !applied.ok() && (applied.error().code == Code::unavailable || applied.error().code == Code::throttled);
        if (!transient || attempt == 10) co_return applied;
        CO_TRY(std::ignore, co_await real_clock().sleep(100ms * attempt));
    }
}

asio::awaitable<void> apply_batch(Context ctx, Store& store, Transaction transaction, std::size_t count, std::size_t& done,
                                  Result<Unit>& outcome) {
    auto applied = co_await apply_with_retry(ctx, store, std::move(transaction));
    done += count;
    if (!applied.ok() && outcome.ok()) outcome = applied.error();
}

/// Removes all keys, the migration key last.
Task<Unit> remove_all_keys(Context ctx, Store& target) {
    for (;;) {
        CO_TRY(std::ignore, co_await target.catch_up(ctx));
        const auto page = target.range("", batch_keys);
        Transaction removal;
        for (const auto& record : page.records)
            if (record->key != migration_key) removal.remove(record->key);
        if (removal.changes.empty()) break;
        CO_TRY(std::ignore, co_await apply_with_retry(ctx, target, std::move(removal)));
    }
    CO_TRY(std::ignore, co_await apply_with_retry(ctx, target, Transaction().remove(std::string(migration_key))));
    co_return Unit{};
}

Task<Unit> copy_all(Context ctx, const Store& from, Store& to, Revision marker,
                    std::function<void(std::int64_t, std::int64_t)> progress) {
    const auto total = static_cast<std::int64_t>(from.count(""));
    TaskGroup batches(co_await asio::this_coro::executor);
    Result<Unit> outcome = Unit{};
    std::size_t done = 0;
    std::string after;
    bool more = true;
    // One page is one batch. Each batch requires the migration key of this migration, so that two migrations cannot mix.
    while (more && outcome.ok()) {
        Transaction batch;
        std::size_t bytes = 0, seen = 0;
        const auto page = from.range("", batch_keys, after);
        for (const auto& record : page.records) {
            if (bytes > 0 && bytes + record->value.size() > batch_bytes) break;
            after = record->key;
            ++seen;
            if (!is_copied(*record)) continue;
            bytes += record->key.size() + record->value.size();
            batch.put(record->key, record->value);
        }
        more = seen < page.records.size() || !page.next.empty();
        batch.expect_created(std::string(migration_key), marker);
        batches.spawn(apply_batch(ctx, to, std::move(batch), seen, done, outcome));
        if (batches.size() >= max_concurrent_batches || !more) co_await batches.join();
        if (progress && outcome.ok()) progress(std::min(static_cast<std::int64_t>(done), total), total);
    }
    co_await batches.join();
    co_return outcome;
}

Task<MigrationReport> copy_and_verify(Context ctx, Store& from, Store& to, Revision marker,
                                      std::function<void(std::int64_t, std::int64_t)> progress) {
    CO_TRY(const auto revision, co_await from.catch_up(ctx));
    CO_TRY(const auto expected, co_await contents_of(from));
    CO_TRY(std::ignore, co_await copy_all(ctx, from, to, marker, std::move(progress)));
    CO_TRY(std::ignore, co_await to.catch_up(ctx));
    CO_TRY(const auto found, co_await contents_of(to));
    if (found.keys != expected.keys || found.digest != expected.digest)
        co_return Error{Code::internal, fmt::format("the copy differs from the source: {} keys with digest {}, expected {} with {}",
                                                    found.keys, found.digest, expected.keys, expected.digest)};
    CO_TRY(std::ignore, co_await from.catch_up(ctx));
    CO_TRY(const auto unchanged, co_await contents_of(from));
    if (unchanged.digest != expected.digest)
        co_return Error{Code::conflict, "another server wrote to the store during its migration",
                        "stop the other servers that share the store, then migrate again"};
    // Removing the migration key completes the copy.
    CO_TRY(std::ignore,
           co_await to.apply(ctx,
                             Transaction().expect_created(std::string(migration_key), marker).remove(std::string(migration_key))));
    co_return MigrationReport{expected.keys, expected.bytes, unchanged.skipped, expected.digest, revision};
}

} // namespace

Error incomplete_migration_error(std::string_view store_name, std::string_view clear_command) {
    return Error{Code::conflict, fmt::format("{} is an incomplete copy of an interrupted migration", store_name),
                 fmt::format("the source store is still in use; clear this one with `{}` and migrate again", clear_command)};
}

Task<MigrationReport> migrate(Context ctx, FreezableStore& from, Store& to,
                              std::function<void(std::int64_t, std::int64_t)> progress) {
    CO_TRY(std::ignore, co_await to.catch_up(ctx));
    if (to.find(migration_key)) co_return incomplete_migration_error("the target", "etcdctl del --prefix <its prefix>");
    if (const auto count = to.count(""); count > 0)
        co_return Error{Code::conflict, fmt::format("the target is not empty: it has {} keys", count), "use an empty prefix"};
    CO_TRY(std::ignore,
           co_await from.refuse_writes(ctx, Error{Code::unavailable, "the store is being migrated", "try again in a minute"}));
    // The target is emptied even if the caller is cancelled, so a cancellation must not throw from here on.
    const bool throwing = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    auto marker = co_await to.apply(ctx, Transaction()
                                             .expect(std::string(migration_key), 0)
                                             .put(std::string(migration_key), fmt::format("from {}", from.identity())));
    Result<MigrationReport> report = marker.ok() ? co_await copy_and_verify(ctx, from, to, *marker, std::move(progress))
                                                 : Result<MigrationReport>(marker.error());
    if (!report.ok()) {
        co_await asio::this_coro::reset_cancellation_state();
        // On a conflict the migration key belongs to another migration, whose keys must stay.
        if (marker.ok() || marker.error().code != Code::conflict) {
            auto emptied = co_await remove_all_keys(Context::make(ctx.actor(), ctx.id()).with_timeout(60s), to);
            if (!emptied.ok()) {
                log::warn(ctx, "cannot empty the migration target: {}", emptied.error().text());
                report.error().remedy =
                    fmt::format("the old store is in use; the target contains an incomplete copy ({}) and must be emptied before "
                                "the next attempt",
                                emptied.error().message);
            }
        }
        from.accept_writes();
    }
    co_await asio::this_coro::throw_if_cancelled(throwing);
    co_return report;
}

Task<Unit> clear_incomplete_migration(Context ctx, Store& target) {
    CO_TRY(std::ignore, co_await target.catch_up(ctx));
    if (!target.find(migration_key)) co_return Error{Code::conflict, "this store is not an incomplete copy; it was not changed"};
    co_return co_await remove_all_keys(ctx, target);
}

} // namespace orrery::store
