#pragma once

#include "core/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// RRsets as they are compared and published. Names are in lower case with the last dot ("www.gslb.example.").
namespace orrery::gslb {

enum class RecordType { a, aaaa, cname };
std::string_view name_of(RecordType type); ///< "A", "AAAA", "CNAME"

/// All records of one type at one name.
struct RecordSet {
    RecordType type = RecordType::a;
    std::uint32_t ttl = 30;
    std::vector<std::string> values; ///< as `record_set` makes them: sorted, without duplicates, at least one
    std::string mark;                ///< the owner mark, see owner_mark.h; empty: unmarked

    /// Compares everything but the mark.
    bool same_data(const RecordSet& other) const { return type == other.type && ttl == other.ttl && values == other.values; }
    std::string text() const; ///< "A 192.0.2.1 192.0.2.2 (ttl 30)"
};
/// At most one of each type, in the order of the types.
using RecordSets = std::vector<RecordSet>;
bool same_data(const RecordSets& left, const RecordSets& right);
const RecordSet* find(const RecordSets& sets, RecordType type);
std::string text_of(const RecordSets& sets); ///< "nothing" for an empty list

/// A set in canonical form: addresses as the system prints them, aliases in lower case with the last dot. `invalid` for a malformed
/// value, for no value, and for more than one alias.
Result<RecordSet> record_set(RecordType type, std::uint32_t ttl, std::vector<std::string> values);
/// A set that a DNS service returned: malformed values are kept, so that they show up as a difference.
RecordSet foreign_record_set(RecordType type, std::uint32_t ttl, std::vector<std::string> values, std::string mark = {});

} // namespace orrery::gslb
