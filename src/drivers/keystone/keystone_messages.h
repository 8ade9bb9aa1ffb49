#pragma once

#include "drivers/keystone/keystone.h"

#include <string>
#include <string_view>

namespace orrery::drivers {

/// The body of the service user's login: password, scoped to its project.
std::string login_request(const KeystoneOptions& options);

/// The expiry of the token in an answer; `unavailable` where the answer has none.
Result<WallTime> read_expiry(std::string_view body);

/// The holder of the token in the answer to a validation. `unauthenticated`: none of its roles maps to one of ours, or its project
/// is not accepted; `unavailable`: the body is not an answer of Keystone.
Result<identity::TokenSource::Answer> read_holder(const KeystoneOptions& options, std::string_view body);

/// Can the token be sent in a header? Printable ASCII, at most 8192 characters.
bool is_token_text(std::string_view token);

} // namespace orrery::drivers
