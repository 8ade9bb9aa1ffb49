#include "core/test_fixture.h"
#include "identity/password.h"
#include "identity/password_hasher.h"

#include <fmt/format.h>

namespace orrery::identity {

namespace {

asio::awaitable<void> verify_into(PasswordHasher& hasher, std::vector<Result<bool>>& results) {
    results.push_back(co_await hasher.verify(Context::background(), std::string(dummy_hash()), "guess"));
}

} // namespace

TEST(Password, IsHashedWithArgon2idAndItsOwnSalt) {
    const auto hash = hash_password("correct horse battery");
    EXPECT_TRUE(hash.starts_with("$argon2id$"));
    EXPECT_NE(hash, hash_password("correct horse battery"));
    EXPECT_TRUE(verify_password(hash, "correct horse battery"));
    EXPECT_FALSE(verify_password(hash, "correct horse batterz"));
    EXPECT_FALSE(verify_password(hash, ""));
}

TEST(Password, AnInvalidHashMatchesNothing) {
    for (const auto* text : {"", "x", "$argon2id$", "$argon2id$v=19$m=65536,t=2,p=1$AAAA$BBBB", "correct horse battery"})
        EXPECT_FALSE(verify_password(text, text)) << text;
    EXPECT_FALSE(verify_password("$argon2id$" + std::string(1000, 'x'), "x"));
    // Truncations of a real one.
    const auto hash = hash_password("correct horse battery");
    for (std::size_t length = 0; length < hash.size(); length += 7)
        EXPECT_FALSE(verify_password(hash.substr(0, length), "correct horse battery"));
}

TEST(Password, TheDummyHashCostsAsMuchAsARealOne) {
    const auto limits = [](std::string_view hash) { return std::string(hash.substr(0, hash.find('$', hash.find("m=")))); };
    EXPECT_EQ(limits(dummy_hash()), limits(hash_password("x")));
    EXPECT_FALSE(verify_password(dummy_hash(), ""));
}

TEST(Password, QualityIsLengthAndNotTheName) {
    EXPECT_TRUE(check_password_quality("alice", "ten chars!").ok());
    EXPECT_TRUE(check_password_quality("alice", "zehn Zeichä").ok());
    EXPECT_TRUE(check_password_quality("alice", std::string(255, 'x') + "y").ok());
    for (const auto& bad : {std::string(), std::string("nine char"), std::string(256, 'x') + "y", std::string("Administrator-One"),
                            std::string(20, 'a'), std::string("abc\0defghijkl", 13), std::string("ääääääääx")})
        EXPECT_FALSE(check_password_quality("administrator-one", bad).ok()) << bad;
    const auto refused = check_password_quality("alice", "short");
    EXPECT_EQ(refused.error().code, Code::invalid);
    EXPECT_EQ(refused.error().fields.front().path, "spec.password");
}

CO_TEST(PasswordHasher, HashesAndVerifies) {
    PasswordHasher hasher(2, 4);
    auto hash = co_await hasher.hash(Context::background(), "correct horse battery");
    CO_ASSERT_OK(hash);
    auto right = co_await hasher.verify(Context::background(), *hash, "correct horse battery");
    CO_ASSERT_OK(right);
    EXPECT_TRUE(*right);
    auto wrong = co_await hasher.verify(Context::background(), *hash, "incorrect horse");
    CO_ASSERT_OK(wrong);
    EXPECT_FALSE(*wrong);
}

CO_TEST(PasswordHasher, ThrottlesWhenItsQueueIsFull) {
    PasswordHasher hasher(2, 3);
    std::vector<Result<bool>> results;
    TaskGroup group(loop.get_executor());
    for (int i = 0; i < 20; ++i) group.spawn(verify_into(hasher, results));
    co_await group.join();
    const auto throttled =
        std::count_if(results.begin(), results.end(), [](const auto& r) { return !r.ok() && r.error().code == Code::throttled; });
    EXPECT_EQ(throttled, 15);
    EXPECT_EQ(std::count_if(results.begin(), results.end(), [](const auto& r) { return r.ok() && !*r; }), 5);
    // It accepts new work afterwards.
    auto after = co_await hasher.verify(Context::background(), std::string(dummy_hash()), "guess");
    EXPECT_TRUE(after.ok());
}

CO_TEST(PasswordHasher, ACancelledWaitReleasesItsSlot) {
    PasswordHasher hasher(1, 1);
    std::vector<Result<bool>> results;
    TaskGroup running(loop.get_executor()), waiting(loop.get_executor());
    running.spawn(verify_into(hasher, results));
    waiting.spawn(verify_into(hasher, results));
    std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(1));
    co_await waiting.stop();
    auto after = co_await hasher.verify(Context::background(), std::string(dummy_hash()), "guess");
    EXPECT_TRUE(after.ok());
    co_await running.join();
}

} // namespace orrery::identity
