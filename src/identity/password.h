#pragma once

#include "core/result.h"

#include <string>
#include <string_view>

namespace orrery::identity {

/// The argon2id hash (libsodium, interactive limits: 64 MiB, two passes) as a self-describing string; empty if memory is short.
/// Takes 50 to 100 ms of CPU, as does `verify_password`: call both on a pool thread.
std::string hash_password(std::string_view password);
/// True if the password matches. False if `hash` is not an argon2id hash.
bool verify_password(std::string_view hash, std::string_view password);

/// A hash that no password matches, with the limits of `hash_password`. It is verified for unknown users, so that the response time
/// does not reveal whether a user exists.
std::string_view dummy_hash();

/// Requires 10 to 256 characters, not the user's name. `invalid` with a remedy otherwise.
Result<Unit> check_password_quality(std::string_view user, std::string_view password);

} // namespace orrery::identity
