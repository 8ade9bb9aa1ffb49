#include "store/migrate.h"

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
constexpr std::size_t batches_at_once = 8;

/// What a store holds that a migration is about, in one number.
struct Contents {
    std::size_t keys = 0, bytes = 0, left_out = 0;
    std::string digest;
};

bool is_copied(const Record& record) { return record.lease == 0 && record.key != migration_key; }

void digest_text(EVP_MD_CTX* context, std::string_view text) {
    std::array<unsigned char, 8> size{};
    for (std::size_t i = 0; i < size.size(); ++i) size[i] = static_cast<unsigned char>(text.size() >> (8 * i));
    EVP_DigestUpdate(context, size.data(), size.size());
    EVP_DigestUpdate(context, text.data(), text.size());
}

/// Between pages the loop goes on: a large store is not hashed in one go.
Task<Contents> contents_of(const Store& store) {
    auto context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
    EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
    Contents contents;
    std::string after;
    do {
        const auto page = store.range("", 1'000, after);
        for (const auto& record : page.records) {
            if (!is_copied(*record)) {
                contents.left_out += record->key != migration_key;
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
    for (unsigned int i = 0; i < size; ++i) contents.digest += fmt::format("{:02x}", hash[i]);
    co_return contents;
}

/// Applies a batch whose second application would change nothing, so that it may be sent again.
Task<Revision> apply_stubbornly(Context ctx, Store& store, Transaction transaction) {
    for (int attempt = 1;; ++attempt) {
        auto applied = co_await store.apply(ctx, transaction);
        const bool passing =
            !applied.ok() && (applied.error().code == Code::unavailable || applied.error().code == Code::throttled);
        if (!passing || attempt == 10) co_return applied;
        CO_TRY(std::ignore, co_await real_clock().sleep(100ms * attempt));
    }
}

asio::awaitable<void> apply_batch(Context ctx, Store& store, Transaction transaction, std::size_t count, std::size_t& done,
                                  Result<Unit>& outcome) {
    auto applied = co_await apply_stubbornly(ctx, store, std::move(transaction));
    done += count;
    if (!applied.ok() && outcome.ok()) outcome = applied.error();
}

/// Removes everything, the mark last.
Task<Unit> empty_out(Context ctx, Store& target) {
    for (;;) {
        CO_TRY(std::ignore, co_await target.catch_up(ctx));
        const auto page = target.range("", batch_keys);
        Transaction removal;
        for (const auto& record : page.records)
            if (record->key != migration_key) removal.remove(record->key);
        if (removal.changes.empty()) break;
        CO_TRY(std::ignore, co_await apply_stubbornly(ctx, target, std::move(removal)));
    }
    CO_TRY(std::ignore, co_await apply_stubbornly(ctx, target, Transaction().remove(std::string(migration_key))));
    co_return Unit{};
}

Task<Unit> copy_all(Context ctx, const Store& from, Store& to, Revision mark,
                    std::function<void(std::int64_t, std::int64_t)> progress) {
    const auto total = static_cast<std::int64_t>(from.count(""));
    TaskGroup batches(co_await asio::this_coro::executor);
    Result<Unit> outcome = Unit{};
    std::size_t done = 0;
    std::string after;
    bool more = true;
    // One page is one batch; the copy is bound to our mark, so that two migrations cannot mix.
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
        batch.expect_created(std::string(migration_key), mark);
        batches.spawn(apply_batch(ctx, to, std::move(batch), seen, done, outcome));
        if (batches.size() >= batches_at_once || !more) co_await batches.join();
        if (progress && outcome.ok()) progress(std::min(static_cast<std::int64_t>(done), total), total);
    }
    co_await batches.join();
    co_return outcome;
}

Task<MigrationReport> copy_and_prove(Context ctx, Store& from, Store& to, Revision mark,
                                     std::function<void(std::int64_t, std::int64_t)> progress) {
    CO_TRY(const auto revision, co_await from.catch_up(ctx));
    CO_TRY(const auto wanted, co_await contents_of(from));
    CO_TRY(std::ignore, co_await copy_all(ctx, from, to, mark, std::move(progress)));
    CO_TRY(std::ignore, co_await to.catch_up(ctx));
    CO_TRY(const auto found, co_await contents_of(to));
    if (found.keys != wanted.keys || found.digest != wanted.digest)
        co_return Error{Code::internal, fmt::format("the copy is not like the original: {} keys with digest {}, not {} with {}",
                                                    found.keys, found.digest, wanted.keys, wanted.digest)};
    CO_TRY(std::ignore, co_await from.catch_up(ctx));
    CO_TRY(const auto still, co_await contents_of(from));
    if (still.digest != wanted.digest)
        co_return Error{Code::conflict, "the store that was being moved was written to by another server meanwhile",
                        "stop the other servers that share it, then migrate again"};
    // With this the copy becomes a store.
    CO_TRY(
        std::ignore,
        co_await to.apply(ctx, Transaction().expect_created(std::string(migration_key), mark).remove(std::string(migration_key))));
    co_return MigrationReport{wanted.keys, wanted.bytes, still.left_out, wanted.digest, revision};
}

} // namespace

Error incomplete_migration_error(std::string_view what, std::string_view how_to_clear) {
    return Error{
        Code::conflict, fmt::format("{} is what an interrupted migration left behind, and not complete", what),
        fmt::format("the store it was copied from is still in force; clear this one with `{}` and migrate again", how_to_clear)};
}

Task<MigrationReport> migrate(Context ctx, Gate& from, Store& to, std::function<void(std::int64_t, std::int64_t)> progress) {
    CO_TRY(std::ignore, co_await to.catch_up(ctx));
    if (to.find(migration_key)) co_return incomplete_migration_error("the target", "etcdctl del --prefix <its prefix>");
    if (const auto count = to.count(""); count > 0)
        co_return Error{Code::conflict, fmt::format("the target is not empty: it has {} keys", count),
                        "give an empty prefix of its own"};
    CO_TRY(std::ignore, co_await from.freeze(ctx, Error{Code::unavailable, "the store is being moved", "try again in a minute"}));
    // What was begun is undone also when the caller is cancelled, so nothing may throw from here on.
    const bool throwing = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    auto mark = co_await to.apply(ctx, Transaction()
                                           .expect(std::string(migration_key), 0)
                                           .put(std::string(migration_key), fmt::format("from {}", from.identity())));
    Result<MigrationReport> report =
        mark.ok() ? co_await copy_and_prove(ctx, from, to, *mark, std::move(progress)) : Result<MigrationReport>(mark.error());
    if (!report.ok()) {
        co_await asio::this_coro::reset_cancellation_state();
        // Only what is ours: had another migration begun there first, the mark would be its.
        if (mark.ok() || mark.error().code != Code::conflict) {
            auto emptied = co_await empty_out(Context::make(ctx.actor(), ctx.id()).with_timeout(60s), to);
            if (!emptied.ok()) {
                log::warn(ctx, "the target of the migration could not be emptied: {}", emptied.error().text());
                report.error().remedy =
                    fmt::format("the old store is in force; the target holds an incomplete copy ({}) and must be emptied before "
                                "the next attempt",
                                emptied.error().message);
            }
        }
        from.thaw();
    }
    co_await asio::this_coro::throw_if_cancelled(throwing);
    co_return report;
}

Task<Unit> clear_incomplete(Context ctx, Store& target) {
    CO_TRY(std::ignore, co_await target.catch_up(ctx));
    if (!target.find(migration_key)) co_return Error{Code::conflict, "this store is no unfinished copy; it is left as it is"};
    co_return co_await empty_out(ctx, target);
}

} // namespace orrery::store
