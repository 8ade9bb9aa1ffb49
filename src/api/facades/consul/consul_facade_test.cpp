#include "api/facades/consul/consul_facade.h"
#include "api/facades/consul/facade_state.h"
#include "core/json_fields.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "dns/message.h"
#include "identity/identity_fixture.h"
#include "net/http_client.h"

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::api::consul {

using namespace std::chrono_literals;

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// The view over a store in memory, behind a real port.
struct Site {
    explicit Site(asio::any_io_executor executor, resource::Role anonymous = resource::Role::operator_,
                  std::size_t max_blocked = 100)
        : fixture(executor),
          catalog_kinds(add_kinds(fixture.registry)),
          catalog(fixture.store),
          leadership(executor, fixture.store, {.server = "agent1", .clock = &fixture.clock}),
          checker(executor, *fixture.resources, catalog, leadership, fixture.clock, {}),
          view(executor, *fixture.resources, catalog, checker, *fixture.identity, leadership, fixture.clock,
               {.node = "agent1", .address = "127.0.0.1", .anonymous = anonymous, .max_blocked = max_blocked, .version = "test"}),
          server(
              executor,
              {.max_body = ConsulFacade::max_body, .request_timeout = ConsulFacade::request_timeout, .on_error = view.on_error()},
              view.handler()),
          client(executor, {}),
          group(executor) {
        EXPECT_TRUE(server.start().ok());
    }
    static bool add_kinds(resource::Registry& registry) {
        catalog::add_kinds(registry);
        return true;
    }
    asio::awaitable<void> start() {
        group.spawn(leadership.run(Context::make("test")));
        group.spawn(checker.run(Context::make("test")));
        group.spawn(view.run(Context::make("test")));
        co_await run_pending_work();
    }
    static asio::awaitable<void> run_pending_work() {
        for (int i = 0; i < 150; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    }
    asio::awaitable<void> stop() {
        co_await server.stop(1s);
        co_await client.stop();
        co_await group.stop();
    }
    Task<net::ClientResponse> ask(std::string method, std::string path, std::string body = {}, net::Headers headers = {}) {
        net::ClientRequest request;
        request.method = std::move(method);
        request.url = *net::parse_url(fmt::format("http://127.0.0.1:{}/v1/{}", server.port(), path));
        request.headers = std::move(headers);
        request.body = std::move(body);
        return client.send(Context::make("test").with_timeout(20s), std::move(request));
    }
    asio::awaitable<std::string> text(std::string method, std::string path, std::string body = {}) {
        auto answer = co_await ask(std::move(method), std::move(path), std::move(body));
        if (!answer.ok()) co_return answer.error().text();
        co_await run_pending_work();
        co_return fmt::format("{} {}", answer->status, answer->body);
    }
    asio::awaitable<void> expect(std::string expected, std::string method, std::string path, std::string body = {}) {
        const auto asked = method + " " + path;
        const auto seen = co_await text(std::move(method), std::move(path), std::move(body));
        EXPECT_EQ(seen, expected) << asked;
    }
    asio::awaitable<void> expect_part(std::string expected, std::string method, std::string path, std::string body = {}) {
        const auto asked = method + " " + path;
        const auto seen = co_await text(std::move(method), std::move(path), std::move(body));
        EXPECT_THAT(seen, HasSubstr(expected)) << asked;
    }
    asio::awaitable<json::value> get(std::string path) {
        auto answer = co_await ask("GET", std::move(path));
        co_return answer.ok() ? parse_json(answer->body).value_or(json::value(answer->body)) : json::value(answer.error().text());
    }
    std::vector<std::string> dig(std::string_view name, std::uint16_t type, std::optional<std::uint16_t> edns = 1232,
                                 bool tcp = false) {
        const auto query = dns::write_query(1, *dns::Name::from_text(name), type, edns);
        std::vector<std::uint8_t> out(tcp ? 65535 : 4096);
        dns::Client asker{.transport = tcp ? dns::Client::Transport::tcp : dns::Client::Transport::udp};
        out.resize(view.dns()->respond(query, asker, out));
        const auto message = dns::read_message(out);
        if (!message.ok()) return {"broken"};
        std::vector<std::string> lines{fmt::format("rcode {}{}{}", static_cast<int>(message->rcode),
                                                   message->authoritative ? " aa" : "", message->truncated ? " tc" : "")};
        for (const auto* section : {&message->answer, &message->authority, &message->additional})
            for (const auto& record : *section) lines.push_back(record.to_text());
        return lines;
    }

    identity::testing::IdentityFixture fixture;
    bool catalog_kinds;
    catalog::Catalog catalog;
    store::Leadership leadership;
    catalog::Checker checker;
    ConsulFacade view;
    net::HttpServer server;
    net::HttpClient client;
    TaskGroup group;
};

constexpr auto db = R"({"Node":"n1","Address":"10.0.0.5","Service":{"ID":"db1","Service":"db","Tags":["primary"],"Port":3306},
  "Check":{"CheckID":"service:db1","Name":"up","Status":"passing","ServiceID":"db1","Output":"ok"}})";

} // namespace

