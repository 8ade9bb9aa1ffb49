#include "store/sqlite/batch_evaluator.h"

#include <fmt/format.h>

namespace orrery::store {

using namespace std::chrono_literals;

Result<Unit> check_compare(const Compare& compare, const Record* record) {
    const bool modified = compare.target == Compare::Target::modified;
    const Revision found = !record ? 0 : modified ? record->modified : record->created;
    if (found == compare.revision) return Unit{};
    if (compare.revision == 0)
        return Error{Code::conflict, fmt::format("\"{}\" already exists since revision {}", compare.key, record->created)};
    if (!record) return Error{Code::conflict, fmt::format("\"{}\" does not exist", compare.key), "read it again"};
    return Error{Code::conflict,
                 fmt::format("\"{}\" was {} at revision {}, not {}", compare.key, modified ? "last changed" : "created", found,
                             compare.revision),
                 "read it again"};
}

Error migrated_error(std::string_view where) {
    return Error{Code::unsupported, fmt::format("the store was migrated to {}", where), "use that store"};
}

void BatchEvaluator::record_effects(const EvaluatedOperation& evaluated) {
    for (const auto& event : evaluated.events) changed_[event.key] = event.record;
}

void BatchEvaluator::clear() {
    revision_.reset();
    changed_.clear();
    revoked_.clear();
}

RecordPtr BatchEvaluator::newest(std::string_view key) const {
    if (!changed_.empty())
        if (const auto changed = changed_.find(key); changed != changed_.end()) return changed->second;
    return mirror_.find(key);
}

bool BatchEvaluator::has_lease(LeaseId lease) const {
    const auto* found = leases_.find(lease);
    return found && !found->revoking && !revoked_.contains(lease);
}

void BatchEvaluator::add(EvaluatedOperation& into, std::string key, std::shared_ptr<StoredRecord> record, RecordPtr previous) {
    if (record) record->seq = seq_of(into.revision, into.events.size());
    into.events.push_back(Event{into.revision, std::move(key), std::move(record), std::move(previous)});
}

Result<Unit> BatchEvaluator::transaction(Transaction& transaction, EvaluatedOperation& into, Batch& batch) {
    for (const auto& compare : transaction.compares) {
        const auto record = newest(compare.key);
        TRY(std::ignore, check_compare(compare, record.get()));
    }
    for (const auto& change : transaction.changes) {
        if (change.lease == 0) continue;
        if (!has_lease(change.lease))
            return Error{Code::not_found, fmt::format("lease {} of \"{}\" has expired or was revoked", change.lease, change.key),
                         "request a new lease"};
        // All keys of a lease are removed in one revision, and the number of rows per revision is limited.
        if (leases_.find(change.lease)->keys.size() + batch.rows.size() + max_changes > max_rows_per_revision)
            return Error{Code::too_large, fmt::format("lease {} has too many keys", change.lease), "use several leases"};
    }
    into.events.reserve(transaction.changes.size());
    for (auto& change : transaction.changes) {
        auto previous = newest(change.key);
        if (change.op == Change::Op::remove) {
            if (previous) add(into, std::move(change.key), nullptr, std::move(previous));
            continue;
        }
        auto record = std::make_shared<StoredRecord>();
        record->key = change.key;
        record->value = std::move(change.value);
        record->created = previous ? previous->created : into.revision;
        record->modified = into.revision;
        record->version = previous ? previous->version + 1 : 1;
        record->lease = change.lease;
        add(into, std::move(change.key), std::move(record), std::move(previous));
    }
    return Unit{};
}

void BatchEvaluator::revoke(LeaseId lease, EvaluatedOperation& into, Batch& batch) {
    // An earlier operation of this batch may have attached a key to the lease or detached it.
    if (const auto* found = leases_.find(lease))
        for (const auto& key : found->keys)
            if (auto record = newest(key); record && record->lease == lease) add(into, key, nullptr, std::move(record));
    for (const auto& [key, record] : changed_) {
        if (!record || record->lease != lease) continue;
        const auto before = mirror_.find(key);
        if (!before || before->lease != lease) add(into, std::string(key), nullptr, record);
    }
    revoked_.insert(lease);
    batch.revoked.push_back(lease);
}

Result<EvaluatedOperation> BatchEvaluator::evaluate(Operation& operation, Batch& batch) {
    if (const auto deadline = operation.ctx.deadline(); deadline && *deadline < std::chrono::steady_clock::now())
        return Error{Code::timeout, "the deadline passed while the write was queued; nothing was written"};
    if (batch.migrated_to) return migrated_error(*batch.migrated_to);
    const auto last = revision_.value_or(mirror_.revision());
    EvaluatedOperation evaluated;
    evaluated.revision = last + 1;
    switch (operation.type) {
    case Operation::Type::transaction: {
        TRY(std::ignore, transaction(operation.transaction, evaluated, batch));
        break;
    }
    case Operation::Type::grant: batch.granted.push_back({operation.number, operation.ttl / 1ms}); break;
    case Operation::Type::revoke: revoke(operation.number, evaluated, batch); break;
    case Operation::Type::compact: batch.compacted = std::max(batch.compacted.value_or(0), operation.number); break;
    case Operation::Type::seal: batch.migrated_to = operation.text; break;
    }
    for (std::size_t i = 0; i < evaluated.events.size(); ++i)
        batch.rows.push_back({seq_of(evaluated.revision, i), &evaluated.events[i]});
    if (evaluated.events.empty()) evaluated.revision = last;
    revision_ = evaluated.revision;
    return evaluated;
}

} // namespace orrery::store
