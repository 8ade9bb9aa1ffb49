#pragma once

#include "core/clock.h"
#include "gslb/decide/cause.h"

#include <boost/json/object.hpp>

#include <optional>
#include <string>

namespace orrery::gslb {

namespace json = boost::json;

/// A change that was not made, and the condition that it waits for.
struct Withheld {
    Cause cause = Cause::failback;
    std::string about;             ///< the member, pool or client class
    std::string message;           ///< for people
    std::optional<WallTime> until; ///< nullopt: time alone does not release it
    bool operator==(const Withheld&) const = default;
    json::object to_json() const;
};

} // namespace orrery::gslb
