#pragma once

#include <string>
#include <string_view>

namespace orrery::drivers {

/// RFC 4515: a value inside a search filter, so that nothing in it is syntax.
std::string escape_filter(std::string_view value);

/// `pattern` with {user} and {dn} replaced by the escaped values. Values are not looked into again.
std::string fill_filter(std::string_view pattern, std::string_view user, std::string_view dn);

/// The value of a DN's first part: "ops" of "cn=ops,ou=groups,dc=example". Empty where there is none; escapes are left as they are.
std::string first_value(std::string_view dn);

/// As directories compare most names: without regard to the case of ASCII letters.
std::string fold_case(std::string_view text);

} // namespace orrery::drivers
