#include "identity/directory.h"
#include "identity/identity.h"

#include <fmt/format.h>

namespace orrery::identity {

namespace json = boost::json;

namespace {

constexpr auto default_ttl = "90d";
constexpr auto longest_ttl = std::chrono::hours(24 * 3650);
constexpr auto longest_foreign_ttl = std::chrono::hours(24 * 90); // no directory tells us when somebody has left

std::string spec_text(const resource::Object& object, std::string_view name) {
    const auto* value = object.spec.if_contains(name);
    return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

Error wrong_field(std::string path, std::string message) {
    Error error{Code::invalid, fmt::format("{} {}", path, message)};
    error.fields.push_back({std::move(path), std::move(message)});
    return error;
}

Result<WallTime> expiry_of(resource::Draft& draft, WallTime now) {
    auto& after = draft.after;
    const bool foreign = spec_text(after, "source") != "built-in";
    const auto longest = foreign ? longest_foreign_ttl : longest_ttl;
    const auto most = foreign ? "90 days, because its user is not one of ours" : "ten years";
    if (after.spec.contains("ttl") && after.spec.contains("expires_at"))
        return wrong_field("spec.ttl", "and spec.expires_at exclude each other");
    if (const auto until = spec_text(after, "expires_at"); !until.empty()) {
        TRY(const auto expires_at, from_rfc3339(until));
        const bool stands = draft.before && spec_text(*draft.before, "expires_at") == until;
        if (expires_at <= now && !stands) return wrong_field("spec.expires_at", "must be in the future");
        if (expires_at > now + longest && !stands) return wrong_field("spec.expires_at", fmt::format("must be within {}", most));
        return expires_at;
    }
    if (!after.spec.contains("ttl")) after.spec["ttl"] = default_ttl;
    TRY(const auto ttl, parse_duration(spec_text(after, "ttl")));
    if (ttl < std::chrono::seconds(1) || ttl > longest)
        return wrong_field("spec.ttl", fmt::format("must be between a second and {}", most));
    return (draft.before ? draft.before->created_at : now) + std::chrono::duration_cast<std::chrono::milliseconds>(ttl);
}

/// A built-in user must be there, and the token is bound to that very one, not to a later one of the same name.
Result<Unit> bind_to_user(resource::Draft& draft) {
    if (spec_text(draft.after, "source") != "built-in" || !draft.resources) return Unit{};
    const auto name = spec_text(draft.after, "user");
    TRY(const auto* kind, draft.resources->registry().get("User"));
    const auto record = draft.resources->find(*kind, name);
    if (!record) return wrong_field("spec.user", fmt::format("names {}, who is not a user", name));
    TRY(const auto user, resource::from_stored(*record));
    if (const auto* id = user.status.if_contains("id")) draft.after.status["user_id"] = *id;
    if (spec_text(draft.after, "description") == session_description) {
        const auto* generation = user.status.if_contains("generation");
        draft.after.status["generation"] = generation ? *generation : json::value(0);
    }
    draft.expect.emplace_back(record->key, record->modified);
    return Unit{};
}

/// Kinds by their proper name, whatever they were called.
Result<Unit> name_kinds(resource::Draft& draft) {
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
    if (spec_text(after, "user").empty()) co_return wrong_field("spec.user", "is required");
    CO_TRY(std::ignore, name_kinds(draft));
    CO_TRY(const auto expires_at, expiry_of(draft, clock.wall()));
    after.status["expires_at"] = to_rfc3339(expires_at);
    const bool session = spec_text(after, "description") == session_description;
    if (draft.before && session != (spec_text(*draft.before, "description") == session_description))
        co_return wrong_field("spec.description", "of a login session cannot change");
    if (draft.before) co_return Unit{};
    CO_TRY(std::ignore, bind_to_user(draft));
    if (draft.dry_run) co_return Unit{};
    const auto token = make_token();
    after.status["digest"] = to_hex(digest_of(token));
    draft.once["token"] = token;
    co_return Unit{};
}

} // namespace

resource::Kind token_kind(Clock& clock) {
    using namespace resource;
    Kind kind("Token", "tokens", "What a program shows to act for a user. It is shown once, when it is made.");
    kind.spec(text("user", "For whom it acts: its maker, where nobody is named.")
                  .format(Format::one_line)
                  .between(1, 256)
                  .immutable()
                  .indexed())
        .spec(text("source", "Who knows that user: built-in, or the directory's name.")
                  .format(Format::name)
                  .otherwise("built-in")
                  .immutable())
        .spec(text("role", "What it may do: never more than its user.").one_of({"viewer", "operator", "admin"}).otherwise("viewer"))
        .spec(duration("ttl", "How long it counts; 90d where neither this nor expires_at is given."))
        .spec(resource::time("expires_at", "Until when it counts."))
        .spec(list("kinds", "It may touch these kinds only; all where none is given.",
                   text("kind", "A kind's name.").format(Format::one_line))
                  .between(0, 100))
        .spec(text("description", "What it is for.").format(Format::one_line).between(0, 500))
        .status(resource::time("expires_at", "From then on it does not count."))
        .status(resource::time("last_used", "When it was last used, to the hour."))
        .status(text("digest", "SHA-256 of the token."))
        .status(text("user_id", "Of the user it belongs to."))
        .status(integer("generation", "Of a login session: the user's when it began."))
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
