#pragma once

#include "catalog/fake_membership.h"
#include "catalog/kinds.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "jobs/engine.h"
#include "jobs/fake_artefact_fetcher.h"
#include "jobs/fake_executor.h"
#include "resource/resource_fixture.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

/// For tests: nodes, a catalog, and servers that start and stop, on one virtual clock.
namespace orrery::jobs::testing {

using namespace std::chrono_literals;

struct EngineFixture {
    asio::io_context loop;
    VirtualClock clock;
    orrery::testing::TemporaryFolder folder;
    Pool pool{1};
    FakeExecutor fake{loop.get_executor(), clock};
    FakeExecutor local{loop.get_executor(), clock, "local", Executor::TargetType::server};
    Executors executors;
    FakeArtefactFetcher artefact_fetcher;
    catalog::FakeMembership catalog;
    std::shared_ptr<store::MemoryStore::Shared> shared = std::make_shared<store::MemoryStore::Shared>();
    std::unique_ptr<resource::Sealer> sealer = resource::Sealer::ephemeral();
    Engine::Options options;
    Duration lease = 10s;                               ///< of servers that start from now on
    std::function<void(resource::Registry&)> add_kinds; ///< of modules that depend on this one

    /// One server. Its attempts survive its destruction.
    struct Server {
        EngineFixture& fixture;
        store::MemoryStore store;
        resource::Registry registry;
        std::unique_ptr<resource::Resources> resources;
        std::unique_ptr<store::Leadership> leadership;
        std::unique_ptr<Engine> engine;
        TaskGroup group;

        explicit Server(EngineFixture& of, std::string name = "s")
            : fixture(of), store(of.loop.get_executor(), of.shared), group(of.loop.get_executor()) {
            registry.add(resource::node_kind());
            registry.add(resource::secret_kind());
            registry.add(resource::event_kind());
            registry.add(job_kind(of.executors, of.catalog));
            registry.add(rolling_rule_kind());
            catalog::add_kinds(registry);
            add_users(registry);
            if (of.add_kinds) of.add_kinds(registry);
            resources = std::make_unique<resource::Resources>(store, registry, *of.sealer, of.clock);
            store::Leadership::Options lead;
            lead.server = name;
            lead.ttl = of.lease;
            lead.clock = &of.clock;
            leadership = std::make_unique<store::Leadership>(of.loop.get_executor(), store, lead);
            auto with = of.options;
            with.server = name;
            engine = std::make_unique<Engine>(of.loop.get_executor(), *resources, *leadership, of.catalog, of.executors, of.pool,
                                              of.clock, with);
            group.spawn(leadership->run(Context::background()));
            group.spawn(engine->run(Context::background()));
        }
        const resource::Kind& kind(std::string_view name) const { return *registry.find(name); }
    };
    std::unique_ptr<Server> server;

    EngineFixture() {
        executors.add(fake);
        executors.add(local);
        options.folder = folder.path();
        options.artefact_fetcher = &artefact_fetcher;
        options.report = 100s; // keeps the clock free of small steps
    }
    ~EngineFixture() { stop(); }

