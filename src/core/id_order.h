#pragma once

#include <string_view>

namespace orrery {

/// Time-ordered ids that this process makes from now on sort after `id`, which an earlier process or another server may have made
/// while its clock was ahead. Texts that are no such id have no effect.
void continue_ids_after(std::string_view id);

} // namespace orrery
