#pragma once

#include "core/result.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// The port between the job engine and whoever knows which services run where: the built-in catalog, or Consul.
namespace orrery::jobs {

/// How far an instance is. Each includes those before it.
enum class MemberState : std::uint8_t {
    registered, ///< somebody said that it will be there
    usable,     ///< no check of it is critical
    passing,    ///< all its checks pass
};
std::string_view name_of(MemberState state);
Result<MemberState> parse_member_state(std::string_view text);

struct Member {
    std::string node;
    std::string address;
    int port = 0;
    MemberState state = MemberState::registered;
    std::string why; ///< the last words of the check that holds it back; may be empty
};

/// Who is in which service. Answers come from memory. Loop thread only.
class Membership {
public:
    virtual ~Membership() = default;
    /// The instances of a service that carry `tag` (all where it is empty), in whatever state. No instances is an answer;
    /// `unavailable` (the catalog is out of reach, an answer was filtered) is no evidence, and never "zero members".
    virtual Result<std::vector<Member>> members(std::string_view service, std::string_view tag) const = 0;
    /// Calls `changed` with a service's name after its instances or their states changed, or evidence of it came or went; with ""
    /// when that may be so of all. Until the handle is destroyed. `changed` only takes note: it asks later.
    virtual std::shared_ptr<void> watch(std::function<void(std::string_view service)> changed) = 0;
};

} // namespace orrery::jobs
