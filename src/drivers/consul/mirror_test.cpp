#include "core/json_fields.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "drivers/consul/consul.h"
#include "net/http_server.h"
#include "resource/resource_fixture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

namespace orrery::drivers::mirror_test {

using namespace std::chrono_literals;

namespace {

using resource::testing::an_object;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Context mirror_tester = Context::make("tester");

/// The part of Consul's catalog that the mirror speaks to. tests/conformance/consul holds the mirror against the real one.
struct FakeCatalog {
    explicit FakeCatalog(asio::any_io_executor executor)
        : server(executor, {}, [this](Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
              return serve(ctx, request, body, out);
          }) {
        EXPECT_TRUE(server.start().ok());
    }
    struct Node {
        boost::json::object meta;
        std::map<std::string, boost::json::object> services; ///< by id
        std::map<std::string, boost::json::object> checks;   ///< by id
    };

    Task<Unit> serve(Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
        CO_TRY(const auto text, co_await net::read_all(ctx, body, 1 << 20));
        ++asked;
        net::Headers headers{{"X-Consul-Index", "7"}, {"X-Consul-KnownLeader", "true"}};
        if (filtered) headers.add("X-Consul-Results-Filtered-By-ACLs", "true");
        if (broken) co_return co_await out.send(ctx, net::Response{500, std::move(headers), "No cluster leader"});
        const auto path = request.target.path.substr(4);
        boost::json::value answer = true;
        if (request.method == "PUT")
            write(path, parse_json(text)->as_object());
        else
            answer = filtered && path.starts_with("catalog/") ? empty_of(path) : read(path);
        co_return co_await out.send(ctx, net::Response{200, std::move(headers), to_json_text(answer)});
    }
    static boost::json::value empty_of(const std::string& path) {
        return path == "catalog/services"          ? boost::json::value(boost::json::object())
               : path.starts_with("catalog/node/") ? boost::json::value(nullptr)
                                                   : boost::json::value(boost::json::array());
    }
    void write(const std::string& path, const boost::json::object& given) {
        const auto name = text_at(given, "Node");
        if (path == "catalog/register") {
            auto& node = nodes[name];
            node.meta = object_at(given, "NodeMeta");
            const auto& service = object_at(given, "Service");
            node.services[text_at(service, "ID")] = service;
            for (const auto& check : given.at("Checks").as_array())
                node.checks[text_at(check.as_object(), "CheckID")] = check.as_object();
        } else if (given.contains("ServiceID")) {
            const auto id = text_at(given, "ServiceID");
            nodes[name].services.erase(id);
            std::erase_if(nodes[name].checks, [&](const auto& check) { return text_at(check.second, "ServiceID") == id; });
        } else if (given.contains("CheckID")) {
            nodes[name].checks.erase(text_at(given, "CheckID"));
        } else {
            nodes.erase(name);
        }
    }
    boost::json::value read(const std::string& path) const {
        const auto last = path.substr(path.rfind('/') + 1);
        boost::json::array list;
        if (path.starts_with("health/node/")) {
            if (const auto at = nodes.find(last); at != nodes.end())
                for (const auto& [id, check] : at->second.checks) list.push_back(check);
            return list;
        }
        if (path.starts_with("catalog/node/")) {
            boost::json::object services;
            if (const auto at = nodes.find(last); at != nodes.end())
                for (const auto& [id, service] : at->second.services) services[id] = service;
            return boost::json::object{{"Services", std::move(services)}};
        }
        boost::json::object names;
        for (const auto& [name, node] : nodes) {
            if (text_at(node.meta, "registered-by") != "orrery") continue;
            if (path == "catalog/nodes") list.push_back(boost::json::object{{"Node", name}});
            for (const auto& [id, service] : node.services) {
                names[text_at(service, "Service")] = boost::json::array();
                if (path.starts_with("catalog/service/") && text_at(service, "Service") == last)
                    list.push_back(
                        boost::json::object{{"Node", name}, {"ServiceID", id}, {"ServiceMeta", object_at(service, "Meta")}});
            }
        }
        if (path == "catalog/services") return names;
        return list;
    }
    /// "n1/web [check=passing ...]" of each service.
    std::vector<std::string> shown() const {
        std::vector<std::string> out;
        for (const auto& [name, node] : nodes) {
            if (node.services.empty()) out.push_back(name + "/");
            for (const auto& [id, service] : node.services) {
                out.push_back(name + "/" + id);
                for (const auto& [check, body] : node.checks)
                    if (const auto of = text_at(body, "ServiceID"); of.empty() || of == id)
                        out.back() += fmt::format(" {}={}", check, text_at(body, "Status"));
            }
        }
        return out;
    }

