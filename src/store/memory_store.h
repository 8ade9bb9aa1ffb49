#pragma once

#include "core/ids.h"
#include "store/mirror.h"
#include "store/store.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace orrery::store {

/// A fake Store without persistence, for tests. Several stores can share one `Shared`, as servers share an etcd: each receives the
/// writes of the others only when it writes or catches up, which is the largest lag that a server may have. Every write yields to
/// the loop once, so that other coroutines run in between.
class MemoryStore final : public Store {
public:
    struct Shared {
        std::map<std::string, RecordPtr> records;
        std::vector<std::pair<Revision, std::vector<Event>>> log;
        Revision revision = 0;
        LeaseId last_lease = 0;
        std::set<LeaseId> leases; ///< a lease ends only when it is revoked: there is no clock
        std::string identity = random_id();
    };

    explicit MemoryStore(asio::any_io_executor executor, std::shared_ptr<Shared> shared = std::make_shared<Shared>())
        : shared_(std::move(shared)), mirror_(std::move(executor)) {
        sync();
    }

    Revision revision() const override { return mirror_.revision(); }
    Revision compacted() const override { return mirror_.compacted(); }
    RecordPtr find(std::string_view key) const override { return mirror_.find(key); }
    Page range(std::string_view prefix, std::size_t limit, std::string_view after) const override {
        return mirror_.range(prefix, limit, after);
    }
    std::size_t count(std::string_view prefix) const override { return mirror_.count(prefix); }

    Task<Revision> catch_up(Context) override {
        co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        sync();
        co_return revision();
    }

    Task<Page> fetch(Context, std::string prefix, std::size_t limit, std::string after, Values values) override {
        co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        Page page;
        page.revision = shared_->revision;
        auto at = after.empty() ? shared_->records.lower_bound(prefix) : shared_->records.upper_bound(after);
        for (; at != shared_->records.end() && at->first.starts_with(prefix); ++at) {
            if (limit > 0 && page.records.size() == limit) {
                page.next = page.records.back()->key;
                break;
            }
            auto copy = std::make_shared<Record>(*at->second);
            if (values == Values::no) copy->value.clear();
            page.records.push_back(std::move(copy));
        }
        co_return page;
    }

    Task<Revision> apply(Context, Transaction transaction) override {
        co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        if (fail_with) co_return *fail_with;
        std::set<std::string> changed;
        std::size_t size = 0;
        for (const auto& change : transaction.changes) {
            size += change.key.size() + change.value.size();
            if (!changed.insert(change.key).second) co_return Error{Code::invalid, fmt::format("{} is changed twice", change.key)};
            if (change.key.size() > max_key_size || change.value.size() > max_value_size)
                co_return Error{Code::too_large, change.key};
        }
        if (transaction.changes.size() > max_changes || transaction.compares.size() > max_changes || size > max_transaction_size)
            co_return Error{Code::too_large, "the transaction is too large"};
        for (const auto& compare : transaction.compares) {
            const auto at = shared_->records.find(compare.key);
            const auto found = at == shared_->records.end()                 ? 0
                               : compare.target == Compare::Target::created ? at->second->created
                                                                            : at->second->modified;
            if (found != compare.revision) co_return Error{Code::conflict, fmt::format("{} is not as expected", compare.key)};
        }
        if (!transaction.changes.empty()) write(std::move(transaction.changes));
        sync();
        co_return revision();
    }

    Task<Unit> compact(Context, Revision revision) override {
        mirror_.compact(revision);
        co_return Unit{};
    }
    Task<LeaseId> grant(Context, Duration) override {
        shared_->leases.insert(++shared_->last_lease);
        co_return shared_->last_lease;
    }
    Task<Unit> keep_alive(Context, LeaseId lease) override {
        if (!shared_->leases.contains(lease)) co_return Error{Code::not_found, "the lease has expired"};
        co_return Unit{};
    }
    Task<Unit> revoke(Context, LeaseId lease) override {
        shared_->leases.erase(lease);
        std::vector<Change> removals;
        for (const auto& [key, record] : shared_->records)
            if (record->lease == lease) removals.push_back({Change::Op::remove, key, {}, 0});
        if (!removals.empty()) write(std::move(removals));
        sync();
        co_return Unit{};
    }

    std::unique_ptr<Watch> watch(std::string_view prefix, Revision from) override { return mirror_.watch(prefix, from); }
    std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> callback) override {
        return mirror_.observe(prefix, std::move(callback));
    }
    const std::string& identity() const override { return shared_->identity; }
    Result<Unit> health() const override { return Unit{}; }
    std::vector<std::pair<std::string, double>> metrics() const override { return mirror_.metrics(); }
    asio::awaitable<void> stop() override {
        mirror_.close(Error{Code::unavailable, "the store has stopped"});
        co_return;
    }

    std::optional<Error> fail_with; ///< the error of every write while it is set

private:
    void write(std::vector<Change> changes) {
        const auto revision = ++shared_->revision;
        std::vector<Event> events;
        for (auto& change : changes) {
            auto& slot = shared_->records[change.key];
            if (change.op == Change::Op::remove) {
                if (slot) events.push_back({0, change.key, nullptr, nullptr});
                shared_->records.erase(change.key);
                continue;
            }
            auto record = std::make_shared<Record>();
            record->key = change.key;
            record->value = std::move(change.value);
            record->created = slot ? slot->created : revision;
            record->modified = revision;
            record->version = slot ? slot->version + 1 : 1;
            record->lease = change.lease;
            slot = record;
            events.push_back({0, change.key, std::move(record), nullptr});
        }
        shared_->log.emplace_back(revision, std::move(events));
    }
    void sync() {
        for (; synced_ < shared_->log.size(); ++synced_) {
            auto events = shared_->log[synced_].second;
            std::erase_if(events, [](const Event& event) { return event.key.front() == uncached_prefix; });
            mirror_.apply(shared_->log[synced_].first, std::move(events));
        }
    }

    std::shared_ptr<Shared> shared_;
    Mirror mirror_;
    std::size_t synced_ = 0;
};

} // namespace orrery::store
