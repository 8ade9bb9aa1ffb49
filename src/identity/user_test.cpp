#include "identity/testing.h"

#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>

namespace orrery::identity {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

asio::awaitable<void> demote_into(Town& town, std::string name, std::vector<Result<resource::Outcome>>& outcomes) {
    outcomes.push_back(co_await town.patch("User", std::move(name), {{"role", "viewer"}}));
}

} // namespace

CO_TEST(User, KeepsOnlyASealedHashOfThePassword) {
    Town town(loop.get_executor());
    auto made = co_await town.create_user("alice", {{"password", good_password}});
    CO_ASSERT_OK(made);
    EXPECT_THAT(town.all_text(), Not(HasSubstr(good_password)));
    EXPECT_THAT(town.all_text(), Not(HasSubstr("argon2")));
    EXPECT_THAT(json::serialize(made->object.to_json()), Not(HasSubstr("argon2")));
    const auto hash = town.resources->reveal(town.users(), "alice", "spec.password");
    CO_ASSERT_OK(hash);
    EXPECT_TRUE(verify_password(*hash, good_password));
}

CO_TEST(User, RefusesAWeakPasswordWithItsField) {
    Town town(loop.get_executor());
    auto refused = co_await town.create_user("alice", {{"password", "short"}});
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::invalid);
    CO_ASSERT(!refused.error().fields.empty());
    EXPECT_EQ(refused.error().fields.front().path, "spec.password");
    EXPECT_THAT(refused.error().text(), Not(HasSubstr("short")));
}

CO_TEST(User, TheSamePasswordAgainIsNoChange) {
    Town town(loop.get_executor());
    auto made = co_await town.create_user("alice", {{"password", good_password}, {"role", "operator"}});
    CO_ASSERT_OK(made);
    auto again = an_object("User", "alice", {{"password", good_password}, {"role", "operator"}});
    auto replaced = co_await town.resources->replace(Context::make("test"), town.users(), std::move(again), {});
    CO_ASSERT_OK(replaced);
    EXPECT_EQ(replaced->what, resource::Outcome::What::unchanged);
    auto changed = co_await town.patch("User", "alice", {{"password", other_password}});
    CO_ASSERT_OK(changed);
    EXPECT_EQ(changed->what, resource::Outcome::What::updated);
    CO_ASSERT_OK(co_await town.log_in("alice", other_password));
}

CO_TEST(User, AReplaceWithoutThePasswordKeepsIt) {
    Town town(loop.get_executor());
    CO_ASSERT_OK(co_await town.create_user("alice", {{"password", good_password}}));
    auto without = an_object("User", "alice", {{"full_name", "Alice Arden"}});
    CO_ASSERT_OK(co_await town.resources->replace(Context::make("test"), town.users(), std::move(without), {}));
    CO_ASSERT_OK(co_await town.log_in("alice", good_password));
}

CO_TEST(User, ADryRunHashesAndStoresNothing) {
    Town town(loop.get_executor());
    resource::WriteOptions dry;
    dry.dry_run = true;
    auto user = an_object("User", "alice", {{"password", good_password}});
    CO_ASSERT_OK(co_await town.resources->create(Context::make("test"), town.users(), std::move(user), dry));
    EXPECT_FALSE(town.resources->exists(town.users(), "alice"));
}

CO_TEST(User, TheLastEnabledAdminCannotBeRemovedDisabledDemotedOrLeftWithoutAPassword) {
    Town town(loop.get_executor());
    CO_ASSERT_OK(co_await town.create_user("root", {{"password", good_password}, {"role", "admin"}}));
    CO_ASSERT_OK(co_await town.create_user("sleeper", {{"password", good_password}, {"role", "admin"}, {"disabled", true}}));
    CO_ASSERT_OK(co_await town.create_user("mute", {{"role", "admin"}}));
    CO_ASSERT_OK(co_await town.create_user("alice", {{"password", good_password}, {"role", "operator"}}));
    auto removed = co_await town.remove("User", "root");
    auto demoted = co_await town.patch("User", "root", {{"role", "operator"}});
    auto disabled = co_await town.patch("User", "root", {{"disabled", true}});
    auto silenced = co_await town.patch("User", "root", {{"password", nullptr}});
    for (const auto* refused : {&removed, &demoted, &disabled, &silenced}) {
        EXPECT_FALSE(refused->ok());
        if (!refused->ok()) {
            EXPECT_EQ(refused->error().code, Code::conflict) << refused->error().text();
            EXPECT_THAT(refused->error().message, HasSubstr("last enabled admin"));
        }
    }
    // What does not touch the role is free, and so is all of it once there is another.
    CO_ASSERT_OK(co_await town.patch("User", "root", {{"email", "root@example.org"}}));
    CO_ASSERT_OK(co_await town.patch("User", "sleeper", {{"disabled", false}}));
    CO_ASSERT_OK(co_await town.remove("User", "root"));
    auto now_last = co_await town.remove("User", "sleeper");
    EXPECT_FALSE(now_last.ok());
}

CO_TEST(User, TwoAdminsWhoStepDownAtOnceLeaveOneBehind) {
    for (int round = 0; round < 5; ++round) {
        Town town(loop.get_executor());
        CO_ASSERT_OK(co_await town.create_user("first", {{"password", good_password}, {"role", "admin"}}));
        CO_ASSERT_OK(co_await town.create_user("second", {{"password", good_password}, {"role", "admin"}}));
        std::vector<Result<resource::Outcome>> outcomes;
        TaskGroup group(loop.get_executor());
        group.spawn(demote_into(town, "first", outcomes));
        group.spawn(demote_into(town, "second", outcomes));
        co_await group.join();
        EXPECT_EQ(std::count_if(outcomes.begin(), outcomes.end(), [](const auto& outcome) { return outcome.ok(); }), 1);
    }
}

CO_TEST(User, AForgedStatusChangesNothing) {
    Town town(loop.get_executor());
    auto user = an_object("User", "alice", {{"password", good_password}});
    user.status = {{"id", "forged"}, {"generation", 99}};
    CO_ASSERT_OK(co_await town.resources->create(Context::make("test"), town.users(), std::move(user), {}));
    const auto stored = town.resources->get(town.users(), "alice");
    CO_ASSERT_OK(stored);
    EXPECT_NE(stored->status.at("id"), "forged");
    EXPECT_EQ(stored->status.at("generation"), 1);
}

} // namespace orrery::identity
