#pragma once

#include "drivers/keystone/keystone.h"

#include <string>
#include <string_view>

namespace orrery::drivers {

/// The body of our own login: password, scoped to our project.
std::string login_request(const KeystoneOptions& options);

/// When the token that an answer describes expires; `unavailable` where it does not say.
Result<WallTime> read_expiry(std::string_view body);

/// Who holds the token that an answer to its validation describes. `unauthenticated`: none of its roles is one of ours, or its
/// project is not wanted; `unavailable`: not what Keystone answers.
Result<identity::TokenSource::Answer> read_holder(const KeystoneOptions& options, std::string_view body);

/// May it be sent in a header? Printable ASCII, of a length that tokens have.
bool is_token_text(std::string_view token);

} // namespace orrery::drivers
