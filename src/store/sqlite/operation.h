#pragma once

#include "store/store.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::store {

/// One write that waits for a group commit.
struct Operation {
    enum class Type { transaction, grant, revoke, compact, seal };
    Type type = Type::transaction;
    Context ctx;
    Transaction transaction;
    std::int64_t number = 0; ///< lease id or revision, depending on the type
    Duration ttl{};
    std::string text; ///< of `seal`: the target

    std::size_t size() const {
        std::size_t bytes = sizeof(Operation) + text.size();
        for (const auto& compare : transaction.compares) bytes += compare.key.size() + sizeof(Compare);
        for (const auto& change : transaction.changes) bytes += change.key.size() + change.value.size() + sizeof(Change);
        return bytes;
    }
};

/// A queued operation and the continuation of its caller.
struct PendingOperation {
    explicit PendingOperation(Operation operation_) : operation(std::move(operation_)), size(operation.size()) {}
    virtual ~PendingOperation() = default;
    virtual void complete(Result<Revision> outcome) = 0;
    Operation operation;
    std::size_t size;
};
template <class Handler> struct PendingOperationFor final : PendingOperation {
    PendingOperationFor(Operation operation_, Handler handler_)
        : PendingOperation(std::move(operation_)), handler(std::move(handler_)) {}
    void complete(Result<Revision> outcome) override { std::move(handler)(std::move(outcome)); }
    Handler handler;
};

/// A successfully evaluated operation: its effects, which take place when its batch is on disk.
struct EvaluatedOperation {
    std::unique_ptr<PendingOperation> pending;
    Revision revision = 0;     ///< its own revision, or the current one if it changes nothing
    std::vector<Event> events; ///< in the order of their log rows
};

} // namespace orrery::store
