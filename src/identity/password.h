#pragma once

#include "core/result.h"

#include <string>
#include <string_view>

namespace orrery::identity {

/// argon2id (libsodium, interactive limits: 64 MiB, two passes), as a self-describing string, and its check. Both take 50 to 100 ms
/// of CPU: pool only. An empty string where there was no memory for it.
std::string hash_password(std::string_view password);
/// False for anything that is not such a hash.
bool verify_password(std::string_view hash, std::string_view password);

/// A hash that no password has, with the limits `hash_password` uses: checked in place of a user who does not exist, so that it
/// takes as long.
std::string_view nobodys_hash();

/// At least 10 characters, at most 256, not the user's name: `invalid` with what would be right.
Result<Unit> check_password_quality(std::string_view user, std::string_view password);

} // namespace orrery::identity
