#include "store/freezable_store.h"

namespace orrery::store {

FreezableStore::FreezableStore(asio::any_io_executor executor, std::unique_ptr<Store> inner)
    : inner_(std::move(inner)),
      copy_age_provider_(dynamic_cast<const CopyAgeProvider*>(inner_.get())),
      drained_(std::move(executor)) {}
FreezableStore::~FreezableStore() = default;

Task<Unit> FreezableStore::refuse_writes(Context ctx, Error reason) {
    if (frozen_) co_return Error{Code::conflict, "the store is already being migrated"};
    frozen_ = std::move(reason);
    while (pending_writes_ > 0) {
        auto waited = co_await drained_.wait(ctx);
        if (waited.ok()) continue;
        accept_writes();
        co_return std::move(waited).error().within("waiting for pending writes");
    }
    co_return Unit{};
}

void FreezableStore::accept_writes() { frozen_.reset(); }

Task<Revision> FreezableStore::apply(Context ctx, Transaction transaction) {
    // A transaction without changes is a read.
    if (frozen_ && !transaction.changes.empty()) co_return *frozen_;
    struct PendingWrite {
        FreezableStore& store;
        explicit PendingWrite(FreezableStore& store_) : store(store_) { ++store.pending_writes_; }
        ~PendingWrite() {
            if (--store.pending_writes_ == 0) store.drained_.notify_all();
        }
    } pending(*this);
    co_return co_await inner_->apply(std::move(ctx), std::move(transaction));
}

Result<Unit> FreezableStore::health() const {
    if (frozen_) return *frozen_;
    return inner_->health();
}

} // namespace orrery::store
