// Many writers on one SQLite store, to be killed at any instant: store_crash_writer PATH WRITERS
//
// Each writer counts in its own key, by compare-and-set, and in the same transaction creates a key that must not exist yet and
// removes one it made ten steps ago. Every acknowledged step is printed on standard output: "ack WRITER COUNT REVISION". At the
// start it prints what the store holds: "has WRITER COUNT", "steps COUNT" for the keys made by steps, then "ready REVISION". It
// ends by itself only when something is wrong.

#include "store/sqlite/sqlite_store.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include <cstdlib>
#include <unistd.h>

namespace orrery::store {
namespace {

void tell(const std::string& line) {
    // One write a line: a kill never leaves half of one in the pipe.
    if (::write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::_Exit(0);
}

[[noreturn]] void give_up(const std::string& why) {
    tell(fmt::format("error {}\n", why));
    std::_Exit(1);
}

std::string counter_of(int writer) { return fmt::format("counter/{:03}", writer); }
std::string step_of(int writer, int count) { return fmt::format("step/{:03}/{:09}", writer, count); }

asio::awaitable<void> count(Store& store, int writer) {
    const auto ctx = Context::background();
    for (;;) {
        const auto record = store.find(counter_of(writer));
        const int next = record ? std::atoi(record->value.c_str()) + 1 : 1;
        Transaction step;
        step.expect(counter_of(writer), record ? record->modified : 0).put(counter_of(writer), std::to_string(next));
        step.expect(step_of(writer, next), 0).put(step_of(writer, next), std::string(300, 's'));
        if (next > 10) step.remove(step_of(writer, next - 10));
        auto revision = co_await store.apply(ctx, std::move(step));
        if (!revision.ok()) give_up(revision.error().text());
        tell(fmt::format("ack {} {} {}\n", writer, next, *revision));
    }
}

asio::awaitable<void> run(asio::io_context& loop, std::string path, int writers) {
    // Small windows, so that garbage is collected and the log is folded in while we are being killed.
    SqliteOptions options{.path = path,
                          .mirror = {.max_history_events = 3'000},
                          .min_superseded_rows = 1'000,
                          .superseded_ratio = 1,
                          .max_deletions_per_commit = 200,
                          .wal_pages = 128};
    auto opened = co_await open_sqlite(Context::background(), loop.get_executor(), std::move(options));
    if (!opened.ok()) give_up(opened.error().text());
    auto& store = **opened;
    std::string state;
    for (int writer = 0; writer < writers; ++writer) {
        const auto record = store.find(counter_of(writer));
        state += fmt::format("has {} {}\n", writer, record ? record->value : "0");
    }
    tell(state + fmt::format("steps {}\nready {}\n", store.count("step/"), store.revision()));
    TaskGroup group(loop.get_executor());
    for (int writer = 0; writer < writers; ++writer) group.spawn(count(store, writer));
    co_await group.join();
}

} // namespace
} // namespace orrery::store

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    orrery::asio::io_context loop(1);
    orrery::asio::co_spawn(loop, orrery::store::run(loop, argv[1], std::atoi(argv[2])), [](std::exception_ptr) { std::_Exit(1); });
    loop.run();
}