CO_TEST(ConsulFacade, RegistersListsAndDeregistersServices) {
    Site site(loop.get_executor());
    co_await site.start();
    co_await site.expect("200 true", "PUT", "catalog/register", db);
    auto services = co_await site.get("catalog/services");
    EXPECT_EQ(to_json_text(services), R"({"db":["primary"]})");
    auto health = co_await site.get("health/service/db?passing");
    CO_ASSERT(health.is_array() && health.as_array().size() == 1);
    EXPECT_EQ(health.as_array()[0].at("Service").at("Port"), 3306);
    EXPECT_EQ(health.as_array()[0].at("Checks").as_array()[0].at("Output"), "ok");
    auto filtered = co_await site.get("catalog/service/db?tag=other");
    EXPECT_EQ(to_json_text(filtered), "[]");
    co_await site.expect("200 true", "PUT", "catalog/register",
                         R"({"Node":"n1","Address":"10.0.0.5","Check":{"Name":"disk","Status":"critical"}})");
    auto none = co_await site.get("health/service/db?passing");
    EXPECT_EQ(to_json_text(none), "[]");
    co_await site.expect("200 true", "PUT", "catalog/deregister", R"({"Node":"n1","CheckID":"disk"})");
    auto again = co_await site.get("health/service/db?passing");
    EXPECT_EQ(again.as_array().size(), 1U);
    co_await site.expect("200 true", "PUT", "catalog/deregister", R"({"Node":"n1"})");
    co_await site.expect("200 null", "GET", "catalog/node/n1");
    co_await site.expect_part("500 Must provide address", "PUT", "catalog/register", R"({"Node":"x"})");
    co_await site.expect_part("404 Invalid URL path", "GET", "nothing");
    co_await site.expect_part("405 method DELETE not allowed", "DELETE", "catalog/nodes");
    co_await site.stop();
}

CO_TEST(ConsulFacade, AgentServicesWithTtlChecks) {
    Site site(loop.get_executor());
    co_await site.start();
    co_await site.expect("200 ", "PUT", "agent/service/register",
                         R"({"name":"web","port":8080,"tags":["v1"],"check":{"ttl":"30s"}})");
    auto checks = co_await site.get("agent/checks");
    EXPECT_EQ(checks.at("service:web").at("Status"), "critical");
    co_await site.expect("200 ", "PUT", "agent/check/pass/service:web?note=fine");
    auto health = co_await site.get("health/checks/web");
    EXPECT_EQ(health.as_array()[0].at("Status"), "passing");
    EXPECT_EQ(health.as_array()[0].at("Output"), "fine");
    // Registering once more keeps what is known of its check.
    co_await site.expect("200 ", "PUT", "agent/service/register", R"({"Name":"web","Port":8081,"Check":{"TTL":"30s"}})");
    co_await site.expect_part("200 passing", "GET", "agent/health/service/name/web?format=text");
    co_await site.expect("200 ", "PUT", "agent/service/maintenance/web?enable=true&reason=disks");
    co_await site.expect_part("503 maintenance", "GET", "agent/health/service/id/web?format=text");
    auto shown = co_await site.get("health/checks/web");
    EXPECT_EQ(shown.as_array()[0].at("CheckID"), "_service_maintenance:web");
    co_await site.expect("200 ", "PUT", "agent/service/maintenance/web?enable=false");
    co_await site.expect_part("404 Unknown check ID \"nope\"", "PUT", "agent/check/pass/nope");
    co_await site.expect("200 ", "PUT", "agent/service/deregister/web");
    co_await site.expect_part("404 Unknown service ID", "PUT", "agent/service/deregister/web");
    co_await site.stop();
}

