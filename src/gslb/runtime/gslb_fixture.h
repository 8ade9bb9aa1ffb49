#pragma once

#include "catalog/kinds.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "gslb/model/kinds.h"
#include "gslb/observe/health_source.h"
#include "gslb/runtime/controller.h"
#include "gslb/runtime/fake_ports.h"
#include "resource/resource_fixture.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

/// For tests only: a server with a controller on the virtual clock, and a sample configuration with two sites.
namespace orrery::gslb::testing {

using namespace std::chrono_literals;

inline const Context carla = Context::make("carla");

inline std::vector<resource::Kind> all_kinds() {
    auto out = gslb::all_kinds();
    out.push_back(catalog::service_kind());
    out.push_back(catalog::instance_kind());
    return out;
}

/// A server with a controller, on a store that may outlive it.
struct GslbFixture {
    explicit GslbFixture(asio::io_context& loop,
                         std::shared_ptr<store::MemoryStore::Shared> shared = std::make_shared<store::MemoryStore::Shared>(),
                         std::string server = "a", GeoDatabases::Options geo_options = {})
        : base(loop.get_executor(), std::move(shared), all_kinds()),
          leadership(loop.get_executor(), base.store, {.server = server, .exclusive = server == "a", .clock = &base.clock}),
          geo(loop.get_executor(), base.clock, std::move(geo_options)),
          controller(loop.get_executor(), *base.resources, leadership, base.clock, watcher, &publisher, {.server = server}, &geo),
          group(loop.get_executor()) {
        group.spawn(leadership.run(carla));
        group.spawn(controller.run(carla));
        group.spawn(geo.run(carla));
    }
    Task<resource::Outcome> put(std::string_view kind, std::string name, std::string yaml,
                                std::map<std::string, std::string> labels = {}) {
        const auto& of = base.kind(kind);
        auto documents = parse_yaml(yaml);
        auto object =
            resource::read_object(of, name, json::object{{"kind", of.name()}, {"name", name}, {"spec", documents->at(0).value}});
        if (!object.ok()) co_return std::move(object).error();
        object->labels = std::move(labels);
        if (base.resources->exists(of, name)) co_return co_await base.resources->replace(carla, of, std::move(*object), {});
        co_return co_await base.resources->create(carla, of, std::move(*object), {});
    }
    /// Advances the clock and runs the loop until all work is done.
    asio::awaitable<void> run_until_idle(Duration time = 20ms) {
        for (int round = 0; round < 10; ++round) {
            base.clock.advance(time / 10);
            for (int i = 0; i < 30; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        }
    }
    json::object status(std::string_view kind, std::string_view name) { return base.resources->get(base.kind(kind), name)->status; }
    std::vector<json::object> decisions(std::string_view name) {
        resource::ListQuery query;
        query.fields = {{"loadbalancer", std::string(name)}};
        std::vector<json::object> out;
        const auto page = base.resources->list(base.kind("decisions"), query);
        for (const auto& record : page->records) out.push_back(resource::from_stored(*record)->spec);
        return out;
    }

    resource::testing::ResourceFixture base;
    store::Leadership leadership;
    FakeWatcher watcher;
    FakeAnswerPublisher publisher;
    GeoDatabases geo;
    Controller controller;
    TaskGroup group;
};

inline Task<Unit> create_sample_site(GslbFixture& fixture) {
    CO_TRY(std::ignore, co_await fixture.put("nodes", "n1", "address: 192.0.2.21", {{"site", "fra"}, {"rack", "r7"}}));
    CO_TRY(std::ignore, co_await fixture.put("services", "web", "{port: 8080}"));
    CO_TRY(std::ignore, co_await fixture.put("instances", "web-n1", "{service: web, node: n1, port: 8080}"));
    CO_TRY(std::ignore, co_await fixture.put("monitors", "web", "{kind: tcp, interval: 2s, timeout: 1s}"));
    CO_TRY(std::ignore, co_await fixture.put("pools", "eu", "{site: ams, monitors: [web]}"));
    CO_TRY(std::ignore, co_await fixture.put("pools", "us", "{site: nyc, monitors: [web]}"));
    CO_TRY(std::ignore, co_await fixture.put("members", "eu-1", "{pool: eu, addresses: [192.0.2.1]}"));
    CO_TRY(std::ignore, co_await fixture.put("members", "eu-2", "{pool: eu, addresses: [192.0.2.2]}"));
    CO_TRY(std::ignore, co_await fixture.put("members", "us-1", "{pool: us, instance: web-n1}"));
    CO_TRY(std::ignore, co_await fixture.put("loadbalancers", "www", "{fqdn: www.gslb.test, pools: [{pool: eu}, {pool: us}]}"));
    co_return Unit{};
}

} // namespace orrery::gslb::testing
