#pragma once

#include "store/store.h"

#include <memory>
#include <optional>

namespace orrery::store {

/// A store whose writes can be held off while it is being moved. Stands in front of an engine for as long as the engine lives;
/// reads, watches and the leases of this server go through untouched. Loop thread only.
class Gate final : public Store {
public:
    Gate(asio::any_io_executor executor, std::unique_ptr<Store> inner);
    ~Gate() override;

    /// From here on every write is refused with `why`; returns when those under way have ended. `conflict` if it is frozen already.
    /// When it fails (deadline, cancelled) writes are let through again.
    Task<Unit> freeze(Context ctx, Error why);
    void thaw();
    bool is_frozen() const { return frozen_.has_value(); }
    /// The engine behind, where nothing is held off.
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
    std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> seen) override {
        return inner_->observe(prefix, std::move(seen));
    }
    const std::string& identity() const override { return inner_->identity(); }
    Result<Unit> health() const override;
    std::vector<std::pair<std::string, double>> metrics() const override { return inner_->metrics(); }
    asio::awaitable<void> stop() override { return inner_->stop(); }

private:
    std::unique_ptr<Store> inner_;
    Notifier emptied_;
    std::size_t under_way_ = 0;
    std::optional<Error> frozen_;
};

} // namespace orrery::store