CO_TEST(ConsulFacade, ABlockingQueryReturnsWhenTheResultChanges) {
    Site site(loop.get_executor());
    co_await site.start();
    co_await site.expect("200 true", "PUT", "catalog/register", db);
    auto first = co_await site.ask("GET", "health/service/db");
    CO_ASSERT_OK(first);
    const std::string index(first->headers.get("X-Consul-Index"));
    auto waited = std::make_shared<std::optional<net::ClientResponse>>();
    site.group.spawn(
        [](Site& at, std::string from, std::shared_ptr<std::optional<net::ClientResponse>> into) -> asio::awaitable<void> {
            auto answer = co_await at.ask("GET", fmt::format("health/service/db?index={}&wait=60s", from));
            if (answer.ok()) *into = std::move(*answer);
        }(site, index, waited));
    co_await site.run_pending_work();
    co_await site.expect("200 true", "PUT", "kv/unrelated", "x");
    co_await site.run_pending_work();
    EXPECT_FALSE(waited->has_value());
    co_await site.expect("200 true", "PUT", "catalog/register", R"({"Node":"n2","Address":"10.0.0.6","Service":{"Service":"db"}})");
    for (int i = 0; i < 500 && !waited->has_value(); ++i) std::ignore = co_await real_clock().sleep(2ms);
    CO_ASSERT(waited->has_value());
    EXPECT_GT(std::stoll(std::string((*waited)->headers.get("X-Consul-Index"))), std::stoll(index));
    EXPECT_THAT((*waited)->body, HasSubstr("n2"));
    auto timed_out = co_await site.ask("GET", "kv/none?index=99999&wait=10ms");
    CO_ASSERT_OK(timed_out);
    EXPECT_EQ(timed_out->status, 404);
    co_await site.expect_part("400 Invalid index", "GET", "catalog/nodes?index=abc");
    co_await site.expect_part("400 Invalid wait time", "GET", "catalog/nodes?wait=abc");
    co_await site.stop();
}

CO_TEST(ConsulFacade, ARegistrationIsOneTransaction) {
    Site site(loop.get_executor());
    co_await site.start();
    // The index that a query blocks on. (The server's own summary of an instance's state comes after, and does not move it.)
    const auto index = [](Site& at) -> asio::awaitable<std::string> {
        const auto answer = co_await at.ask("GET", "health/service/db");
        co_return answer.ok() ? std::string(answer->headers.get("X-Consul-Index")) : answer.error().text();
    };
    const std::string body = R"({"Node":"db1","Address":"10.0.0.1","Service":{"Service":"db","Port":3306},
        "Checks":[{"Name":"disk","Status":"passing"},{"CheckID":"db-alive","ServiceID":"db","Status":"passing","Output":"fine"}]})";
    const auto before = site.fixture.store.revision();
    co_await site.expect("200 true", "PUT", "catalog/register", body);
    EXPECT_EQ(co_await index(site), std::to_string(before + 1)) << "node, service and checks at one revision";
    const auto shown = co_await site.get("health/service/db");
    EXPECT_EQ(shown.at(0).at("Checks").as_array().size(), 2U);
    for (const auto& check : shown.at(0).at("Checks").as_array()) EXPECT_EQ(check.at("Status").as_string(), "passing");
    // Registering the same again changes nothing and wakes no query.
    const auto unchanged = site.fixture.store.revision();
    co_await site.expect("200 true", "PUT", "catalog/register", body);
    EXPECT_EQ(site.fixture.store.revision(), unchanged);
    // A check that changes takes its event with it.
    co_await site.expect(
        "200 true", "PUT", "catalog/register",
        R"({"Node":"db1","Address":"10.0.0.1","Check":{"CheckID":"db-alive","ServiceID":"db","Status":"critical"}})");
    EXPECT_EQ(co_await index(site), std::to_string(unchanged + 1));
    EXPECT_EQ((co_await site.get("health/service/db?passing")).as_array().size(), 0U);
    // All of it or nothing.
    const auto last = site.fixture.store.revision();
    co_await site.expect_part("Missing service registration", "PUT", "catalog/register",
                              R"({"Node":"db2","Address":"10.0.0.2","Check":{"Name":"x","ServiceID":"nope"}})");
    EXPECT_EQ(site.fixture.store.revision(), last);
    co_await site.stop();
}

