#pragma once

#include "core/test_fixture.h"
#include "identity/fake_sources.h"
#include "identity/identity.h"
#include "resource/kinds.h"
#include "resource/resource_fixture.h"
#include "store/memory_store.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

/// For tests only: Identity with users and tokens on a MemoryStore and a VirtualClock.
namespace orrery::identity::testing {

namespace json = boost::json;
using resource::testing::an_object;

constexpr auto good_password = "correct horse battery";
constexpr auto other_password = "staple of the trade";

struct IdentityFixture {
    explicit IdentityFixture(asio::any_io_executor executor, IdentityOptions options = {}) : store(std::move(executor)) {
        registry.add(resource::node_kind());
        registry.add(resource::event_kind());
        registry.add(user_kind());
        registry.add(token_kind(clock));
        resources = std::make_unique<resource::Resources>(store, registry, *sealer, clock);
        identity = std::make_unique<Identity>(*resources, clock, options);
    }
    const resource::Kind& kind(std::string_view name) const { return *registry.find(name); }
    const resource::Kind& users() const { return kind("User"); }
    const resource::Kind& tokens() const { return kind("Token"); }

    FakePasswordSource& add_password_source(std::string name) {
        auto source = std::make_unique<FakePasswordSource>(std::move(name));
        auto& known = *source;
        identity->add(std::move(source));
        return known;
    }
    FakeTokenSource& add_token_source(std::string name) {
        auto source = std::make_unique<FakeTokenSource>(std::move(name), clock);
        auto& known = *source;
        identity->add(std::move(source));
        return known;
    }

    Task<resource::Outcome> create_user(std::string name, json::object spec) {
        auto user = an_object("User", std::move(name), std::move(spec));
        return resources->create(Context::make("test"), users(), std::move(user), {});
    }
    Task<resource::Outcome> create_token(std::string name, json::object spec) {
        auto token = an_object("Token", std::move(name), std::move(spec));
        return resources->create(Context::make("test"), tokens(), std::move(token), {});
    }
    Task<resource::Outcome> patch(std::string_view of, std::string name, json::object spec) {
        json::value patch = json::object{{"spec", std::move(spec)}};
        return resources->patch(Context::make("test"), kind(of), std::move(name), std::move(patch), {});
    }
    Task<resource::Outcome> remove(std::string_view of, std::string name) {
        return resources->remove(Context::make("test"), kind(of), std::move(name), {});
    }
    Task<Login> log_in(std::string user, std::string password, std::optional<std::string> new_password = {},
                       std::string peer = "192.0.2.1") {
        return identity->login(Context::make("anonymous"), std::move(user), std::move(password), std::move(new_password),
                               std::move(peer));
    }

    /// The number of events of this type.
    std::size_t events(std::string_view action) const {
        resource::ListQuery query;
        query.limit = 5000;
        const auto page = resources->list(kind("Event"), query);
        std::size_t count = 0;
        if (page.ok())
            for (const auto& record : page->records)
                if (const auto event = resource::from_stored(*record); event.ok() && event->spec.at("action").as_string() == action)
                    ++count;
        return count;
    }
    /// All stored keys and values as text.
    std::string all_text() const {
        std::string text;
        for (const auto& record : store.range("", 0, "").records) text += record->key + " " + record->value + "\n";
        return text;
    }

    store::MemoryStore store;
    resource::Registry registry;
    std::unique_ptr<resource::Sealer> sealer = resource::Sealer::ephemeral();
    VirtualClock clock;
    std::unique_ptr<resource::Resources> resources;
    std::unique_ptr<Identity> identity;
};

} // namespace orrery::identity::testing
