#pragma once

#include "api/api.h"
#include "catalog/fake_membership.h"
#include "catalog/kinds.h"
#include "core/test_fixture.h"
#include "fleet/kinds.h"
#include "fleet/planner.h"
#include "gslb/model/kinds.h"
#include "gslb/observe/externaldns_source.h"
#include "gslb/observe/health_source.h"
#include "gslb/runtime/controller.h"
#include "gslb/runtime/explain.h"
#include "gslb/runtime/fake_ports.h"
#include "health/vantages/health_aggregator.h"
#include "identity/identity.h"
#include "jobs/engine.h"
#include "jobs/explain.h"
#include "jobs/fake_artefact_fetcher.h"
#include "jobs/fake_executor.h"
#include "jobs/templates/controller.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "resource/explain.h"
#include "resource/kinds.h"
#include "resource/resources.h"
#include "store/sqlite/sqlite_store.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include <memory>
#include <string>

/// For tests: the API over a complete server without app, on SQLite in a temporary folder, with an HTTP client.
namespace orrery::api::testing {

class NoAdmin final : public StoreAdmin {
public:
    std::string engine() const override { return "sqlite"; }
    std::string location() const override { return "sqlite:///test"; }
    Task<Backup> backup(Context ctx) override { co_return Error{Code::unsupported, "no backup in this test"}; }
    Result<Unit> check_target(const std::string& to) const override {
        if (to.find('@') != std::string::npos) return Error{Code::invalid, "the URL holds a password"};
        return Unit{};
    }
    Task<Migration> migrate(Context ctx, std::string to, std::function<void(std::int64_t, std::int64_t)> progress) override {
        co_return Error{Code::invalid, "no migration in this test"};
    }
};

struct Answer {
    int status = 0;
    json::value body;
    net::Headers headers;
    std::string text;
    std::string code() const {
        return body.is_object() && body.as_object().contains("code") ? std::string(body.at("code").as_string()) : "";
    }
};

struct ServerFixture {
    orrery::testing::TemporaryFolder folder;
    asio::any_io_executor executor;
    VirtualClock clock;
    Pool pool{2};
    std::unique_ptr<resource::Sealer> sealer = resource::Sealer::ephemeral();
    std::unique_ptr<store::Store> store;
    resource::Registry registry;
    std::unique_ptr<resource::Resources> resources;
    std::unique_ptr<identity::Identity> identity;
    NoAdmin admin;
    ApiOptions api_options;                               ///< used by `start`
    std::unique_ptr<jobs::FakeExecutor> executor_of_jobs; ///< "fake"
    jobs::Executors executors;
    catalog::FakeMembership membership;
    jobs::FakeArtefactFetcher artefact_fetcher;
    std::unique_ptr<store::Leadership> leadership;
    std::unique_ptr<jobs::Engine> engine;
    std::unique_ptr<jobs::TemplateController> templates;
    gslb::FakeWatcher watcher;
    std::unique_ptr<gslb::Controller> balancing;
    std::unique_ptr<TaskGroup> group;
    std::unique_ptr<health::HealthAggregator> aggregator; ///< makes no probes
    resource::Explainers explainers;
    std::unique_ptr<fleet::Planner> fleet_planner;
    std::unique_ptr<Api> api;
    std::unique_ptr<net::HttpServer> http_server;
    std::unique_ptr<net::HttpClient> client;
    std::string admin_token;

