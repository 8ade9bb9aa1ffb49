#pragma once

#include "store/copy_age.h"
#include "store/store.h"

#include <memory>
#include <optional>

namespace orrery::store {

/// A wrapper around an engine that can refuse writes while the store is being migrated. Reads, watches and leases pass through.
/// Owns the engine. Loop thread only.
class FreezableStore final : public Store, public CopyAgeProvider {
public:
    FreezableStore(asio::any_io_executor executor, std::unique_ptr<Store> inner);
    ~FreezableStore() override;

    /// Refuses every new write with `reason` and returns when all pending writes have completed. `conflict`: writes are refused
    /// already. After an error (deadline, cancellation) the store accepts writes again.
    Task<Unit> refuse_writes(Context ctx, Error reason);
    void accept_writes();
    bool refuses_writes() const { return frozen_.has_value(); }
    /// The wrapped engine, which accepts writes also while this store refuses them.
    Store& inner() { return *inner_; }

    Revision revision() const override { return inner_->revision(); }
    Revision compacted() const override { return inner_->compacted(); }
    RecordPtr find(std::string_view key) const override { return inner_->find(key); }
    Page range(std::string_view prefix, std::size_t limit, std::string_view after) const override {
        return inner_->range(prefix, limit, after);
    }
    std::size_t count(std::string_view prefix) const override { return inner_->count(prefix); }
    Task<Revision> catch_up(Context ctx) override { return inner_->catch_up(std::move(ctx)); }
    Task<Page> fetch(Context ctx, std::string prefix, std::size_t limit, std::string after, Values values) override {
        return inner_->fetch(std::move(ctx), std::move(prefix), limit, std::move(after), values);
    }
    Task<Revision> apply(Context ctx, Transaction transaction) override;
    Task<Unit> compact(Context ctx, Revision revision) override { return inner_->compact(std::move(ctx), revision); }
    Task<LeaseId> grant(Context ctx, Duration ttl) override { return inner_->grant(std::move(ctx), ttl); }
    Task<Unit> keep_alive(Context ctx, LeaseId lease) override { return inner_->keep_alive(std::move(ctx), lease); }
    Task<Unit> revoke(Context ctx, LeaseId lease) override { return inner_->revoke(std::move(ctx), lease); }
    std::unique_ptr<Watch> watch(std::string_view prefix, Revision from) override { return inner_->watch(prefix, from); }
    std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> callback) override {
        return inner_->observe(prefix, std::move(callback));
    }
    const std::string& identity() const override { return inner_->identity(); }
    Result<Unit> health() const override;
    Duration copy_age() const override { return copy_age_provider_ == nullptr ? Duration::zero() : copy_age_provider_->copy_age(); }
    std::vector<std::pair<std::string, double>> metrics() const override { return inner_->metrics(); }
    asio::awaitable<void> stop() override { return inner_->stop(); }

private:
    std::unique_ptr<Store> inner_;
    const CopyAgeProvider* copy_age_provider_; ///< `inner_`, or null; every response asks for the age
    Notifier drained_;
    std::size_t pending_writes_ = 0;
    std::optional<Error> frozen_;
};

} // namespace orrery::store
