#pragma once

#include "core/text.h"
#include "fleet/kinds.h"
#include "resource/resource_fixture.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

/// For tests only: the kinds of the module over a store in memory.
namespace orrery::fleet {

struct FleetFixture {
    explicit FleetFixture(asio::any_io_executor executor)
        : site(std::move(executor), std::make_shared<store::MemoryStore::Shared>(), all_kinds()) {}

    /// Creates a resource from the YAML of its spec.
    Task<resource::Outcome> create(std::string_view kind, std::string name, std::string yaml) {
        const auto& of = site.kind(kind);
        CO_TRY(const auto documents, parse_yaml(yaml));
        CO_TRY(auto object,
               resource::read_object(of, name, json::object{{"kind", of.name()}, {"name", name}, {"spec", documents.at(0).value}}));
        co_return co_await site.resources->create(ctx, of, std::move(object), {});
    }
    /// The errors of a create that must fail, one line each.
    asio::awaitable<std::string> refusal(std::string_view kind, std::string name, std::string yaml) {
        const auto made = co_await create(kind, std::move(name), std::move(yaml));
        if (made.ok()) co_return "it was not refused";
        std::string out = made.error().message + "\n";
        for (const auto& field : made.error().fields) out += field.path + ": " + field.message + "\n";
        co_return out;
    }
    /// A machine with properties, in a failure domain.
    Task<resource::Outcome> machine(std::string name, int cpus, std::string domain = {}, std::string more = {}) {
        auto yaml = fmt::format("bmc: {{driver: ipmi, address: {}.bmc.test}}\nproperties: {{cpus: {}, memory_mb: 65536, local_gb: "
                                "400, cpu_arch: x86_64}}\n",
                                name, cpus);
        if (!domain.empty()) yaml += fmt::format("failure_domain: {}\n", domain);
        return create("Machine", std::move(name), yaml + more);
    }
    /// What a deployment writes.
    Task<resource::Outcome> deploy(std::string name, std::string plan, std::string role) {
        return site.resources->set_status(ctx, site.kind("Machine"), std::move(name),
                                          {{"deployment", json::object{{"plan", plan}, {"role", role}}}}, {});
    }

    Context ctx = Context::make("anna");
    resource::testing::ResourceFixture site;
};

} // namespace orrery::fleet
