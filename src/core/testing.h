#pragma once

#include "core/ids.h"
#include "core/task.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <string>
#include <system_error>

/// For tests only. CO_TEST gives a coroutine body on a private loop; `loop` is its io_context. Await first, assert after: no
/// co_await inside a gtest macro, and `CO_ASSERT` where a failure must end the body.
#define CO_TEST(suite, name)                                                                                                       \
    static ::orrery::asio::awaitable<void> co_test_##suite##_##name(::orrery::asio::io_context& loop);                             \
    TEST(suite, name) { ::orrery::testing::run_co_test(&co_test_##suite##_##name); }                                               \
    static ::orrery::asio::awaitable<void> co_test_##suite##_##name([[maybe_unused]] ::orrery::asio::io_context& loop)

/// Ends a coroutine test that cannot go on.
#define CO_ASSERT(condition)                                                                                                       \
    if (!(condition)) {                                                                                                            \
        ADD_FAILURE() << "not so: " #condition;                                                                                    \
        co_return;                                                                                                                 \
    }
/// The same for a Result, with its error in words. What is given is evaluated once and may await.
#define CO_ASSERT_OK(...)                                                                                                          \
    if (const auto& co_assert_result_ = (__VA_ARGS__); !co_assert_result_.ok()) {                                                  \
        ADD_FAILURE() << #__VA_ARGS__ " failed: " << co_assert_result_.error().text();                                             \
        co_return;                                                                                                                 \
    }

namespace orrery::testing {

inline void run_co_test(asio::awaitable<void> (*body)(asio::io_context&)) {
    asio::io_context loop(1);
    std::exception_ptr failure;
    asio::co_spawn(loop, body(loop), [&failure](std::exception_ptr exception) { failure = std::move(exception); });
    loop.run();
    if (failure) std::rethrow_exception(failure);
}

/// A folder of its own, removed with all its contents at the end.
class TemporaryFolder {
public:
    TemporaryFolder() : path_(std::filesystem::temp_directory_path() / ("orrery-test-" + random_id())) {
        std::filesystem::create_directories(path_);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

private:
    std::filesystem::path path_;
};

} // namespace orrery::testing