CO_TEST(ConsulFacade, ABadFilterIsAnsweredWithTheIndex) {
    Site site(loop.get_executor());
    co_await site.start();
    const auto answer = co_await site.ask("GET", "catalog/nodes?filter=Node+%3D%3D");
    CO_ASSERT_OK(answer);
    EXPECT_EQ(answer->status, 500);
    EXPECT_FALSE(answer->headers.get("X-Consul-Index").empty());
    co_await site.stop();
}

CO_TEST(ConsulFacade, KeysLocksAndSessions) {
    Site site(loop.get_executor());
    co_await site.start();
    co_await site.expect("200 true", "PUT", "kv/a/b", "hello");
    co_await site.expect("200 hello", "GET", "kv/a/b?raw");
    co_await site.expect("200 false", "PUT", "kv/a/b?cas=0", "x");
    co_await site.expect("200 true", "PUT", "kv/a/c?flags=7", "");
    co_await site.expect(R"(200 ["a/b","a/c"])", "GET", "kv/a/?keys");
    co_await site.expect(R"(200 ["a/"])", "GET", "kv/?keys&separator=/");
    co_await site.expect("404 ", "GET", "kv/none");
    auto entry = co_await site.get("kv/a/b");
    const auto modified = entry.as_array()[0].at("ModifyIndex").as_int64();
    co_await site.expect("200 true", "PUT", fmt::format("kv/a/b?cas={}", modified), "new");
    co_await site.expect("200 false", "PUT", fmt::format("kv/a/b?cas={}", modified), "newer");

    auto made = co_await site.ask("PUT", "session/create", R"({"Name":"s","TTL":"15s","LockDelay":"0s"})");
    CO_ASSERT_OK(made);
    const std::string id(parse_json(made->body)->at("ID").as_string());
    co_await site.expect("200 true", "PUT", "kv/lock?acquire=" + id, "me");
    auto other = co_await site.ask("PUT", "session/create", R"({"LockDelay":"30s","Behavior":"delete"})");
    const std::string rival(parse_json(other->body)->at("ID").as_string());
    co_await site.expect("200 false", "PUT", "kv/lock?acquire=" + rival, "them");
    co_await site.expect("200 false", "PUT", "kv/lock?release=" + rival, "");
    co_await site.expect_part("500 raft apply failed: invalid session \"nope\"", "PUT", "kv/lock?acquire=nope", "");
    co_await site.expect("200 true", "PUT", "session/destroy/" + id);
    auto freed = co_await site.get("kv/lock");
    EXPECT_FALSE(freed.as_array()[0].as_object().contains("Session"));
    EXPECT_EQ(freed.as_array()[0].at("LockIndex"), 1);
    co_await site.expect("200 true", "PUT", "kv/lock?acquire=" + rival, "them");
    // The rival's keys go with it, and stay locked for its delay.
    co_await site.expect("200 true", "PUT", "session/destroy/" + rival);
    co_await site.expect("404 ", "GET", "kv/lock");
    auto third = co_await site.ask("PUT", "session/create");
    const std::string late(parse_json(third->body)->at("ID").as_string());
    co_await site.expect("200 false", "PUT", "kv/lock?acquire=" + late, "late");
    co_await site.expect_part("500 Invalid Session TTL", "PUT", "session/create", R"({"TTL":"1s"})");
    co_await site.expect_part("404 Session id", "PUT", "session/renew/" + id);

    co_await site.expect_part(R"("Value":"aGk=")", "PUT", "txn",
                              R"([{"KV":{"Verb":"set","Key":"t","Value":"aGk="}},{"KV":{"Verb":"get","Key":"t"}}])");
    co_await site.expect_part("409 ", "PUT", "txn",
                              R"([{"KV":{"Verb":"set","Key":"u","Value":"aGk="}},{"KV":{"Verb":"cas","Key":"t","Index":1}}])");
    co_await site.expect("404 ", "GET", "kv/u");
    co_await site.expect("200 true", "DELETE", "kv/a?recurse");
    co_await site.expect("404 ", "GET", "kv/a?keys");
    co_await site.stop();
}

