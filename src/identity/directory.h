#pragma once

#include "core/clock.h"
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

/// SHA-256. The store and the memory hold only this of a token.
using Digest = std::array<unsigned char, 32>;
Digest digest_of(std::string_view text);
std::string to_hex(const Digest& digest);
std::optional<Digest> from_hex(std::string_view text);

struct DigestHash {
    std::size_t operator()(const Digest& digest) const;
};

/// "orr_" and 32 random bytes.
std::string make_token();
/// Could it be one of ours? Only its form.
bool looks_like_token(std::string_view text);
/// A login's token is known by its description.
constexpr std::string_view session_description = "login session";

/// What is known of users and tokens, in memory, exact as the store's copy is, because it is fed from it. Loop thread only.
class Directory {
public:
    explicit Directory(store::Store& store);
    ~Directory();
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;

    struct User {
        resource::Role role = resource::Role::nobody;
        bool disabled = false, one_time = false, has_password = false;
        std::string id;              ///< a user made again under the same name is somebody else
        std::int64_t generation = 0; ///< counts the passwords; sessions of earlier ones are over
        store::Revision revision = 0;
    };
    struct Token {
        std::string name, user, source, user_id;
        resource::Role role = resource::Role::nobody;
        std::vector<std::string> kinds;
        WallTime expires_at{}, last_used_stored{};
        std::optional<std::int64_t> generation; ///< of a session: the user's when it began
        mutable WallTime last_used{};           ///< not in the store yet
    };

    /// Valid until the next change.
    const User* user(std::string_view name) const;
    /// The token with that digest if it counts now, and the role it gives: its own, or its user's where that is less.
    std::optional<std::pair<const Token*, resource::Role>> holder(const Digest& digest, WallTime now) const;
    /// Names of tokens that will never count again, at most `limit`.
    std::vector<std::string> dead(WallTime now, std::size_t limit) const;
    /// Names and times of tokens that were used and whose stored time is older than `step`.
    std::vector<std::pair<std::string, WallTime>> used_since(Duration step, std::size_t limit) const;
    /// Names of a user's sessions, oldest first.
    std::vector<std::string> sessions(std::string_view user, std::string_view source) const;
    std::size_t tokens() const { return by_digest_.size(); }

private:
    void see_user(const store::Event& event);
    void see_token(const store::Event& event);
    void forget_token(const std::string& name);
    bool has_living_user(const Token& token) const;

    std::unordered_map<std::string, User> users_;
    std::unordered_map<Digest, Token, DigestHash> by_digest_;
    std::unordered_map<std::string, Digest> by_name_;
    std::set<std::pair<WallTime, std::string>> by_expiry_;
    std::unordered_map<std::string, std::set<std::string>> sessions_; // by source/user
    std::shared_ptr<void> watches_users_, watches_tokens_;
};

} // namespace orrery::identity
