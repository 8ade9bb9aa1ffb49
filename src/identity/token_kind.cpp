#include "identity/account_cache.h"
#include "identity/identity.h"

#include <fmt/format.h>

namespace orrery::identity {

namespace json = boost::json;

namespace {

constexpr auto default_ttl = "90d";
constexpr auto max_ttl = std::chrono::hours(24 * 3650);
constexpr auto max_external_ttl = std::chrono::hours(24 * 90); // external directories do not report removed users

std::string spec_text(const resource::Object& object, std::string_view name) {
    const auto* value = object.spec.if_contains(name);
    return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

Error field_error(std::string path, std::string message) {
    Error error{Code::invalid, fmt::format("{} {}", path, message)};
    error.fields.push_back({std::move(path), std::move(message)});
    return error;
}

Result<WallTime> resolve_expiry(resource::Draft& draft, WallTime now) {
    auto& after = draft.after;
    const bool external = spec_text(after, "source") != "built-in";
    const auto max_lifetime = external ? max_external_ttl : max_ttl;
    const auto max_text = external ? "90 days, because its user is not built-in" : "ten years";
    if (after.spec.contains("ttl") && after.spec.contains("expires_at"))
        return field_error("spec.ttl", "and spec.expires_at exclude each other");
    if (const auto until = spec_text(after, "expires_at"); !until.empty()) {
        TRY(const auto expires_at, from_rfc3339(until));
        const bool unchanged = draft.before && spec_text(*draft.before, "expires_at") == until;
        if (expires_at <= now && !unchanged) return field_error("spec.expires_at", "must be in the future");
        if (expires_at > now + max_lifetime && !unchanged)
            return field_error("spec.expires_at", fmt::format("must be within {}", max_text));
        return expires_at;
    }
    if (!after.spec.contains("ttl")) after.spec["ttl"] = default_ttl;
    TRY(const auto ttl, parse_duration(spec_text(after, "ttl")));
    if (ttl < std::chrono::seconds(1) || ttl > max_lifetime)
        return field_error("spec.ttl", fmt::format("must be between a second and {}", max_text));
    return (draft.before ? draft.before->created_at : now) + std::chrono::duration_cast<std::chrono::milliseconds>(ttl);
}

/// Checks that a built-in user exists and binds the token to its id, so that a later user of the same name cannot use it.
Result<Unit> bind_to_user(resource::Draft& draft) {
    if (spec_text(draft.after, "source") != "built-in" || !draft.resources) return Unit{};
    const auto name = spec_text(draft.after, "user");
    TRY(const auto* kind, draft.resources->registry().get("User"));
    const auto record = draft.resources->find(*kind, name);
    if (!record) return field_error("spec.user", fmt::format("{} is not a user", name));
    TRY(const auto user, resource::from_stored(*record));
    if (const auto* id = user.status.if_contains("id")) draft.after.status["user_id"] = *id;
    if (spec_text(draft.after, "description") == session_description) {
        const auto* generation = user.status.if_contains("generation");
        draft.after.status["generation"] = generation ? *generation : json::value(0);
    }
    draft.expect.emplace_back(record->key, record->modified);
    return Unit{};
}

/// Replaces aliases of kinds by their canonical names.
Result<Unit> canonicalize_kinds(resource::Draft& draft) {
    auto* kinds = draft.after.spec.if_contains("kinds");
    if (!kinds || !kinds->is_array() || !draft.resources) return Unit{};
    for (auto& kind : kinds->get_array()) {
        TRY(const auto* known, draft.resources->registry().get(std::string_view(kind.as_string())));
        kind = known->name();
    }
    return Unit{};
}

Task<Unit> prepare_token(const Clock& clock, Context ctx, resource::Draft& draft) {
    auto& after = draft.after;
    if (spec_text(after, "user").empty()) co_return field_error("spec.user", "is required");
    CO_TRY(std::ignore, canonicalize_kinds(draft));
    CO_TRY(const auto expires_at, resolve_expiry(draft, clock.wall()));
    after.status["expires_at"] = to_rfc3339(expires_at);
    const bool session = spec_text(after, "description") == session_description;
    if (draft.before && session != (spec_text(*draft.before, "description") == session_description))
        co_return field_error("spec.description", "of a login session cannot change");
    if (draft.before) co_return Unit{};
    CO_TRY(std::ignore, bind_to_user(draft));
    if (draft.dry_run) co_return Unit{};
    const auto token = make_token();
    after.status["digest"] = to_hex(sha256(token));
    draft.once["token"] = token;
    co_return Unit{};
}

} // namespace

resource::Kind token_kind(Clock& clock) {
    using namespace resource;
    Kind kind("Token", "tokens", "An API token that acts for a user. The token is shown once, when it is created.");
    kind.spec(text("user", "The user that the token acts for. Default: the creator.")
                  .format(Format::one_line)
                  .between(1, 256)
                  .immutable()
                  .indexed())
        .spec(text("source", "Where the user is defined: built-in, or the name of a directory.")
                  .format(Format::name)
                  .default_value("built-in")
                  .immutable())
        .spec(text("role", "Role of the token, at most the role of its user.")
                  .one_of({"viewer", "operator", "admin"})
                  .default_value("viewer"))
        .spec(duration("ttl", "Lifetime; 90d if neither ttl nor expires_at is set."))
        .spec(resource::time("expires_at", "Expiry time."))
        .spec(list("kinds", "Restrict the token to these kinds; empty: all kinds.",
                   text("kind", "Name of a kind.").format(Format::one_line))
                  .between(0, 100))
        .spec(text("description", "Purpose of the token.").format(Format::one_line).between(0, 500))
        .status(resource::time("expires_at", "Time from which the token is refused."))
        .status(resource::time("last_used", "Last use, with a resolution of one hour."))
        .status(text("digest", "SHA-256 of the token."))
        .status(text("user_id", "Id of the user that the token belongs to."))
        .status(integer("generation", "Of a login session: the generation of the user at login."))
        .column("USER", "spec.user")
        .column("ROLE", "spec.role")
        .column("EXPIRES", "status.expires_at")
        .column("DESCRIPTION", "spec.description")
        .wide_column("SOURCE", "spec.source")
        .wide_column("LAST USED", "status.last_used")
        .access(Role::viewer, Role::viewer)
        .owned_by("user")
        .example(
            "kind: Token\nname: backup-job\nspec:\n  user: alice\n  role: viewer\n  ttl: 30d\n  description: nightly inventory\n")
        .prepare([&clock](Context ctx, Draft& draft) { return prepare_token(clock, std::move(ctx), draft); });
    return kind;
}

} // namespace orrery::identity
