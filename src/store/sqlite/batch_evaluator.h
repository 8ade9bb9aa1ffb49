#pragma once

#include "store/mirror.h"
#include "store/sqlite/lease_table.h"
#include "store/sqlite/operation.h"
#include "store/sqlite/writer.h"

#include <boost/unordered/unordered_flat_map.hpp>

#include <optional>
#include <string_view>
#include <unordered_set>

namespace orrery::store {

/// `conflict` if `record` (null: the key does not exist) does not satisfy the compare.
Result<Unit> check_compare(const Compare& compare, const Record* record);

Error migrated_error(std::string_view where);

/// Evaluates the operations of one batch: checks each against the mirror and the effects of the earlier operations of the batch,
/// and adds its rows to the batch. Has no other effects.
class BatchEvaluator {
public:
    BatchEvaluator(const Mirror& mirror, LeaseTable& leases) : mirror_(mirror), leases_(leases) {}

    /// Moves the values out of the operation. After an error the batch contains nothing of the operation.
    Result<EvaluatedOperation> evaluate(Operation& operation, Batch& batch);
    /// Makes the effects visible to later operations of the batch. The events must not move until `clear`.
    void record_effects(const EvaluatedOperation& evaluated);
    void clear();

private:
    Result<Unit> transaction(Transaction& transaction, EvaluatedOperation& into, Batch& batch);
    void revoke(LeaseId lease, EvaluatedOperation& into, Batch& batch);
    void add(EvaluatedOperation& into, std::string key, std::shared_ptr<StoredRecord> record, RecordPtr previous);
    RecordPtr newest(std::string_view key) const;
    bool has_lease(LeaseId lease) const;

    const Mirror& mirror_;
    LeaseTable& leases_;
    std::optional<Revision> revision_;                               // the last one assigned in this batch
    boost::unordered_flat_map<std::string_view, RecordPtr> changed_; // null: removed
    std::unordered_set<LeaseId> revoked_;
};

} // namespace orrery::store
