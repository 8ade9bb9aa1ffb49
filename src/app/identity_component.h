#pragma once

#include "app/server_component.h"
#include "app/store_component.h"
#include "identity/identity.h"
#include "net/http_client.h"

#include <memory>
#include <optional>
#include <string>

namespace orrery::app {

/// Users, tokens and logins, the external directories of the configuration, and the first administrator.
class IdentityComponent final : public ServerComponent {
public:
    /// Both must outlive the component.
    IdentityComponent(ServerEnvironment& environment, StoreComponent& store);
    ~IdentityComponent() override;

    std::string_view name() const override { return "identity"; }
    Task<Unit> start(Context ctx) override;
    asio::awaitable<void> stop() override;

    identity::Identity& identity() { return *identity_; }
    /// The one-time password of the first administrator, until it has been changed.
    const std::optional<std::string>& first_password() const { return first_password_; }

private:
    Result<Unit> add_ldap();
    Result<Unit> add_keystone();

    ServerEnvironment& environment_;
    StoreComponent& store_;
    std::unique_ptr<net::HttpClient> keystone_client_;
    std::unique_ptr<identity::Identity> identity_;
    std::optional<std::string> first_password_;
    std::shared_ptr<void> admin_changes_;
};

} // namespace orrery::app
