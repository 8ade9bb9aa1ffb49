#pragma once

#include "store/mirror.h"
#include "store/sqlite/leases.h"
#include "store/sqlite/operation.h"
#include "store/sqlite/writer.h"

#include <boost/unordered/unordered_flat_map.hpp>

#include <optional>
#include <string_view>
#include <unordered_set>

namespace orrery::store {

/// `conflict`, in words, where `record` (null: none) is not what the compare expects.
Result<Unit> holds(const Compare& compare, const Record* record);

Error moved_error(std::string_view where);

/// Decides on the operations of one batch, each against the mirror and what those before it in the batch do. Writes nothing itself:
/// it fills in the batch.
class Evaluation {
public:
    Evaluation(const Mirror& mirror, Leases& leases) : mirror_(mirror), leases_(leases) {}

    /// Takes the values out of the operation where it succeeds; where it does not, nothing of it is in the batch.
    Result<Evaluated> evaluate(Operation& operation, Batch& batch);
    /// Later operations of the batch see what this one did. Its events must stay where they are until `clear`.
    void remember(const Evaluated& evaluated);
    void clear();

private:
    Result<Unit> transaction(Transaction& transaction, Evaluated& into, Batch& batch);
    void revoke(LeaseId lease, Evaluated& into, Batch& batch);
    void add(Evaluated& into, std::string key, std::shared_ptr<StoredRecord> record, RecordPtr previous);
    RecordPtr newest(std::string_view key) const;
    bool has_lease(LeaseId lease) const;

    const Mirror& mirror_;
    Leases& leases_;
    std::optional<Revision> revision_;                               // the last one given out in this batch
    boost::unordered_flat_map<std::string_view, RecordPtr> changed_; // null: removed
    std::unordered_set<LeaseId> revoked_;
};

} // namespace orrery::store
