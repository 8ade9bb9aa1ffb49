#pragma once

#include "resource/kinds.h"
#include "resource/resources.h"
#include "store/memory_store.h"

#include <memory>
#include <string>
#include <utility>

/// For tests only: Resources with the kinds of this module on a MemoryStore.
namespace orrery::resource::testing {

struct ResourceFixture {
    std::shared_ptr<store::MemoryStore::Shared> shared;
    store::MemoryStore store;
    Registry registry;
    std::unique_ptr<Sealer> own_sealer = Sealer::ephemeral();
    VirtualClock clock;
    std::unique_ptr<Resources> resources;

    explicit ResourceFixture(asio::any_io_executor executor,
                             std::shared_ptr<store::MemoryStore::Shared> shared_ = std::make_shared<store::MemoryStore::Shared>(),
                             std::vector<Kind> more = {}, const Sealer* sealer = nullptr)
        : shared(std::move(shared_)), store(std::move(executor), shared) {
        registry.add(node_kind());
        registry.add(secret_kind());
        registry.add(event_kind());
        for (auto& kind : more) registry.add(std::move(kind));
        resources = std::make_unique<Resources>(store, registry, sealer == nullptr ? *own_sealer : *sealer, clock);
    }
    const Kind& kind(std::string_view name) const { return *registry.find(name); }
    const Kind& nodes() const { return kind("nodes"); }
    const Kind& secrets() const { return kind("secrets"); }
    const Kind& events() const { return kind("events"); }
};

inline Object an_object(std::string kind, std::string name, json::object spec, std::map<std::string, std::string> labels = {}) {
    Object object;
    object.kind = std::move(kind);
    object.name = std::move(name);
    object.spec = std::move(spec);
    object.labels = std::move(labels);
    return object;
}

inline Object a_node(std::string name, std::map<std::string, std::string> labels = {}, std::string key = {}) {
    json::object spec{{"address", "192.0.2.1"}};
    if (!key.empty()) spec["ssh"] = json::object{{"key", key}};
    return an_object("Node", std::move(name), std::move(spec), std::move(labels));
}

inline Object a_secret(std::string name, json::object values) {
    return an_object("Secret", std::move(name), {{"values", std::move(values)}});
}

} // namespace orrery::resource::testing