CO_TEST(ConsulFacade, WaitingQueriesAreLimited) {
    Site site(loop.get_executor(), resource::Role::operator_, 8); // of which one client may have two
    co_await site.start();
    for (int i = 0; i < 2; ++i)
        site.group.spawn(
            [](Site& at) -> asio::awaitable<void> { std::ignore = co_await at.ask("GET", "kv/none?index=99999&wait=60s"); }(site));
    for (int i = 0; i < 20; ++i) co_await site.run_pending_work();
    co_await site.expect_part("429 Too many blocking queries: 2 of 127.0.0.1", "GET", "kv/none?index=99999&wait=60s");
    co_await site.expect("404 ", "GET", "kv/none");
    co_await site.expect_part("200 true", "PUT", "kv/none", "x");         // which is not yet past their index
    co_await site.expect_part("200 ", "GET", "kv/none?index=1&wait=60s"); // and what need not wait is answered
    co_await site.stop();
}

/// A client that blocked on a prefix during a restart must see the removals that happened before the start.
CO_TEST(ConsulFacade, RemovalsBeforeTheStartAreNotMissed) {
    Site site(loop.get_executor());
    co_await site.start();
    co_await site.expect("200 true", "PUT", "kv/p/a", "x");
    co_await site.expect("200 true", "PUT", "kv/p/b", "x");
    const auto seen = KeyValues(loop.get_executor(), site.fixture.store, site.fixture.clock).tree_revision("p/");
    co_await site.expect("200 true", "PUT", "catalog/register", db);
    const auto services_seen = site.catalog.service_revision("db");
    co_await site.expect("200 true", "PUT", "catalog/register", R"({"Node":"n2","Address":"10.0.0.6","Service":{"Service":"db"}})");
    co_await site.expect("200 true", "PUT", "catalog/deregister", R"({"Node":"n2"})");
    co_await site.expect("200 true", "DELETE", "kv/p/b");
    const KeyValues again(loop.get_executor(), site.fixture.store, site.fixture.clock);
    EXPECT_GT(again.tree_revision("p/"), seen);
    const catalog::Catalog reborn(site.fixture.store);
    EXPECT_GT(reborn.service_revision("db"), services_seen);
    co_await site.stop();
}

