#pragma once

#include "catalog/kinds.h"
#include "core/testing.h"
#include "core/text.h"
#include "gslb/controller.h"
#include "gslb/fake_ports.h"
#include "gslb/kinds.h"
#include "resource/testing.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

/// For tests only: a server with a controller on the virtual clock, and two sites to balance between.
namespace orrery::gslb::testing {

using namespace std::chrono_literals;

inline const Context carla = Context::make("carla");

inline std::vector<resource::Kind> all_kinds() {
    std::vector<resource::Kind> out;
    out.push_back(catalog::service_kind());
    out.push_back(catalog::instance_kind());
    out.push_back(load_balancer_kind());
    out.push_back(pool_kind());
    out.push_back(member_kind());
    out.push_back(monitor_kind());
    out.push_back(decision_kind());
    return out;
}

/// A server with a controller, on a store that may outlive it.
struct Plant {
    explicit Plant(asio::io_context& loop,
                   std::shared_ptr<store::MemoryStore::Shared> shared = std::make_shared<store::MemoryStore::Shared>(),
                   std::string server = "a")
        : house(loop.get_executor(), std::move(shared), all_kinds()),
          leadership(loop.get_executor(), house.store, {.server = server, .alone = server == "a", .clock = &house.clock}),
          controller(loop.get_executor(), *house.resources, leadership, house.clock, watcher, &sink, {.server = server}),
          group(loop.get_executor()) {
        group.spawn(leadership.run(carla));
        group.spawn(controller.run(carla));
    }
    Task<resource::Outcome> put(std::string_view kind, std::string name, std::string yaml,
                                std::map<std::string, std::string> labels = {}) {
        const auto& of = house.kind(kind);
        auto documents = parse_yaml(yaml);
        auto object =
            resource::read_object(of, name, json::object{{"kind", of.name()}, {"name", name}, {"spec", documents->at(0).value}});
        if (!object.ok()) co_return std::move(object).error();
        object->labels = std::move(labels);
        if (house.resources->exists(of, name)) co_return co_await house.resources->replace(carla, of, std::move(*object), {});
        co_return co_await house.resources->create(carla, of, std::move(*object), {});
    }
    /// Until nothing moves any more.
    asio::awaitable<void> settle(Duration time = 20ms) {
        for (int round = 0; round < 10; ++round) {
            house.clock.advance(time / 10);
            for (int i = 0; i < 30; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        }
    }
    json::object status(std::string_view kind, std::string_view name) {
        return house.resources->get(house.kind(kind), name)->status;
    }
    std::vector<json::object> decisions(std::string_view name) {
        resource::ListQuery query;
        query.fields = {{"loadbalancer", std::string(name)}};
        std::vector<json::object> out;
        const auto page = house.resources->list(house.kind("decisions"), query);
        for (const auto& record : page->records) out.push_back(resource::from_stored(*record)->spec);
        return out;
    }

    resource::testing::House house;
    store::Leadership leadership;
    FakeWatcher watcher;
    FakeSink sink;
    Controller controller;
    TaskGroup group;
};

inline Task<Unit> furnish(Plant& plant) {
    CO_TRY(std::ignore, co_await plant.put("nodes", "n1", "address: 192.0.2.21", {{"site", "fra"}, {"rack", "r7"}}));
    CO_TRY(std::ignore, co_await plant.put("instances", "web-n1", "{service: web, node: n1, port: 8080}"));
    CO_TRY(std::ignore, co_await plant.put("monitors", "web", "{kind: tcp, interval: 2s, timeout: 1s}"));
    CO_TRY(std::ignore, co_await plant.put("pools", "eu", "{site: ams, monitors: [web]}"));
    CO_TRY(std::ignore, co_await plant.put("pools", "us", "{site: nyc, monitors: [web]}"));
    CO_TRY(std::ignore, co_await plant.put("members", "eu-1", "{pool: eu, addresses: [192.0.2.1]}"));
    CO_TRY(std::ignore, co_await plant.put("members", "eu-2", "{pool: eu, addresses: [192.0.2.2]}"));
    CO_TRY(std::ignore, co_await plant.put("members", "us-1", "{pool: us, instance: web-n1}"));
    CO_TRY(std::ignore, co_await plant.put("loadbalancers", "www", "{fqdn: www.gslb.test, pools: [{pool: eu}, {pool: us}]}"));
    co_return Unit{};
}

} // namespace orrery::gslb::testing
