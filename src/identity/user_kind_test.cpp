#include "identity/identity_fixture.h"

#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>

namespace orrery::identity {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

asio::awaitable<void> demote_into(IdentityFixture& fixture, std::string name, std::vector<Result<resource::Outcome>>& outcomes) {
    outcomes.push_back(co_await fixture.patch("User", std::move(name), {{"role", "viewer"}}));
}

} // namespace

CO_TEST(User, StoresOnlyASealedHashOfThePassword) {
    IdentityFixture fixture(loop.get_executor());
    auto made = co_await fixture.create_user("alice", {{"password", good_password}});
    CO_ASSERT_OK(made);
    EXPECT_THAT(fixture.all_text(), Not(HasSubstr(good_password)));
    EXPECT_THAT(fixture.all_text(), Not(HasSubstr("argon2")));
    EXPECT_THAT(json::serialize(made->object.to_json()), Not(HasSubstr("argon2")));
    const auto hash = fixture.resources->reveal(fixture.users(), "alice", "spec.password");
    CO_ASSERT_OK(hash);
    EXPECT_TRUE(verify_password(*hash, good_password));
}

CO_TEST(User, RefusesAWeakPasswordWithItsField) {
    IdentityFixture fixture(loop.get_executor());
    auto refused = co_await fixture.create_user("alice", {{"password", "short"}});
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::invalid);
    CO_ASSERT(!refused.error().fields.empty());
    EXPECT_EQ(refused.error().fields.front().path, "spec.password");
    EXPECT_THAT(refused.error().text(), Not(HasSubstr("short")));
}

CO_TEST(User, TheSamePasswordIsNoChange) {
    IdentityFixture fixture(loop.get_executor());
    auto made = co_await fixture.create_user("alice", {{"password", good_password}, {"role", "operator"}});
    CO_ASSERT_OK(made);
    auto again = an_object("User", "alice", {{"password", good_password}, {"role", "operator"}});
    auto replaced = co_await fixture.resources->replace(Context::make("test"), fixture.users(), std::move(again), {});
    CO_ASSERT_OK(replaced);
    EXPECT_EQ(replaced->action, resource::Outcome::Action::unchanged);
    auto changed = co_await fixture.patch("User", "alice", {{"password", other_password}});
    CO_ASSERT_OK(changed);
    EXPECT_EQ(changed->action, resource::Outcome::Action::updated);
    CO_ASSERT_OK(co_await fixture.log_in("alice", other_password));
}

CO_TEST(User, AReplaceWithoutThePasswordKeepsIt) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    auto without = an_object("User", "alice", {{"full_name", "Alice Arden"}});
    CO_ASSERT_OK(co_await fixture.resources->replace(Context::make("test"), fixture.users(), std::move(without), {}));
    CO_ASSERT_OK(co_await fixture.log_in("alice", good_password));
}

CO_TEST(User, ADryRunHashesAndStoresNothing) {
    IdentityFixture fixture(loop.get_executor());
    resource::WriteOptions dry;
    dry.dry_run = true;
    auto user = an_object("User", "alice", {{"password", good_password}});
    CO_ASSERT_OK(co_await fixture.resources->create(Context::make("test"), fixture.users(), std::move(user), dry));
    EXPECT_FALSE(fixture.resources->exists(fixture.users(), "alice"));
}

CO_TEST(User, TheLastEnabledAdminCannotBeRemovedDisabledDemotedOrLeftWithoutAPassword) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("root", {{"password", good_password}, {"role", "admin"}}));
    CO_ASSERT_OK(co_await fixture.create_user("sleeper", {{"password", good_password}, {"role", "admin"}, {"disabled", true}}));
    CO_ASSERT_OK(co_await fixture.create_user("mute", {{"role", "admin"}}));
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}, {"role", "operator"}}));
    auto removed = co_await fixture.remove("User", "root");
    auto demoted = co_await fixture.patch("User", "root", {{"role", "operator"}});
    auto disabled = co_await fixture.patch("User", "root", {{"disabled", true}});
    auto silenced = co_await fixture.patch("User", "root", {{"password", nullptr}});
    for (const auto* refused : {&removed, &demoted, &disabled, &silenced}) {
        EXPECT_FALSE(refused->ok());
        if (!refused->ok()) {
            EXPECT_EQ(refused->error().code, Code::conflict) << refused->error().text();
            EXPECT_THAT(refused->error().message, HasSubstr("last enabled admin"));
        }
    }
    // Changes that keep the role are allowed. If a second admin exists, all changes are allowed.
    CO_ASSERT_OK(co_await fixture.patch("User", "root", {{"email", "root@example.org"}}));
    CO_ASSERT_OK(co_await fixture.patch("User", "sleeper", {{"disabled", false}}));
    CO_ASSERT_OK(co_await fixture.remove("User", "root"));
    auto now_last = co_await fixture.remove("User", "sleeper");
    EXPECT_FALSE(now_last.ok());
}

CO_TEST(User, OfTwoConcurrentDemotionsOneAdminRemains) {
    for (int round = 0; round < 5; ++round) {
        IdentityFixture fixture(loop.get_executor());
        CO_ASSERT_OK(co_await fixture.create_user("first", {{"password", good_password}, {"role", "admin"}}));
        CO_ASSERT_OK(co_await fixture.create_user("second", {{"password", good_password}, {"role", "admin"}}));
        std::vector<Result<resource::Outcome>> outcomes;
        TaskGroup group(loop.get_executor());
        group.spawn(demote_into(fixture, "first", outcomes));
        group.spawn(demote_into(fixture, "second", outcomes));
        co_await group.join();
        EXPECT_EQ(std::count_if(outcomes.begin(), outcomes.end(), [](const auto& outcome) { return outcome.ok(); }), 1);
    }
}

CO_TEST(User, AForgedStatusChangesNothing) {
    IdentityFixture fixture(loop.get_executor());
    auto user = an_object("User", "alice", {{"password", good_password}});
    user.status = {{"id", "forged"}, {"generation", 99}};
    CO_ASSERT_OK(co_await fixture.resources->create(Context::make("test"), fixture.users(), std::move(user), {}));
    const auto stored = fixture.resources->get(fixture.users(), "alice");
    CO_ASSERT_OK(stored);
    EXPECT_NE(stored->status.at("id"), "forged");
    EXPECT_EQ(stored->status.at("generation"), 1);
}

} // namespace orrery::identity