CO_TEST(ConsulFacade, EveryWriteLeavesAnEventWithoutValues) {
    Site site(loop.get_executor());
    co_await site.start();
    const auto events = [&](std::string_view of) { // those whose subject begins so, oldest first
        std::vector<std::string> out;
        resource::ListQuery query;
        const auto page = site.fixture.resources->list(*site.fixture.registry.find("Event"), query);
        for (const auto& record : page->records) {
            const auto event = resource::from_stored(*record)->spec;
            const auto subject = text_at(event, "subject");
            EXPECT_THAT(record->value, ::testing::Not(HasSubstr("s3cret")));
            if (!subject.starts_with(of)) continue;
            const auto* evidence = event.if_contains("evidence");
            out.push_back(fmt::format("{} {} by {} from {}", subject, text_at(event, "action"), text_at(event, "actor"),
                                      evidence != nullptr ? text_at(evidence->as_object(), "peer") : ""));
        }
        return out;
    };
    co_await site.expect("200 true", "PUT", "kv/app/x", "s3cret");
    co_await site.expect("200 true", "PUT", "kv/app/x", "s3cret"); // the same once more changes nothing
    co_await site.expect("200 true", "PUT", "kv/app/x", "another s3cret");
    co_await site.expect("200 true", "DELETE", "kv/app/x");
    co_await site.expect("200 true", "DELETE", "kv/app/x");
    EXPECT_THAT(events("Key/"),
                ElementsAre("Key/app/x created by anonymous from 127.0.0.1", "Key/app/x updated by anonymous from 127.0.0.1",
                            "Key/app/x removed by anonymous from 127.0.0.1"));
    auto made = co_await site.ask("PUT", "session/create", R"({"Name":"mine","LockDelay":"0s"})");
    const auto id = text_at(parse_json(made->body)->as_object(), "ID");
    co_await site.expect("200 true", "PUT", "kv/lock?acquire=" + id, "s3cret");
    co_await site.expect("200 true", "PUT", "kv/lock?release=" + id, "s3cret");
    co_await site.expect("200 true", "PUT", "kv/lock?acquire=" + id, "s3cret");
    co_await site.expect("200 true", "PUT", "session/destroy/" + id);
    EXPECT_THAT(events("Key/lock"),
                ElementsAre(HasSubstr("Key/lock locked by"), HasSubstr("Key/lock unlocked by"), HasSubstr("Key/lock locked by")));
    EXPECT_THAT(events("Session/"),
                ElementsAre(HasSubstr("created by anonymous from 127.0.0.1"), HasSubstr("keys-released by anonymous"),
                            HasSubstr("removed by anonymous from 127.0.0.1")));
    co_await site.expect_part(
        "200", "PUT", "txn",
        R"([{"KV":{"Verb":"set","Key":"t/1","Value":"czNjcmV0"}},{"KV":{"Verb":"set","Key":"t/2","Value":"czNjcmV0"}}])");
    EXPECT_THAT(events("Transaction/"), ElementsAre(HasSubstr("applied by anonymous from 127.0.0.1")));
    co_await site.expect("200 true", "DELETE", "kv/t?recurse");
    EXPECT_THAT(events("Key/t"), ElementsAre("Key/t removed-below by anonymous from 127.0.0.1"));
    // The catalog: registrations are resources, whose events say from where as the reason; words about checks are events where they
    // are news.
    co_await site.expect("200 ", "PUT", "agent/service/register", R"({"Name":"web","Check":{"TTL":"30s"}})");
    for (int i = 0; i < 3; ++i) co_await site.expect("200 ", "PUT", "agent/check/pass/service:web");
    co_await site.expect("200 ", "PUT", "agent/check/fail/service:web");
    EXPECT_THAT(events("Instance/"),
                ElementsAre(HasSubstr("created by anonymous"), HasSubstr("check-passing by anonymous from 127.0.0.1"),
                            HasSubstr("check-critical by anonymous from 127.0.0.1")));
    co_await site.stop();
}

CO_TEST(ConsulFacade, AKeyThatIsNotTextIsRefused) {
    Site site(loop.get_executor());
    co_await site.start();
    co_await site.expect_part("not UTF-8", "PUT", "kv/a%ffb", "x");
    co_await site.expect("404 ", "GET", "kv/?keys");
    co_await site.stop();
}

CO_TEST(ConsulFacade, TheTokenDecidesWhatAClientMayDo) {
    Site site(loop.get_executor(), resource::Role::nobody);
    co_await site.start();
    CO_ASSERT_OK(co_await site.fixture.create_user("reader", {{"password", identity::testing::good_password}, {"role", "viewer"}}));
    auto login = co_await site.fixture.log_in("reader", identity::testing::good_password);
    CO_ASSERT_OK(login);
    co_await site.expect_part("403 Permission denied", "GET", "catalog/nodes");
    const auto with_token = [&](std::string method, std::string path) {
        return site.ask(std::move(method), std::move(path), "x", {{"X-Consul-Token", login->token}});
    };
    auto read = co_await with_token("GET", "catalog/nodes");
    EXPECT_EQ(read->status, 200);
    EXPECT_EQ(read->headers.get("X-Consul-Default-Acl-Policy"), "deny");
    auto write = co_await with_token("PUT", "kv/a");
    EXPECT_EQ(write->status, 403);
    auto unknown = co_await site.ask("GET", "catalog/nodes", "", {{"X-Consul-Token", "11111111-1111-1111-1111-111111111111"}});
    EXPECT_EQ(unknown->status, 403);
    EXPECT_EQ(unknown->body, "ACL not found");
    auto bearer = co_await site.ask("GET", "catalog/nodes", "", {{"Authorization", "Bearer " + login->token}});
    EXPECT_EQ(bearer->status, 200);
    co_await site.stop();
}

