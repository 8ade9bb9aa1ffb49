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

/// For tests only. CO_TEST defines a test whose body is a coroutine on its own loop; `loop` is its io_context. Do not use
/// co_await inside gtest macros: await first, then assert. Use CO_ASSERT where a failure must end the test.
#define CO_TEST(suite, name)                                                                                                       \
    static ::orrery::asio::awaitable<void> co_test_##suite##_##name(::orrery::asio::io_context& loop);                             \
    TEST(suite, name) { ::orrery::testing::run_co_test(&co_test_##suite##_##name); }                                               \
    static ::orrery::asio::awaitable<void> co_test_##suite##_##name([[maybe_unused]] ::orrery::asio::io_context& loop)

/// Ends a coroutine test when the condition is false.
#define CO_ASSERT(condition)                                                                                                       \
    if (!(condition)) {                                                                                                            \
        ADD_FAILURE() << "failed: " #condition;                                                                                    \
        co_return;                                                                                                                 \
    }
/// Ends a coroutine test when the Result is an error, and shows it. The argument is evaluated once and may contain co_await.
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

/// A new folder that is removed with its contents in the destructor.
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
