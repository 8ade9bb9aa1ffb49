#include "core/test_fixture.h"
#include "drivers/ssh/logins.h"
#include "resource/resource_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::drivers::logins_test {
namespace {

using resource::testing::ResourceFixture;
using ::testing::HasSubstr;

constexpr auto first_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1wB7vY0sY0rQ8yqk8n0fZ0K6zvV1k5o6xV4m3bq2aT";
constexpr auto other_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG5vdC10aGUta2V5LXRoYXQtd2FzLXNlZW4tZmlyc3QtMDE";

boost::json::object ssh_of(std::string key, std::string jump = {}, bool trust = false) {
    boost::json::object ssh{{"user", "deploy"}, {"port", 2222}, {"trust_first_use", trust}};
    if (!key.empty()) ssh["key"] = key;
    if (!jump.empty()) ssh["jump"] = jump;
    return ssh;
}

Task<Unit> put(ResourceFixture& base, const resource::Kind& kind, resource::Object object) {
    const auto ctx = Context::background();
    if (base.resources->exists(kind, object.name)) {
        CO_TRY(std::ignore, co_await base.resources->replace(ctx, kind, std::move(object), {}));
    } else {
        CO_TRY(std::ignore, co_await base.resources->create(ctx, kind, std::move(object), {}));
    }
    co_return Unit{};
}
Task<Unit> put_node(ResourceFixture& base, std::string name, boost::json::object ssh) {
    return put(base, base.nodes(), resource::testing::an_object("Node", std::move(name), {{"address", "192.0.2.7"}, {"ssh", ssh}}));
}
Task<Unit> put_secret(ResourceFixture& base, std::string name, boost::json::object values) {
    return put(base, base.secrets(), resource::testing::a_secret(std::move(name), std::move(values)));
}
resource::Node node_of(ResourceFixture& base, std::string_view name) {
    return resource::Node::from(*base.resources->get(base.nodes(), name));
}

CO_TEST(ResourceLogins, UseTheKeyInTheSecretOfTheNode) {
    ResourceFixture base(co_await asio::this_coro::executor);
    ResourceLogins logins(*base.resources);
    CO_ASSERT_OK(co_await put_secret(base, "site-key", {{"private_key", "the key"}}));
    CO_ASSERT_OK(co_await put_secret(base, "wrong", {{"password", "x"}}));
    auto pinned = ssh_of("site-key");
    pinned["host_key"] = first_key;
    CO_ASSERT_OK(co_await put_node(base, "a", pinned));
    CO_ASSERT_OK(co_await put_node(base, "keyless", ssh_of("")));
    CO_ASSERT_OK(co_await put_node(base, "wrong", ssh_of("wrong")));
    const auto login = logins.login(node_of(base, "a"));
    CO_ASSERT_OK(login);
    EXPECT_EQ(login->host, "192.0.2.7");
    EXPECT_EQ(login->port, 2222);
    EXPECT_EQ(login->user, "deploy");
    EXPECT_EQ(login->private_key, "the key");
    EXPECT_EQ(login->host_key, first_key);
    EXPECT_FALSE(login->on_first_key) << "a pinned key is not negotiable";
    const auto keyless = logins.login(node_of(base, "keyless"));
    CO_ASSERT(!keyless.ok());
    EXPECT_THAT(keyless.error().message, HasSubstr("node keyless has no key to log in with"));
    EXPECT_THAT(keyless.error().remedy, HasSubstr("spec.ssh.key"));
    const auto wrong = logins.login(node_of(base, "wrong"));
    CO_ASSERT(!wrong.ok());
    EXPECT_THAT(wrong.error().message, HasSubstr("node wrong cannot be logged in to"));
    EXPECT_THAT(wrong.error().remedy, HasSubstr("give the Secret wrong a value private_key"));
}

CO_TEST(ResourceLogins, WithoutAHostKeyNoHostIsTrustedUnlessTheNodeAllowsIt) {
    ResourceFixture base(co_await asio::this_coro::executor);
    ResourceLogins logins(*base.resources);
    CO_ASSERT_OK(co_await put_secret(base, "site-key", {{"private_key", "the key"}}));
    CO_ASSERT_OK(co_await put_node(base, "strict", ssh_of("site-key")));
    CO_ASSERT_OK(co_await put_node(base, "new", ssh_of("site-key", "", true)));
    const auto strict = logins.login(node_of(base, "strict"));
    CO_ASSERT_OK(strict);
    EXPECT_TRUE(strict->host_key.empty());
    EXPECT_FALSE(strict->on_first_key);

    const auto first = logins.login(node_of(base, "new"));
    CO_ASSERT_OK(first);
    EXPECT_TRUE(first->host_key.empty());
    CO_ASSERT(first->on_first_key != nullptr);
    CO_ASSERT_OK(co_await first->on_first_key(Context::background(), first_key));
    // The key is stored with an event that shows it; from now on only this key is accepted.
    const auto second = logins.login(node_of(base, "new"));
    CO_ASSERT_OK(second);
    EXPECT_EQ(second->host_key, first_key);
    EXPECT_FALSE(second->on_first_key);
    std::string events;
    for (const auto& [key, record] : base.shared->records)
        if (key.starts_with("events/")) events += record->value;
    EXPECT_THAT(events, HasSubstr("host-key-trusted"));
    EXPECT_THAT(events, HasSubstr(*net::ssh_fingerprint(first_key)));
    // Two that log in at once, and are shown different keys: the second is refused.
    const auto refused = co_await first->on_first_key(Context::background(), other_key);
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::denied);
    CO_ASSERT_OK(co_await first->on_first_key(Context::background(), first_key));
    EXPECT_EQ(logins.login(node_of(base, "new"))->host_key, first_key);
    // A key that a person pins later counts for more than the one that was seen.
    auto pinned = ssh_of("site-key", "", true);
    pinned["host_key"] = other_key;
    CO_ASSERT_OK(co_await put_node(base, "new", pinned));
    EXPECT_EQ(logins.login(node_of(base, "new"))->host_key, other_key);
}

