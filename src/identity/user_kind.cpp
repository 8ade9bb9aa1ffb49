#include "core/ids.h"
#include "identity/identity.h"
#include "identity/password_hasher.h"

#include <fmt/format.h>

namespace orrery::identity {

namespace json = boost::json;

namespace {

bool is_usable_admin(const json::object& spec) {
    const auto* role = spec.if_contains("role");
    const auto* disabled = spec.if_contains("disabled");
    return role && *role == "admin" && !(disabled && *disabled == true) && spec.contains("password");
}

/// `conflict` unless an admin other than `leaving` can log in. Adds the revision of that admin to `expect`, so that two concurrent
/// removals cannot each rely on the other admin.
Result<Unit> require_another_admin(const resource::Resources& resources, const resource::Object& leaving,
                                   resource::Expectations& expect) {
    TRY(const auto* kind, resources.registry().get("User"));
    resource::ListQuery query;
    do {
        TRY(auto page, resources.list(*kind, query));
        for (const auto& record : page.records) {
            TRY(auto user, resource::from_stored(*record));
            if (user.name == leaving.name || !is_usable_admin(user.spec)) continue;
            expect.emplace_back(record->key, record->modified);
            return Unit{};
        }
        query.after = page.next;
    } while (!query.after.empty());
    return Error{
        Code::conflict,
        fmt::format("{} is the last enabled admin with a password; without an admin, users cannot be managed", leaving.name),
        "make another user an admin first"};
}

/// True if the given password is the current one: applying a file twice changes nothing.
Task<bool> matches_current_password(Context ctx, PasswordHasher& hasher, const resource::Draft& draft, std::string password) {
    if (!draft.before || !draft.resources || !draft.before->spec.contains("password")) co_return false;
    CO_TRY(const auto* kind, draft.resources->registry().get("User"));
    auto hash = draft.resources->reveal(*kind, draft.after.name, "spec.password");
    if (!hash.ok()) co_return false;
    co_return co_await hasher.verify(std::move(ctx), std::move(*hash), std::move(password));
}

Task<Unit> prepare_user(std::shared_ptr<PasswordHasher> hasher, Context ctx, resource::Draft& draft) {
    auto& after = draft.after;
    if (!draft.before) after.status["id"] = random_id();
    auto* given = after.spec.if_contains("password");
    const auto* current = draft.before ? draft.before->spec.if_contains("password") : nullptr;
    if (given && given->is_string() && !(current && *current == *given)) {
        std::string password(given->get_string());
        CO_TRY(std::ignore, check_password_quality(after.name, password));
        CO_TRY(const bool same, co_await matches_current_password(ctx, *hasher, draft, password));
        if (same) {
            after.spec["password"] = *current;
        } else {
            std::string hash = "(hashed)";
            if (!draft.dry_run) {
                CO_TRY(hash, co_await hasher->hash(ctx, std::move(password)));
            }
            after.spec["password"] = hash;
            const auto* generation = after.status.if_contains("generation");
            after.status["generation"] = (generation && generation->is_int64() ? generation->get_int64() : 0) + 1;
        }
    }
    if (draft.before && draft.resources && is_usable_admin(draft.before->spec) && !is_usable_admin(after.spec)) {
        CO_TRY(std::ignore, require_another_admin(*draft.resources, after, draft.expect));
    }
    co_return Unit{};
}

} // namespace

resource::Kind user_kind() {
    using namespace resource;
    Kind kind("User", "users", "A user who logs in with a password, and the role of that user.");
    kind.spec(text("role", "Access level: viewers read, operators change resources, admins also manage users.")
                  .one_of({"viewer", "operator", "admin"})
                  .default_value("viewer"))
        .spec(text("full_name", "The person's name.").format(Format::one_line).between(0, 200))
        .spec(text("email", "Email address.").format(Format::one_line).between(0, 320))
        .spec(boolean("disabled", "Refuse the password and all tokens of this user.").default_value(false))
        .spec(text("password", "At least 10 characters. Only its argon2id hash is stored. A user without a password cannot log in, "
                               "but can have tokens.")
                  .secret())
        .spec(boolean("one_time", "The password must be changed at the next login.").default_value(false))
        .status(text("id", "Unique id; differs from an earlier user of the same name."))
        .status(integer("generation", "Number of password changes. A change ends all earlier sessions."))
        .column("ROLE", "spec.role")
        .column("DISABLED", "spec.disabled")
        .column("FULL NAME", "spec.full_name")
        .wide_column("EMAIL", "spec.email")
        .access(Role::admin, Role::admin)
        .example("kind: User\nname: alice\nspec:\n  role: operator\n  full_name: Alice Arden\n  email: alice@example.org\n")
        .prepare([hasher = std::make_shared<PasswordHasher>(1, 16)](Context ctx, Draft& draft) {
            return prepare_user(hasher, std::move(ctx), draft);
        })
        .before_remove([](Removal& removal) -> Result<Unit> {
            if (!removal.resources || !is_usable_admin(removal.object.spec)) return Unit{};
            return require_another_admin(*removal.resources, removal.object, removal.expect);
        });
    return kind;
}

} // namespace orrery::identity
