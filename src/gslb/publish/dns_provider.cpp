#include "gslb/publish/dns_provider.h"

#include <fmt/format.h>

namespace orrery::gslb {

Result<Unit> guard_against_emptying(const Change& change) {
    if (change.after.empty() && !change.empties)
        return Error{Code::invalid,
                     fmt::format("the change would remove all records of {}, and the decision is not empty", change.name)};
    return Unit{};
}

} // namespace orrery::gslb
