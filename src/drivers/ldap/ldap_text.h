#pragma once

#include <string>
#include <string_view>

namespace orrery::drivers {

/// Escapes a value for a search filter (RFC 4515), so that no part of it is syntax.
std::string escape_filter(std::string_view value);

/// Replaces {user} and {dn} in `pattern` by the escaped values. References inside values are not replaced.
std::string fill_filter(std::string_view pattern, std::string_view user, std::string_view dn);

/// The value of the first part of a DN: "ops" of "cn=ops,ou=groups,dc=example". Empty where the text is not a DN; escapes stay.
std::string first_value(std::string_view dn);

} // namespace orrery::drivers