CO_TEST(ConsulFacade, AnswersDnsQueriesForServicesAndNodes) {
    Site site(loop.get_executor());
    co_await site.start();
    for (int i = 1; i <= 5; ++i)
        co_await site.expect(
            "200 true", "PUT", "catalog/register",
            fmt::format(
                R"({{"Node":"m{0}","Address":"10.1.0.{0}","Service":{{"Service":"many","Port":80{0},"Tags":["Even{1}"]}}}})", i,
                i % 2));
    co_await site.expect("200 true", "PUT", "catalog/register",
                         R"({"Node":"v6","Address":"2001:db8::5","NodeMeta":{"k":"v"},"Service":{"Service":"six","Port":1}})");
    co_await site.expect(
        "200 true", "PUT", "catalog/register",
        R"({"Node":"h1","Address":"10.9.9.9","Service":{"Service":"other","Address":"10.8.8.8","Port":80,"Tags":["a.b"]}})");
    co_await site.expect("200 true", "PUT", "catalog/register", db);
    EXPECT_EQ(site.dig("many.service.consul", dns::type::a).size(), 6U);
    EXPECT_EQ(site.dig("many.service.consul", dns::type::a, std::nullopt).size(), 4U);
    EXPECT_EQ(site.dig("many.service.consul", dns::type::a, std::nullopt, true).size(), 6U);
    EXPECT_EQ(site.dig("even0.MANY.service.dc1.consul", dns::type::a).size(), 3U);
    EXPECT_EQ(site.dig("_many._even0.consul", dns::type::srv).size(), 5U);
    EXPECT_THAT(
        site.dig("_db._tcp.service.consul", dns::type::srv),
        ElementsAre("rcode 0 aa", "_db._tcp.service.consul 0 SRV 1 1 3306 n1.node.dc1.consul", "n1.node.dc1.consul 0 A 10.0.0.5"));
    EXPECT_THAT(site.dig("six.service.consul", dns::type::a), ElementsAre("rcode 0 aa", "consul 0 SOA ns.consul"));
    EXPECT_THAT(site.dig("six.service.consul", dns::type::srv),
                ElementsAre("rcode 0 aa", "six.service.consul 0 SRV 1 1 1 v6.node.dc1.consul",
                            "v6.node.dc1.consul 0 AAAA 2001:db8:0:0:0:0:0:5", "v6.node.dc1.consul 0 TXT \"k=v\""));
    EXPECT_THAT(site.dig("other.service.consul", dns::type::srv),
                ElementsAre("rcode 0 aa", "other.service.consul 0 SRV 1 1 80 0a080808.addr.dc1.consul",
                            "0a080808.addr.dc1.consul 0 A 10.8.8.8"));
    EXPECT_THAT(site.dig("a.b.other.service.consul", dns::type::a),
                ElementsAre("rcode 0 aa", "a.b.other.service.consul 0 A 10.8.8.8"));
    EXPECT_THAT(site.dig("0a080808.addr.dc1.consul", dns::type::a),
                ElementsAre("rcode 0 aa", "0a080808.addr.dc1.consul 0 A 10.8.8.8"));
    EXPECT_THAT(site.dig("n1.node.consul", dns::type::a), ElementsAre("rcode 0 aa", "n1.node.consul 0 A 10.0.0.5"));
    EXPECT_THAT(site.dig("n1.node.consul", dns::type::aaaa), ElementsAre("rcode 0 aa"));
    EXPECT_THAT(site.dig("5.0.0.10.in-addr.arpa", dns::type::ptr),
                ElementsAre("rcode 0 aa", "5.0.0.10.in-addr.arpa 0 PTR n1.node.dc1.consul"));
    EXPECT_THAT(site.dig("8.8.8.10.in-addr.arpa", dns::type::ptr),
                ElementsAre("rcode 0 aa", "8.8.8.10.in-addr.arpa 0 PTR other.service.dc1.consul"));
    EXPECT_THAT(site.dig("1.1.1.1.in-addr.arpa", dns::type::ptr), ElementsAre("rcode 5"));
    for (const auto* name : {"nope.service.consul", "nope.node.consul", "db.service.dc2.consul", "foo.consul", "x.query.consul"})
        EXPECT_THAT(site.dig(name, dns::type::a), ElementsAre("rcode 3 aa", "consul 0 SOA ns.consul")) << name;
    for (const auto* name : {"consul", "service.consul", "node.dc1.consul", "dc1.consul", "service.dc1.dc.consul"})
        EXPECT_THAT(site.dig(name, dns::type::a), ElementsAre("rcode 0 aa", "consul 0 SOA ns.consul")) << name;
    EXPECT_THAT(site.dig("example.org", dns::type::a), ElementsAre("rcode 5"));
    EXPECT_THAT(site.dig("consul", dns::type::axfr), ElementsAre("rcode 4"));
    // A critical check takes it out of DNS.
    co_await site.expect("200 true", "PUT", "catalog/register",
                         R"({"Node":"n1","Address":"10.0.0.5","Check":{"Name":"disk","Status":"critical"}})");
    EXPECT_THAT(site.dig("db.service.consul", dns::type::a), ElementsAre("rcode 3 aa", "consul 0 SOA ns.consul"));
    co_await site.stop();
}

