// bench_jobs run|resume FOLDER [tasks=N] [slots=N] [die_at=PERCENT]: a durable graph of empty tasks, ten for each node, sequential
// on the node; prints one measurement as a line of JSON. With die_at the process kills itself at that point; `resume` then
// continues.

#include "core/log.h"
#include "core/text.h"
#include "jobs/engine.h"
#include "resource/kinds.h"
#include "store/sqlite/sqlite_store.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace orrery::bench {
namespace {

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

double now_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double resident_bytes() {
    std::ifstream in("/proc/self/statm");
    double pages = 0, resident = 0;
    in >> pages >> resident;
    return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// Does nothing and succeeds immediately.
class NoOp final : public jobs::Executor {
public:
    std::function<void()> began;
    std::string_view name() const override { return "noop"; }
    TargetType target_type() const override { return TargetType::node; }
    Result<Unit> check(const json::value&) const override { return Unit{}; }
    Task<jobs::Outcome> start(Context, const jobs::Attempt&, jobs::Output&) override {
        if (began) began();
        co_return jobs::Outcome::success(jobs::Outcome::Change::unchanged);
    }
    Task<jobs::Reattached> reattach(Context, const jobs::Attempt&, jobs::Offsets, jobs::Output&) override {
        co_return jobs::Reattached{jobs::Reattached::State::ended, jobs::Outcome::success(), {}};
    }
    Task<Unit> cancel(Context, const jobs::Attempt&) override { co_return Unit{}; }
    Task<Unit> clean_up(Context, const jobs::Attempt&) override { co_return Unit{}; }
    Task<jobs::Preview> plan(Context, const jobs::Attempt&) override { co_return jobs::Preview{}; }
};

class NoServices final : public jobs::Membership {
public:
    Result<jobs::Members> members(std::string_view, std::string_view) const override { return jobs::Members{}; }
    std::shared_ptr<void> subscribe(std::function<void(const std::string&)>) override { return {}; }
    std::shared_ptr<void> follow(std::string_view) override { return {}; }
};

struct Load {
    std::string mode, folder;
    int tasks = 1000, slots = 64, die_at = 0;
};

double percentile(std::vector<double>& values, double share) {
    if (values.empty()) return 0;
    const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
    return values[at];
}

Task<Unit> make_nodes(Context ctx, resource::Resources& resources, const resource::Kind& kind, int from, int to) {
    for (int i = from; i < to; ++i) {
        resource::Object node;
        node.kind = "Node";
        node.name = fmt::format("n{:06}", i);
        node.labels["role"] = "n";
        node.spec = {{"address", "192.0.2.1"}};
        CO_TRY(std::ignore, co_await resources.create(ctx, kind, std::move(node), {}));
    }
    co_return Unit{};
}

asio::awaitable<void> go(asio::io_context& loop, Load load, int& code) {
    const auto ctx = Context::background();
    const auto executor = loop.get_executor();
    const auto begun = now_seconds();
    Pool pool(1);
    NoOp noop;
    NoServices services;
    jobs::Executors executors;
    executors.add(noop);
    store::SqliteOptions options;
    options.path = load.folder + "/store.db";
    auto store = co_await store::open_sqlite(ctx, executor, std::move(options));
    if (!store.ok()) {
        fmt::print(stderr, "{}\n", store.error().text());
        co_return;
    }
    resource::Registry registry;
    registry.add(resource::node_kind());
    registry.add(resource::secret_kind());
    registry.add(resource::event_kind());
    registry.add(jobs::job_kind(executors, services));
    registry.add(jobs::rolling_rule_kind());
    auto sealer = resource::Sealer::ephemeral();
    auto resources = std::make_unique<resource::Resources>(**store, registry, *sealer, real_clock());
    const auto hosts = load.tasks / 10;
    if (load.mode == "run") {
        TaskGroup makers(executor);
        for (int i = 0; i < 64; ++i) {
            auto body = [](Task<Unit> work) -> asio::awaitable<void> {
                auto made = co_await std::move(work);
                if (!made.ok()) fmt::print(stderr, "{}\n", made.error().text());
            };
            makers.spawn(body(make_nodes(ctx, *resources, *registry.find("Node"), hosts * i / 64, hosts * (i + 1) / 64)));
        }
        co_await makers.join();
    }
    store::Leadership leadership(executor, **store, {.server = "bench", .exclusive = true});
    jobs::Engine engine(executor, *resources, leadership, services, executors, pool, real_clock(),
                        {.slots = load.slots, .folder = load.folder});
    TaskGroup group(executor);
    Notifier progress(executor);
    std::vector<double> latencies;
    int starts = 0;
    double first_start = 0;
    const auto kill_after = load.die_at > 0 ? load.tasks * load.die_at / 100 : 0;
    noop.began = [&] {
        if (starts++ == 0) first_start = now_seconds();
        if (kill_after > 0 && starts >= kill_after) ::_exit(9);
    };
    engine.on_dispatch([&](Duration time) { latencies.push_back(std::chrono::duration<double, std::milli>(time).count()); });
    group.spawn(leadership.run(ctx));
    group.spawn(engine.run(ctx));
    std::ignore = co_await leadership.wait_until_elected(ctx);
    const auto memory = resident_bytes();
    if (load.mode == "run") {
        json::array tasks;
        for (int i = 0; i < 10; ++i) {
            json::object task{{"name", fmt::format("t{}", i)}, {"on", "n"}, {"run", json::object{{"noop", json::object{}}}}};
            if (i > 0) {
                task["after"] = fmt::format("t{}", i - 1);
                task["same_host"] = true;
            }
            tasks.push_back(std::move(task));
        }
        resource::Object job;
        job.kind = "Job";
        job.name = "bench";
        job.spec = {{"tasks", std::move(tasks)}, {"limits", json::object{{"slots", load.slots}}}};
        auto made = co_await resources->create(ctx, *registry.find("Job"), std::move(job), {});
        if (!made.ok()) {
            fmt::print(stderr, "{}\n", made.error().text());
            co_return;
        }
    }
    const auto submitted = now_seconds();
    const auto cpu = cpu_seconds();
    double most_memory = memory;
    for (;;) {
        std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(20));
        most_memory = std::max(most_memory, resident_bytes());
        auto object = resources->get(*registry.find("Job"), "bench");
        if (!object.ok()) break;
        const auto* state = object->status.if_contains("state");
        if (state != nullptr && (*state == "succeeded" || *state == "failed")) {
            code = *state == "succeeded" ? 0 : 1;
            break;
        }
    }
    const auto took = now_seconds() - submitted;
    double transitions = 0;
    for (const auto& [name, value] : engine.metrics())
        if (name == "orrery_jobs_transitions_total") transitions = value;
    fmt::print("{}\n", to_json_text(json::object{{"tasks", load.tasks},
                                                 {"slots", load.slots},
                                                 {"seconds", took},
                                                 {"transitions", transitions},
                                                 {"rate", transitions / took},
                                                 {"cpu_us_per_task", (cpu_seconds() - cpu) * 1e6 / std::max(1, starts)},
                                                 {"dispatch_p50_ms", percentile(latencies, 0.5)},
                                                 {"dispatch_p99_ms", percentile(latencies, 0.99)},
                                                 {"bytes_per_task", (most_memory - memory) / load.tasks},
                                                 {"resume_seconds", first_start - begun},
                                                 {"starts", starts}}));
    co_await group.stop();
    resources.reset();
    co_await (*store)->stop();
    pool.join();
}

} // namespace
} // namespace orrery::bench

int main(int argc, char** argv) {
    using namespace orrery::bench;
    if (argc < 3) {
        fmt::print(stderr, "bench_jobs run|resume FOLDER [tasks=N] [slots=N] [die_at=PERCENT]\n");
        return 2;
    }
    Load load;
    load.mode = argv[1];
    load.folder = argv[2];
    for (int i = 3; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const auto name = argument.substr(0, argument.find('='));
        const auto* number = name.size() < argument.size() ? argv[i] + name.size() + 1 : "";
        if (name == "tasks")
            load.tasks = std::atoi(number);
        else if (name == "slots")
            load.slots = std::atoi(number);
        else if (name == "die_at")
            load.die_at = std::atoi(number);
        else {
            fmt::print(stderr, "unknown: {}\n", argument);
            return 2;
        }
    }
    orrery::asio::io_context loop(1);
    int code = 1;
    orrery::log::configure({.level = orrery::log::Level::warn});
    orrery::asio::co_spawn(loop, go(loop, load, code), [](std::exception_ptr failure) {
        if (failure) std::rethrow_exception(failure);
    });
    loop.run();
    return code;
}
