#pragma once

#include "core/result.h"

#include <boost/json/value.hpp>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::resource {

/// Seals secrets at rest: XChaCha20-Poly1305 under a key that lives in a file beside the configuration, not in the store. Each
/// sealed value is bound to where it belongs (kind, name, path), so that it cannot be moved to another place.
class Sealer {
public:
    /// Reads the key file. `make`: creates it (mode 0600) where it does not exist. Refuses a file others can read, or of the wrong
    /// size, with a remedy.
    enum class Missing { refuse, make };
    static Result<std::unique_ptr<Sealer>> open(const std::filesystem::path& key_file, Missing missing);
    /// A key of its own that nobody keeps, for tests and dry runs.
    static std::unique_ptr<Sealer> ephemeral();

    /// "v1:<base64>"
    std::string seal(std::string_view plain, std::string_view where) const;
    /// `denied` with a remedy when it was sealed under another key or for another place.
    Result<std::string> unseal(std::string_view sealed, std::string_view where) const;
    /// A short digest of the key, which the store keeps, so that a wrong key is noticed at start-up.
    std::string fingerprint() const;

    ~Sealer();

private:
    Sealer() = default;
    std::array<unsigned char, 32> key_{};
};

} // namespace orrery::resource