TEST(ConsulFilter, SelectsLikeConsul) {
    const auto value = *parse_json(
        R"({"ServiceName":"web","ServiceTags":["v1","real"],"ServiceMeta":{"env":"prod"},"ServicePort":80,"Address":""})");
    for (const auto* yes : {"ServiceName == web", "ServiceName != \"db\"", "v1 in ServiceTags", "\"v2\" not in ServiceTags",
                            "ServiceTags contains real", "ServiceMeta.env == prod", "ServiceMeta[\"env\"] == prod",
                            "Address is empty", "ServiceTags is not empty", "not (ServiceName == db) and ServicePort == 80",
                            "ServiceName == db or ServiceName == web", "env in ServiceMeta"}) {
        const auto filter = Filter::parse(yes);
        ASSERT_TRUE(filter.ok()) << yes << ": " << filter.error().message;
        EXPECT_TRUE(filter->matches(value)) << yes;
    }
    for (const auto* no :
         {"ServiceName == db", "v2 in ServiceTags", "ServiceMeta.env == test", "ServiceName is empty", "not ServiceName == web"})
        EXPECT_FALSE(Filter::parse(no)->matches(value)) << no;
    for (const auto* bad : {"ServiceName", "ServiceName ==", "== web", "(ServiceName == web", "ServiceName = web", "\"web",
                            "ServiceName is full", "a b c", "Name matches \"a\""})
        EXPECT_FALSE(Filter::parse(bad).ok()) << bad;
    EXPECT_FALSE(Filter::parse(std::string(200, '(') + "a == b" + std::string(200, ')')).ok());
}

TEST(GoDuration, IsWrittenAndReadAsGoDoes) {
    EXPECT_EQ(go_duration(10s), "10s");
    EXPECT_EQ(go_duration(90s), "1m30s");
    EXPECT_EQ(go_duration(1h), "1h0m0s");
    EXPECT_EQ(go_duration(500ms), "500ms");
    EXPECT_EQ(go_duration(1500ms), "1.5s");
    EXPECT_EQ(parse_go_duration("1h5m"), 65min);
    EXPECT_EQ(parse_go_duration("1.5s"), 1500ms);
    for (const auto* bad : {"", "10", "s", "-5s", "5x", "5s5"}) EXPECT_FALSE(parse_go_duration(bad).has_value()) << bad;
}

} // namespace orrery::api::consul
