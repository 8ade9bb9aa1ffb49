#include "core/ids.h"
#include "identity/hasher.h"
#include "identity/identity.h"

#include <fmt/format.h>

namespace orrery::identity {

namespace json = boost::json;

namespace {

bool is_able_admin(const json::object& spec) {
    const auto* role = spec.if_contains("role");
    const auto* disabled = spec.if_contains("disabled");
    return role && *role == "admin" && !(disabled && *disabled == true) && spec.contains("password");
}

/// That an admin who can log in is left without `leaving`. Holds that one still, so that two who go at once do not each count on
/// the other.
Result<Unit> leave_an_admin(const resource::Resources& resources, const resource::Object& leaving, resource::Expectations& expect) {
    TRY(const auto* kind, resources.registry().get("User"));
    resource::ListQuery query;
    do {
        TRY(auto page, resources.list(*kind, query));
        for (const auto& record : page.records) {
            TRY(auto user, resource::from_stored(*record));
            if (user.name == leaving.name || !is_able_admin(user.spec)) continue;
            expect.emplace_back(record->key, record->modified);
            return Unit{};
        }
        query.after = page.next;
    } while (!query.after.empty());
    return Error{Code::conflict,
                 fmt::format("{} is the last enabled admin with a password; without one nobody could manage users", leaving.name),
                 "make another user an admin first"};
}

/// Whether the password given is the one that stands already: applying a file twice changes nothing.
Task<bool> stands_already(Context ctx, Hasher& hasher, const resource::Draft& draft, std::string password) {
    if (!draft.before || !draft.resources || !draft.before->spec.contains("password")) co_return false;
    CO_TRY(const auto* kind, draft.resources->registry().get("User"));
    auto hash = draft.resources->reveal(*kind, draft.after.name, "spec.password");
    if (!hash.ok()) co_return false;
    co_return co_await hasher.verify(std::move(ctx), std::move(*hash), std::move(password));
}

Task<Unit> prepare_user(std::shared_ptr<Hasher> hasher, Context ctx, resource::Draft& draft) {
    auto& after = draft.after;
    if (!draft.before) after.status["id"] = random_id();
    auto* given = after.spec.if_contains("password");
    const auto* kept = draft.before ? draft.before->spec.if_contains("password") : nullptr;
    if (given && given->is_string() && !(kept && *kept == *given)) {
        std::string password(given->get_string());
        CO_TRY(std::ignore, check_password_quality(after.name, password));
        CO_TRY(const bool same, co_await stands_already(ctx, *hasher, draft, password));
        if (same) {
            after.spec["password"] = *kept;
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
    if (draft.before && draft.resources && is_able_admin(draft.before->spec) && !is_able_admin(after.spec)) {
        CO_TRY(std::ignore, leave_an_admin(*draft.resources, after, draft.expect));
    }
    co_return Unit{};
}

} // namespace

resource::Kind user_kind(Pool& pool) {
    using namespace resource;
    Kind kind("User", "users", "Somebody who may log in with a password, and what that person may do.");
    kind.spec(text("role", "A viewer reads, an operator changes the cloud, an admin also changes who may.")
                  .one_of({"viewer", "operator", "admin"})
                  .otherwise("viewer"))
        .spec(text("full_name", "The person's name.").format(Format::one_line).between(0, 200))
        .spec(text("email", "Where to write to.").format(Format::one_line).between(0, 320))
        .spec(boolean("disabled", "Neither password nor tokens of this user count.").otherwise(false))
        .spec(text("password",
                   "At least 10 characters. Only its argon2id hash is kept. A user without one cannot log in, but can have tokens.")
                  .secret())
        .spec(boolean("one_time", "The password must be changed at the next login.").otherwise(false))
        .status(text("id", "Tells this user from an earlier one of the same name."))
        .status(integer("generation", "How often the password has changed. Sessions of earlier ones are over."))
        .column("ROLE", "spec.role")
        .column("DISABLED", "spec.disabled")
        .column("FULL NAME", "spec.full_name")
        .wide_column("EMAIL", "spec.email")
        .access(Role::admin, Role::admin)
        .example("kind: User\nname: alice\nspec:\n  role: operator\n  full_name: Alice Arden\n  email: alice@example.org\n")
        .prepare([hasher = std::make_shared<Hasher>(pool, 1, 16)](Context ctx, Draft& draft) {
            return prepare_user(hasher, std::move(ctx), draft);
        })
        .before_remove([](Removal& removal) -> Result<Unit> {
            if (!removal.resources || !is_able_admin(removal.object.spec)) return Unit{};
            return leave_an_admin(*removal.resources, removal.object, removal.expect);
        });
    return kind;
}

} // namespace orrery::identity
