#pragma once

#include "catalog/membership.h"

#include <string_view>

/// The catalog as jobs use it. The port is `catalog::Membership`; the built-in catalog and Consul implement it.
namespace orrery::jobs {

using catalog::DeclaredService;
using catalog::Evidence;
using catalog::Member;
using catalog::Members;
using catalog::Membership;
using MemberState = catalog::State;

/// A barrier on a plain DNS name asks for the members of this prefix and the name; the tag is the record type.
constexpr std::string_view dns_prefix = "dns:";

} // namespace orrery::jobs
