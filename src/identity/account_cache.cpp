#include "identity/account_cache.h"

#include "core/ids.h"
#include "core/json_fields.h"
#include "core/log.h"
#include "resource/object.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>

namespace orrery::identity {

namespace json = boost::json;

namespace {

constexpr std::string_view token_prefix = "orr_";
constexpr std::size_t token_bytes = 32, token_characters = (token_bytes * 8 + 4) / 5; // base32

resource::Role role_at(const json::object& object) {
    return resource::parse_role(text_at(object, "role")).value_or(resource::Role::nobody);
}

std::string session_owner(std::string_view source, std::string_view user) { return fmt::format("{}/{}", source, user); }

} // namespace

std::optional<Digest> from_hex(std::string_view text) {
    Digest digest{};
    std::size_t length = 0;
    const char* end = nullptr;
    if (sodium_hex2bin(digest.data(), digest.size(), text.data(), text.size(), nullptr, &length, &end) != 0) return std::nullopt;
    if (length != digest.size() || end != text.data() + text.size()) return std::nullopt;
    return digest;
}

std::size_t DigestHash::operator()(const Digest& digest) const {
    std::size_t first = 0; // a digest is uniformly distributed
    std::memcpy(&first, digest.data(), sizeof first);
    return first;
}

std::string make_token() { return std::string(token_prefix) + random_secret(token_bytes); }

bool has_token_format(std::string_view text) {
    return text.size() == token_prefix.size() + token_characters && text.starts_with(token_prefix);
}

AccountCache::AccountCache(store::Store& store) {
    users_observer_ = store.observe("users/", [this](const store::Event& event) { on_user_event(event); });
    tokens_observer_ = store.observe("tokens/", [this](const store::Event& event) { on_token_event(event); });
}

AccountCache::~AccountCache() = default;

void AccountCache::on_user_event(const store::Event& event) {
    const auto name = event.key.substr(std::string_view("users/").size());
    users_.erase(name);
    if (!event.record) return;
    auto object = resource::from_stored(*event.record);
    if (!object.ok()) {
        log::error(Context::background(), "cannot read user, login disabled: user={} error={}", name, object.error().message);
        return;
    }
    User user;
    user.role = role_at(object->spec);
    user.disabled = flag_at(object->spec, "disabled");
    user.one_time = flag_at(object->spec, "one_time");
    user.has_password = object->spec.contains("password");
    user.id = text_at(object->status, "id");
    user.generation = integer_at(object->status, "generation");
    user.revision = event.record->modified;
    users_.emplace(name, std::move(user));
}

void AccountCache::erase_token(const std::string& name) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return;
    if (const auto token = by_digest_.find(found->second); token != by_digest_.end()) {
        by_expiry_.erase({token->second.expires_at, name});
        const auto owner = sessions_.find(session_owner(token->second.source, token->second.user));
        if (owner != sessions_.end() && owner->second.erase(name) > 0 && owner->second.empty()) sessions_.erase(owner);
        by_digest_.erase(token);
    }
    by_name_.erase(found);
}

void AccountCache::on_token_event(const store::Event& event) {
    const auto name = event.key.substr(std::string_view("tokens/").size());
    WallTime last_used{};
    if (const auto found = by_name_.find(name); found != by_name_.end()) last_used = by_digest_.at(found->second).last_used;
    erase_token(name);
    if (!event.record) return;
    auto object = resource::from_stored(*event.record);
    const auto digest = object.ok() ? from_hex(text_at(object->status, "digest")) : std::nullopt;
    if (!digest) {
        log::error(Context::background(), "cannot read token, ignored: token={}", name);
        return;
    }
    if (by_digest_.contains(*digest)) {
        log::error(Context::background(), "duplicate token digest, ignored: token={} duplicate_of={}", name,
                   by_digest_.at(*digest).name);
        return;
    }
    Token token;
    token.name = name;
    token.user = text_at(object->spec, "user");
    token.source = text_at(object->spec, "source");
    token.user_id = text_at(object->status, "user_id");
    token.role = role_at(object->spec);
    if (const auto* kinds = object->spec.if_contains("kinds"); kinds && kinds->is_array())
        for (const auto& kind : kinds->get_array())
            if (kind.is_string()) token.kinds.emplace_back(kind.get_string());
    token.expires_at = time_at(object->status, "expires_at").value_or(WallTime{});
    token.last_used_stored = time_at(object->status, "last_used").value_or(WallTime{});
    token.last_used = std::max(last_used, token.last_used_stored);
    if (text_at(object->spec, "description") == session_description) {
        token.generation = integer_at(object->status, "generation");
        sessions_[session_owner(token.source, token.user)].insert(name);
    }
    by_expiry_.emplace(token.expires_at, name);
    by_name_.emplace(name, *digest);
    by_digest_.emplace(*digest, std::move(token));
}

const AccountCache::User* AccountCache::user(std::string_view name) const {
    const auto found = users_.find(std::string(name));
    return found == users_.end() ? nullptr : &found->second;
}

bool AccountCache::has_valid_owner(const Token& token) const {
    if (token.source != "built-in") return true;
    const auto* owner = user(token.user);
    return owner && owner->id == token.user_id && (!token.generation || *token.generation == owner->generation);
}

std::optional<std::pair<const AccountCache::Token*, resource::Role>> AccountCache::find_valid(const Digest& digest,
                                                                                              WallTime now) const {
    const auto found = by_digest_.find(digest);
    if (found == by_digest_.end()) return std::nullopt;
    const auto& token = found->second;
    if (token.expires_at <= now || !has_valid_owner(token)) return std::nullopt;
    auto role = token.role;
    if (token.source == "built-in") {
        const auto* owner = user(token.user);
        if (owner->disabled) return std::nullopt;
        role = std::min(role, owner->role);
    }
    if (role == resource::Role::nobody) return std::nullopt;
    token.last_used = now;
    return std::pair{&token, role};
}

bool AccountCache::has_expired(const Digest& digest, WallTime now) const {
    const auto found = by_digest_.find(digest);
    return found != by_digest_.end() && found->second.expires_at <= now;
}

std::vector<std::string> AccountCache::expired_tokens(WallTime now, std::size_t limit) const {
    std::vector<std::string> names;
    for (const auto& [expires_at, name] : by_expiry_) {
        if (names.size() >= limit) break;
        if (expires_at <= now || !has_valid_owner(by_digest_.at(by_name_.at(name)))) names.push_back(name);
    }
    return names;
}

std::vector<std::pair<std::string, WallTime>> AccountCache::unstored_uses(Duration step, std::size_t limit) const {
    std::vector<std::pair<std::string, WallTime>> used;
    for (const auto& [digest, token] : by_digest_) {
        if (used.size() >= limit) break;
        if (token.last_used - token.last_used_stored >= step) used.emplace_back(token.name, token.last_used);
    }
    return used;
}

std::vector<std::string> AccountCache::sessions(std::string_view user, std::string_view source) const {
    const auto found = sessions_.find(session_owner(source, user));
    if (found == sessions_.end()) return {};
    return {found->second.begin(), found->second.end()};
}

} // namespace orrery::identity
