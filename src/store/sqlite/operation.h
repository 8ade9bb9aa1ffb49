#pragma once

#include "store/store.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::store {

/// One thing that waits for the writer.
struct Operation {
    enum class What { transaction, grant, revoke, compact, move };
    What what = What::transaction;
    Context ctx;
    Transaction transaction;
    std::int64_t number = 0; ///< a lease or a revision
    Duration ttl{};
    std::string text;

    std::size_t size() const {
        std::size_t bytes = sizeof(Operation) + text.size();
        for (const auto& compare : transaction.compares) bytes += compare.key.size() + sizeof(Compare);
        for (const auto& change : transaction.changes) bytes += change.key.size() + change.value.size() + sizeof(Change);
        return bytes;
    }
};

/// An operation and whoever waits for it.
struct Queued {
    explicit Queued(Operation operation_) : operation(std::move(operation_)), size(operation.size()) {}
    virtual ~Queued() = default;
    virtual void answer(Result<Revision> outcome) = 0;
    Operation operation;
    std::size_t size;
};
template <class Handler> struct QueuedFor final : Queued {
    QueuedFor(Operation operation_, Handler handler_) : Queued(std::move(operation_)), handler(std::move(handler_)) {}
    void answer(Result<Revision> outcome) override { std::move(handler)(std::move(outcome)); }
    Handler handler;
};

/// An operation that was decided on: what it will have done once its batch is on the disk.
struct Evaluated {
    std::unique_ptr<Queued> queued;
    Revision revision = 0;     ///< its own, or the one it found where it changes nothing
    std::vector<Event> events; ///< their places in the log are their places here
};

} // namespace orrery::store