    std::map<std::string, Node> nodes;
    bool filtered = false, broken = false;
    int asked = 0;
    net::HttpServer server;
};

struct MirrorSite {
    explicit MirrorSite(asio::any_io_executor executor,
                        std::shared_ptr<store::MemoryStore::Shared> shared = std::make_shared<store::MemoryStore::Shared>())
        : base(executor, std::move(shared), kinds()),
          catalog(base.store),
          leadership(executor, base.store, {.server = "me", .clock = &real_clock()}),
          client(executor, {}),
          group(executor) {}
    static std::vector<resource::Kind> kinds() {
        std::vector<resource::Kind> out;
        out.push_back(catalog::service_kind());
        out.push_back(catalog::instance_kind());
        out.push_back(catalog::catalog_node_kind());
        return out;
    }
    void start(FakeCatalog& fake) {
        ConsulOptions options;
        options.url = fmt::format("http://127.0.0.1:{}", fake.server.port());
        options.first_backoff = options.max_backoff = options.resync_interval = 10ms;
        mirror = std::make_unique<ConsulMirror>(base.store, client, catalog, leadership, real_clock(), options);
        group.spawn(leadership.run(mirror_tester));
        group.spawn(mirror->run(mirror_tester));
    }
    Task<resource::Outcome> create(std::string_view kind, std::string name, json::object spec) {
        const auto& of = base.kind(kind);
        if (of.name() == "Instance") {
            const auto service = std::string(spec.at("service").as_string());
            if (!base.resources->exists(base.kind("services"), service)) {
                CO_TRY(std::ignore, co_await create("services", service, {}));
            }
        }
        co_return co_await base.resources->create(mirror_tester, of, an_object(of.name(), std::move(name), std::move(spec)), {});
    }
    Task<resource::Outcome> replace(std::string_view kind, std::string name, json::object spec) {
        const auto& of = base.kind(kind);
        return base.resources->replace(mirror_tester, of, an_object(of.name(), std::move(name), std::move(spec)), {});
    }
    Task<resource::Outcome> remove(std::string_view kind, std::string name) {
        return base.resources->remove(mirror_tester, base.kind(kind), std::move(name), {});
    }
    asio::awaitable<void> stop(FakeCatalog& fake) {
        co_await group.stop();
        co_await client.stop();
        co_await fake.server.stop(0s);
    }
    resource::testing::ResourceFixture base;
    catalog::Catalog catalog;
    store::Leadership leadership;
    net::HttpClient client;
    TaskGroup group;
    std::unique_ptr<ConsulMirror> mirror;
};

/// What Consul has, once it is what is wanted, or after a while.
asio::awaitable<std::vector<std::string>> until(FakeCatalog& fake, std::vector<std::string> wanted) {
    for (int i = 0; i < 1000 && fake.shown() != wanted; ++i) std::ignore = co_await real_clock().sleep(2ms);
    co_return fake.shown();
}
/// The mirror has compared everything some more times.
asio::awaitable<void> some_more_polls(FakeCatalog& fake) {
    for (const int enough = fake.asked + 12; fake.asked < enough;) std::ignore = co_await real_clock().sleep(2ms);
}

const json::object web_on_n1{{"service", "web"}, {"node", "n1"}, {"port", 80}};

} // namespace

CO_TEST(ConsulMirror, RegistersInstancesAndFollowsChanges) {
    FakeCatalog fake(loop.get_executor());
    MirrorSite site(loop.get_executor());
    site.start(fake);
    CO_ASSERT_OK(co_await site.create("nodes", "n1", {{"address", "192.0.2.1"}}));
    CO_ASSERT_OK(co_await site.create("nodes", "n2", {{"address", "192.0.2.2"}}));
    CO_ASSERT_OK(co_await site.create("instances", "web-1", web_on_n1));
    auto seen = co_await until(fake, {"n1/web"});
    EXPECT_THAT(seen, ElementsAre("n1/web"));
    auto out_of_order = web_on_n1;
    out_of_order["maintenance"] = true;
    CO_ASSERT_OK(co_await site.replace("instances", "web-1", out_of_order));
    seen = co_await until(fake, {"n1/web _service_maintenance:web=critical"});
    EXPECT_THAT(seen, ElementsAre("n1/web _service_maintenance:web=critical"));
    CO_ASSERT_OK(co_await site.replace("instances", "web-1", web_on_n1));
    seen = co_await until(fake, {"n1/web"});
    EXPECT_THAT(seen, ElementsAre("n1/web")) << "a check that is gone stayed";
    CO_ASSERT_OK(co_await site.create("catalognodes", "n1", {{"node", "n1"}, {"maintenance", true}}));
    seen = co_await until(fake, {"n1/web _node_maintenance=critical"});
    EXPECT_THAT(seen, ElementsAre("n1/web _node_maintenance=critical"));
    CO_ASSERT_OK(co_await site.remove("catalognodes", "n1"));
    seen = co_await until(fake, {"n1/web"});
    EXPECT_THAT(seen, ElementsAre("n1/web"));
    CO_ASSERT_OK(co_await site.replace("instances", "web-1", {{"service", "web"}, {"node", "n2"}, {"port", 80}}));
    seen = co_await until(fake, {"n2/web"});
    EXPECT_THAT(seen, ElementsAre("n2/web")) << "its old place was not left";
    CO_ASSERT_OK(co_await site.remove("instances", "web-1"));
    seen = co_await until(fake, {});
    EXPECT_THAT(seen, IsEmpty());
    co_await site.stop(fake);
}

CO_TEST(ConsulMirror, RemovesOnlyItsOwnRegistrationsAndOnlyOnEvidence) {
    FakeCatalog fake(loop.get_executor());
    const auto registered = [](std::string_view id, std::string_view mark) {
        return boost::json::object{{"ID", id}, {"Service", id}, {"Meta", boost::json::object{{"orrery-instance", mark}}}};
    };
    const boost::json::object ours{{"registered-by", "orrery"}};
    // Before us: an instance that is gone, another's service on a node of ours, and a node that is not ours.
    fake.nodes["n1"] = {ours, {{"gone", registered("gone", "gone-1")}}, {}};
    fake.nodes["n2"] = {ours, {{"theirs", {{"ID", "theirs"}, {"Service", "theirs"}}}}, {}};
    fake.nodes["n3"] = {
        {}, {{"web", {{"ID", "web"}, {"Service", "web"}}}}, {{"serfHealth", {{"CheckID", "serfHealth"}, {"Status", "passing"}}}}};
    fake.filtered = true;
    MirrorSite site(loop.get_executor());
    site.start(fake);
    CO_ASSERT_OK(co_await site.create("nodes", "n3", {{"address", "192.0.2.3"}}));
    CO_ASSERT_OK(co_await site.create("instances", "api-1", {{"service", "api"}, {"node", "n3"}, {"port", 1}}));
    co_await some_more_polls(fake);
    const std::vector<std::string> before{"n1/gone", "n2/theirs", "n3/web serfHealth=passing"};
    EXPECT_EQ(fake.shown(), before) << "an answer with something left out was believed";
    fake.filtered = false;
    const std::vector<std::string> after{"n2/theirs", "n3/web serfHealth=passing"}; // an agent's node is the agent's
    auto seen = co_await until(fake, after);
    EXPECT_EQ(seen, after);
    co_await some_more_polls(fake);
    EXPECT_EQ(fake.shown(), after);
    co_await site.stop(fake);
}

CO_TEST(ConsulMirror, WritesAgainWhatConsulMissedOrLost) {
    FakeCatalog fake(loop.get_executor());
    MirrorSite site(loop.get_executor());
    site.start(fake);
    CO_ASSERT_OK(co_await site.create("nodes", "n1", {{"address", "192.0.2.1"}}));
    CO_ASSERT_OK(co_await site.create("instances", "web-1", web_on_n1));
    auto seen = co_await until(fake, {"n1/web"});
    EXPECT_THAT(seen, ElementsAre("n1/web"));
    fake.broken = true;
    CO_ASSERT_OK(co_await site.create("instances", "api-1", {{"service", "api"}, {"node", "n1"}, {"port", 1}}));
    CO_ASSERT_OK(co_await site.remove("instances", "web-1"));
    co_await some_more_polls(fake);
    EXPECT_THAT(fake.shown(), ElementsAre("n1/web"));
    fake.broken = false;
    seen = co_await until(fake, {"n1/api"});
    EXPECT_THAT(seen, ElementsAre("n1/api"));
    fake.nodes.clear(); // it was restored from long ago
    seen = co_await until(fake, {"n1/api"});
    EXPECT_THAT(seen, ElementsAre("n1/api"));
    co_await site.stop(fake);
}

} // namespace orrery::drivers::mirror_test