    /// Starts the server and logs in as admin.
    Task<Unit> start(asio::any_io_executor on) {
        executor = on;
        const auto ctx = Context::background();
        store::SqliteOptions options;
        options.path = folder / "store.db";
        CO_TRY(store, co_await store::open_sqlite(ctx, on, std::move(options)));
        registry.add(resource::node_kind());
        registry.add(resource::secret_kind());
        registry.add(resource::event_kind());
        registry.add(identity::user_kind());
        registry.add(identity::token_kind(clock));
        executor_of_jobs = std::make_unique<jobs::FakeExecutor>(on, clock);
        executors.add(*executor_of_jobs);
        registry.add(jobs::job_kind(executors, membership));
        registry.add(jobs::rolling_rule_kind());
        registry.add(jobs::job_template_kind(executors, clock));
        catalog::add_kinds(registry);
        gslb::add_kinds(registry);
        fleet::add_kinds(registry);
        resources = std::make_unique<resource::Resources>(*store, registry, *sealer, clock);
        identity = std::make_unique<identity::Identity>(*resources, clock, identity::IdentityOptions{});
        CO_TRY(std::ignore, co_await identity->ensure_admin(ctx, "correct horse battery"));
        api = std::make_unique<Api>(on, *resources, *identity, admin, clock, [this] {
            auto options = api_options;
            options.version = options.server = "test";
            options.heartbeat = std::chrono::milliseconds(50);
            return options;
        }());
        leadership = std::make_unique<store::Leadership>(on, *store, store::Leadership::Options{.server = "test", .clock = &clock});
        engine =
            std::make_unique<jobs::Engine>(on, *resources, *leadership, membership, executors, pool, clock,
                                           jobs::Engine::Options{.folder = folder.path(), .artefact_fetcher = &artefact_fetcher});
        group = std::make_unique<TaskGroup>(on);
        group->spawn(leadership->run(ctx));
        group->spawn(engine->run(ctx));
        templates = std::make_unique<jobs::TemplateController>(*resources, *leadership, clock);
        group->spawn(templates->run(ctx));
        api->add_jobs(*engine, *templates);
        aggregator = std::make_unique<health::HealthAggregator>(on, clock, health::HealthAggregator::Options{}, nullptr);
        api->add_health(*aggregator);
        balancing = std::make_unique<gslb::Controller>(on, *resources, *leadership, clock, watcher, nullptr,
                                                       gslb::Controller::Options{.server = "test", .gather = {}});
        group->spawn(balancing->run(ctx));
        api->add_gslb(*balancing);
        fleet_planner = std::make_unique<fleet::Planner>(*resources, pool);
        api->add_fleet(*fleet_planner);
        explainers.add("Node", resource::Explainers::History::no, resource::node_explainer(*resources));
        jobs::add_explainers(explainers, *resources, *engine);
        gslb::add_explainers(explainers, *resources, *balancing);
        fleet::add_explainers(explainers, *fleet_planner);
        api->add_explanations(explainers);
        net::HttpServer::Options server_options;
        server_options.on_error = api->on_error();
        server_options.on_done = api->on_done();
        http_server = std::make_unique<net::HttpServer>(on, std::move(server_options), api->handler());
        CO_TRY(std::ignore, http_server->start());
        client = std::make_unique<net::HttpClient>(on, net::HttpClient::Options{});
        auto login = co_await call("POST", "/v1/login", R"({"user":"admin","password":"correct horse battery"})", "");
        if (login.status != 200) co_return Error{Code::internal, "the admin cannot log in: " + login.text};
        admin_token = login.body.at("token").as_string();
        co_return Unit{};
    }

    asio::awaitable<void> stop() {
        co_await client->stop();
        co_await http_server->stop(std::chrono::seconds(1));
        co_await api->stop();
        co_await group->stop();
        http_server.reset();
        api.reset();
        aggregator.reset();
        balancing.reset();
        templates.reset();
        engine.reset();
        leadership.reset();
        identity.reset();
        resources.reset();
        co_await store->stop();
        pool.join();
    }

    net::ClientRequest request(std::string method, const std::string& target, std::string body, const std::string& token) const {
        net::ClientRequest out;
        out.method = std::move(method);
        out.url = {"http", "127.0.0.1", http_server->port(), target};
        if (!token.empty()) out.headers.set("Authorization", "Bearer " + token);
        out.body = std::move(body);
        return out;
    }

    asio::awaitable<Answer> call(std::string method, std::string target, std::string body, std::string token,
                                 net::Headers headers = {}) {
        auto out = request(std::move(method), target, std::move(body), token);
        for (const auto& [name, value] : headers) out.headers.set(name, value);
        auto response = co_await client->send(Context::background(), std::move(out));
        Answer answer;
        if (!response.ok()) {
            answer.text = response.error().text();
            co_return answer;
        }
        answer.status = response->status;
        answer.headers = response->headers;
        answer.text = response->body;
        boost::system::error_code error;
        answer.body = json::parse(response->body, error);
        co_return answer;
    }
    asio::awaitable<Answer> get(std::string target) { return call("GET", std::move(target), {}, admin_token); }
    asio::awaitable<Answer> put(std::string target, std::string body) {
        return call("PUT", std::move(target), std::move(body), admin_token);
    }
    asio::awaitable<Answer> post(std::string target, std::string body) {
        return call("POST", std::move(target), std::move(body), admin_token);
    }

    /// A token of a fresh user with this role.
    asio::awaitable<std::string> token_for(std::string user, std::string role) {
        std::ignore = co_await post(
            "/v1/users", json::serialize(json::object{
                             {"name", user}, {"spec", json::object{{"role", role}, {"password", "a long enough password"}}}}));
        auto made = co_await post(
            "/v1/tokens",
            json::serialize(json::object{{"name", user + "-token"}, {"spec", json::object{{"user", user}, {"role", role}}}}));
        if (made.status != 201) {
            ADD_FAILURE() << made.text;
            co_return "";
        }
        co_return std::string(made.body.at("once").at("token").as_string());
    }
};

} // namespace orrery::api::testing

/// A test with a running server: `CO_SERVER_TEST(Api, DoesThis) { auto answer = co_await server.get("/v1/nodes"); ... }`
#define CO_SERVER_TEST(suite, name)                                                                                                \
    static ::orrery::asio::awaitable<void> server_test_##suite##_##name(::orrery::api::testing::ServerFixture& server);            \
    CO_TEST(suite, name) {                                                                                                         \
        ::orrery::api::testing::ServerFixture server;                                                                              \
        auto started = co_await server.start(loop.get_executor());                                                                 \
        CO_ASSERT_OK(started);                                                                                                     \
        co_await server_test_##suite##_##name(server);                                                                             \
        co_await server.stop();                                                                                                    \
    }                                                                                                                              \
    static ::orrery::asio::awaitable<void> server_test_##suite##_##name(::orrery::api::testing::ServerFixture& server)
