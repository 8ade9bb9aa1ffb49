#pragma once

#include "store/store.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::store {

/// Whoever waits for an operation.
struct Answer {
    virtual ~Answer() = default;
    virtual void give(Result<Revision> outcome) = 0;
};
template <class Handler> struct AnswerTo final : Answer {
    explicit AnswerTo(Handler handler_) : handler(std::move(handler_)) {}
    void give(Result<Revision> outcome) override { std::move(handler)(std::move(outcome)); }
    Handler handler;
};

/// One thing that waits for the writer.
struct Operation {
    enum class What { transaction, grant, revoke, compact, move };
    What what = What::transaction;
    Context ctx;
    Transaction transaction;
    std::int64_t number = 0; ///< a lease or a revision
    Duration ttl{};
    std::string text;
    std::unique_ptr<Answer> answer;

    std::size_t size() const {
        std::size_t bytes = sizeof(Operation) + text.size();
        for (const auto& compare : transaction.compares) bytes += compare.key.size() + sizeof(Compare);
        for (const auto& change : transaction.changes) bytes += change.key.size() + change.value.size() + sizeof(Change);
        return bytes;
    }
};

/// An operation that was decided on: what it will have done once its batch is on the disk.
struct Evaluated {
    std::unique_ptr<Operation> operation;
    Revision revision = 0; ///< its own, or the one it found where it changes nothing
    std::vector<Event> events;
    std::vector<std::int64_t> seqs; ///< of the events
};

} // namespace orrery::store