    /// Runs everything that is ready, without advancing the clock. Work on the pool is ready too: its only thread runs tasks in
    /// order, so an empty task that has ended shows that all tasks before it have.
    void run_ready() {
        for (;;) {
            loop.restart();
            if (loop.poll() > 0) continue;
            std::promise<void> drained;
            asio::post(pool, [&] { drained.set_value(); });
            drained.get_future().wait();
            loop.restart();
            if (loop.poll() == 0) return;
        }
    }
    /// Advances the clock until the condition holds; false where it does not within `limit`.
    template <class F> bool until(F holds, Duration limit = 24h) {
        const auto end = clock.steady() + limit;
        for (;;) {
            run_ready();
            if (holds()) return true;
            if (clock.steady() >= end || !clock.advance_to_next()) return false;
        }
    }
    void pass(Duration time) {
        const auto end = clock.steady() + time;
        asio::co_spawn(loop, clock.sleep_until(end), asio::detached);
        until([&] { return clock.steady() >= end; }, time + 1s);
    }
    template <class T> Result<T> wait(Task<T> work) {
        auto result = std::make_shared<std::optional<Result<T>>>();
        auto body = [](Task<T> inner, std::shared_ptr<std::optional<Result<T>>> into) -> asio::awaitable<void> {
            *into = co_await std::move(inner);
        };
        asio::co_spawn(loop, body(std::move(work), result), asio::detached);
        until([&] { return result->has_value(); });
        return result->has_value() ? std::move(**result) : Result<T>(Error{Code::timeout, "never"});
    }
    void start(const std::string& name = "s") {
        server = std::make_unique<Server>(*this, name);
        until([&] { return server->leadership->leads(); });
        run_ready();
    }
    void stop() { stop(server); }
    void stop(std::unique_ptr<Server>& which) {
        if (!which) return;
        bool over = false;
        auto body = [](TaskGroup& group, bool& flag) -> asio::awaitable<void> {
            co_await group.stop();
            flag = true;
        };
        asio::co_spawn(loop, body(which->group, over), asio::detached);
        for (int i = 0; i < 10'000 && !over; ++i) run_ready();
        EXPECT_TRUE(over) << "the server does not stop";
        which.reset();
    }
    /// The leader's lease ends without its knowledge, as when it hangs, and `next` leads.
    void depose(Server& next) {
        const auto leader_lease = shared->records.at("sys/leader/controllers")->lease;
        auto revoked = wait(next.store.revoke(Context::background(), leader_lease));
        EXPECT_TRUE(revoked.ok());
        EXPECT_TRUE(until([&] { return next.leadership->leads(); }, 1min));
    }
    void node(const std::string& name, std::map<std::string, std::string> labels) {
        auto made = wait(server->resources->create(Context::background(), server->kind("Node"),
                                                   resource::testing::a_node(name, std::move(labels)), {}));
        EXPECT_TRUE(made.ok()) << made.error().text();
    }
    void nodes(const std::string& role, int count) {
        for (int i = 1; i <= count; ++i) node(fmt::format("{}-{}", role, i), {{"role", role}});
    }
    Result<resource::Outcome> apply(const std::string& kind, const std::string& name, std::string_view yaml) {
        TRY(auto documents, parse_yaml(yaml));
        return wait(server->resources->create(Context::make("tester"), server->kind(kind),
                                              resource::testing::an_object(kind, name, documents.at(0).value.as_object()), {}));
    }
    /// Submits a job, which must be accepted.
    void submit(const std::string& name, std::string_view yaml) {
        auto made = apply("Job", name, yaml);
        ASSERT_TRUE(made.ok()) << made.error().text()
                               << (made.error().fields.empty() ? "" : made.error().fields[0].path + made.error().fields[0].message);
        until([&] { return server->engine->find(name).ok(); });
    }
    Result<Unit> command(const std::string& job, JobCommand command, const std::string& actor = "tester") {
        return wait(server->engine->command(Context::make(actor), job, std::move(command)));
    }
    std::shared_ptr<const JobRun> job(const std::string& name) {
        auto found = server->engine->find(name);
        EXPECT_TRUE(found.ok()) << found.error().text();
        return found.ok() ? *found : nullptr;
    }
    JobState state(const std::string& name) { return job(name)->scheduler->job().state; }
    const TaskRecord& record(const std::string& name, std::string_view task) {
        last_ = job(name);
        return last_->scheduler->record(last_->plan.find(task).value());
    }
    bool reaches(const std::string& name, JobState wanted, Duration limit = 24h) {
        return until([&] { return state(name) == wanted; }, limit);
    }

private:
    std::shared_ptr<const JobRun> last_;
};

} // namespace orrery::jobs::testing
