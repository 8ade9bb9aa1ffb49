#include "store/gate.h"

namespace orrery::store {

Gate::Gate(asio::any_io_executor executor, std::unique_ptr<Store> inner)
    : inner_(std::move(inner)), emptied_(std::move(executor)) {}
Gate::~Gate() = default;

Task<Unit> Gate::freeze(Context ctx, Error why) {
    if (frozen_) co_return Error{Code::conflict, "the store is being moved already"};
    frozen_ = std::move(why);
    while (under_way_ > 0) {
        auto waited = co_await emptied_.wait(ctx);
        if (waited.ok()) continue;
        thaw();
        co_return std::move(waited).error().within("waiting for writes under way");
    }
    co_return Unit{};
}

void Gate::thaw() { frozen_.reset(); }

Task<Revision> Gate::apply(Context ctx, Transaction transaction) {
    // A transaction that only checks is a read.
    if (frozen_ && !transaction.changes.empty()) co_return *frozen_;
    struct Passing {
        Gate& gate;
        explicit Passing(Gate& gate_) : gate(gate_) { ++gate.under_way_; }
        ~Passing() {
            if (--gate.under_way_ == 0) gate.emptied_.notify_all();
        }
    } passing(*this);
    co_return co_await inner_->apply(std::move(ctx), std::move(transaction));
}

Result<Unit> Gate::health() const {
    if (frozen_) return *frozen_;
    return inner_->health();
}

} // namespace orrery::store