CO_TEST(ResourceLogins, AServerThatIsNotTheLeaderTrustsNoNewHostKey) {
    ResourceFixture base(co_await asio::this_coro::executor);
    const store::Fence deposed{"leader", 1};
    ResourceLogins logins(*base.resources, &deposed);
    CO_ASSERT_OK(co_await put_secret(base, "site-key", {{"private_key", "the key"}}));
    CO_ASSERT_OK(co_await put_node(base, "new", ssh_of("site-key", "", true)));
    const auto login = logins.login(node_of(base, "new"));
    CO_ASSERT_OK(login);
    const auto kept = co_await login->on_first_key(Context::background(), first_key);
    EXPECT_FALSE(kept.ok());
    EXPECT_TRUE(logins.login(node_of(base, "new"))->host_key.empty());
}

CO_TEST(ResourceLogins, UseJumpHostsAndRefuseCycles) {
    ResourceFixture base(co_await asio::this_coro::executor);
    ResourceLogins logins(*base.resources);
    CO_ASSERT_OK(co_await put_secret(base, "site-key", {{"private_key", "the key"}}));
    CO_ASSERT_OK(co_await put_secret(base, "gate-key", {{"private_key", "the gate's key"}}));
    CO_ASSERT_OK(co_await put_node(base, "outer", ssh_of("gate-key", "", true)));
    CO_ASSERT_OK(co_await put_node(base, "inner", ssh_of("gate-key", "outer")));
    CO_ASSERT_OK(co_await put_node(base, "a", ssh_of("site-key", "inner")));
    const auto login = logins.login(node_of(base, "a"));
    CO_ASSERT_OK(login);
    CO_ASSERT(login->jump != nullptr && login->jump->jump != nullptr);
    EXPECT_EQ(login->private_key, "the key");
    EXPECT_EQ(login->jump->private_key, "the gate's key");
    EXPECT_TRUE(login->jump->jump->on_first_key != nullptr) << "each on the way is known by its own rule";
    EXPECT_EQ(login->jump->jump->jump, nullptr);
    // outer → inner → outer
    CO_ASSERT_OK(co_await put_node(base, "outer", ssh_of("gate-key", "inner")));
    const auto circle = logins.login(node_of(base, "a"));
    CO_ASSERT(!circle.ok());
    EXPECT_THAT(circle.error().message, HasSubstr("too many jump hosts"));
    EXPECT_THAT(circle.error().remedy, HasSubstr("remove the cycle"));
    CO_ASSERT_OK(co_await put_node(base, "self", ssh_of("site-key")));
    CO_ASSERT_OK(co_await put_node(base, "self", ssh_of("site-key", "self")));
    EXPECT_FALSE(logins.login(node_of(base, "self")).ok());
    // A jump host without its own key is named.
    CO_ASSERT_OK(co_await put_node(base, "outer", ssh_of("")));
    const auto keyless = logins.login(node_of(base, "a"));
    CO_ASSERT(!keyless.ok());
    EXPECT_THAT(keyless.error().message, HasSubstr("node outer has no key"));
}

} // namespace
} // namespace orrery::drivers::logins_test
