#pragma once

#include "gslb/publish/record_set.h"

#include <string>
#include <string_view>

/// Owner marks: texts beside published records that name the owner and a digest of the contents. A server that reads one later
/// (also after a restart, also another server of the same owner) can distinguish its own earlier answer from a change by others.
namespace orrery::gslb {

/// "orrery owner=site-1 set=9f86d081884c7d65": at most 100 characters, printable, without quotes.
std::string mark_of(std::string_view owner, const RecordSet& set);

enum class Ownership {
    ours,     ///< our mark, and the contents match its digest
    altered,  ///< our mark, but the contents changed since
    anothers, ///< the mark of another owner
    unmarked,
};
Ownership ownership(const RecordSet& set, std::string_view owner);

/// A valid owner: 1 to 40 letters, digits, '.', '_' and '-'.
bool is_owner(std::string_view text);

} // namespace orrery::gslb
