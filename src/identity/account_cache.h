#pragma once

#include "core/clock.h"
#include "core/digest.h"
#include "resource/role.h"
#include "store/store.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace orrery::identity {

/// SHA-256 of a token. Neither the store nor the memory keeps the token itself.
using Digest = Sha256;
std::optional<Digest> from_hex(std::string_view text);

struct DigestHash {
    std::size_t operator()(const Digest& digest) const;
};

/// "orr_" followed by 32 random bytes in base32.
std::string make_token();
/// True if the text has the format of an orrery token. Does not check whether the token exists.
bool has_token_format(std::string_view text);
/// The description that marks the token of a login session.
constexpr std::string_view session_description = "login session";

/// Users and tokens in memory, indexed by name and digest. An observer of the store keeps it as current as the store's copy. Loop
/// thread only.
class AccountCache {
public:
    explicit AccountCache(store::Store& store);
    ~AccountCache();
    AccountCache(const AccountCache&) = delete;
    AccountCache& operator=(const AccountCache&) = delete;

    struct User {
        resource::Role role = resource::Role::nobody;
        bool disabled = false, one_time = false, has_password = false;
        std::string id;              ///< differs if a user is deleted and created again
        std::int64_t generation = 0; ///< incremented by each password change; ends older sessions
        store::Revision revision = 0;
    };
    struct Token {
        std::string name, user, source, user_id;
        resource::Role role = resource::Role::nobody;
        std::vector<std::string> kinds;
        WallTime expires_at{}, last_used_stored{};
        std::optional<std::int64_t> generation; ///< of a session: the user's generation at login
        mutable WallTime last_used{};           ///< not written to the store yet
    };

    /// Valid until the next change.
    const User* user(std::string_view name) const;
    /// The token with that digest if it is valid now, and its effective role: the lower of the token's and the user's role.
    std::optional<std::pair<const Token*, resource::Role>> find_valid(const Digest& digest, WallTime now) const;
    /// True if there is an expired token with that digest. Expired tokens are removed later.
    bool has_expired(const Digest& digest, WallTime now) const;
    /// Names of tokens that have expired or lost their user, at most `limit`.
    std::vector<std::string> expired_tokens(WallTime now, std::size_t limit) const;
    /// Names and last uses of tokens whose stored last use is older than that by at least `step`.
    std::vector<std::pair<std::string, WallTime>> unstored_uses(Duration step, std::size_t limit) const;
    /// Names of the user's session tokens, oldest first.
    std::vector<std::string> sessions(std::string_view user, std::string_view source) const;
    std::size_t tokens() const { return by_digest_.size(); }

private:
    void on_user_event(const store::Event& event);
    void on_token_event(const store::Event& event);
    void erase_token(const std::string& name);
    bool has_valid_owner(const Token& token) const;

    std::unordered_map<std::string, User> users_;
    std::unordered_map<Digest, Token, DigestHash> by_digest_;
    std::unordered_map<std::string, Digest> by_name_;
    std::set<std::pair<WallTime, std::string>> by_expiry_;
    std::unordered_map<std::string, std::set<std::string>> sessions_; // by source/user
    std::shared_ptr<void> users_observer_, tokens_observer_;
};

} // namespace orrery::identity
