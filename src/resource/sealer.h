#pragma once

#include "core/result.h"

#include <boost/json/value.hpp>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::resource {

/// Encrypts secrets at rest with XChaCha20-Poly1305. The key is in a file beside the configuration, not in the store. Each sealed
/// value is bound to its kind, name and path, so that it is useless elsewhere.
class Sealer {
public:
    /// Reads the key file. `make`: creates a missing file with mode 0600. Rejects a file that other users can read or that has the
    /// wrong size, with a remedy.
    enum class Missing { refuse, make };
    static Result<std::unique_ptr<Sealer>> open(const std::filesystem::path& key_file, Missing missing);
    /// A sealer with a random key that is not stored, for tests and dry runs.
    static std::unique_ptr<Sealer> ephemeral();

    /// "v1:<base64>"
    std::string seal(std::string_view plain, std::string_view where) const;
    /// Errors: `denied` with a remedy when the value was sealed with a different key or for a different path.
    Result<std::string> unseal(std::string_view sealed, std::string_view where) const;
    /// A short digest of the key. The store has it, so that start-up detects a wrong key.
    std::string fingerprint() const;

    /// A keyed hash in hexadecimal, to recognise a text without storing it. Hashes of different purposes are unrelated.
    std::string keyed_hash(std::string_view purpose, std::string_view text) const;

    ~Sealer();

private:
    Sealer() = default;
    std::array<unsigned char, 32> key_{};
};

} // namespace orrery::resource
