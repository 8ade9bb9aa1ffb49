#include "app/identity_component.h"

#include "app/first_login.h"
#include "drivers/keystone/keystone.h"
#include "drivers/ldap/ldap.h"

namespace orrery::app {

IdentityComponent::IdentityComponent(ServerEnvironment& environment, StoreComponent& store)
    : environment_(environment), store_(store) {}
IdentityComponent::~IdentityComponent() = default;

Task<Unit> IdentityComponent::start(Context ctx) {
    const auto& config = environment_.config;
    identity_ =
        std::make_unique<identity::Identity>(store_.resources(), environment_.clock,
                                             identity::IdentityOptions{.session_time = config.duration("identity.session_time")});
    CO_TRY(std::ignore, add_ldap());
    CO_TRY(std::ignore, add_keystone());
    CO_TRY(first_password_, co_await create_first_admin(ctx, *identity_, config));
    environment_.tasks.spawn(warn_of_ignored_password_file(ctx, *identity_, config));
    admin_changes_ = store_.store().observe("users/admin", [folder = config.path("data.folder")](const store::Event& event) {
        if (event.previous) remove_first_login(folder);
    });
    co_return Unit{};
}

asio::awaitable<void> IdentityComponent::stop() {
    if (keystone_client_) co_await keystone_client_->stop();
    admin_changes_.reset();
    identity_.reset();
}

Result<Unit> IdentityComponent::add_ldap() {
    const auto& config = environment_.config;
    if (config.text("identity.ldap.url").empty()) return Unit{};
    drivers::LdapOptions options;
    options.url = config.text("identity.ldap.url");
    options.plain_on_loopback = config.boolean("identity.ldap.plain_on_loopback");
    options.ca = config.path("identity.ldap.ca");
    options.bind_dn = config.text("identity.ldap.bind_dn");
    TRY(const auto password, config.secret("identity.ldap.bind_password_file"));
    options.bind_password = password.value_or("");
    options.user_base = config.text("identity.ldap.user_base");
    options.user_filter = config.text("identity.ldap.user_filter");
    options.group_base = config.text("identity.ldap.group_base");
    options.group_filter = config.text("identity.ldap.group_filter");
    for (const auto& [group, role] : config.map("identity.ldap.roles")) {
        TRY(options.roles[group], resource::parse_role(role));
    }
    TRY(auto source, drivers::ldap_source(std::move(options)));
    identity_->add(std::move(source));
    return Unit{};
}

Result<Unit> IdentityComponent::add_keystone() {
    const auto& config = environment_.config;
    if (config.text("identity.keystone.url").empty()) return Unit{};
    TRY(auto tls, net::tls_client({.ca = config.path("identity.keystone.ca")}));
    keystone_client_ = std::make_unique<net::HttpClient>(environment_.executor, net::HttpClient::Options{.tls = std::move(tls)});
    drivers::KeystoneOptions options;
    options.url = config.text("identity.keystone.url");
    options.allow_plaintext = config.boolean("identity.keystone.allow_plaintext");
    options.projects = config.list("identity.keystone.projects");
    options.user = config.text("identity.keystone.user");
    options.user_domain = config.text("identity.keystone.user_domain");
    options.project = config.text("identity.keystone.project");
    options.project_domain = config.text("identity.keystone.project_domain");
    TRY(const auto password, config.secret("identity.keystone.password_file"));
    options.password = password.value_or("");
    for (const auto& [name, role] : config.map("identity.keystone.roles")) {
        TRY(options.roles[name], resource::parse_role(role));
    }
    TRY(auto source, drivers::keystone_source(*keystone_client_, environment_.clock, std::move(options)));
    identity_->add(std::move(source));
    return Unit{};
}

} // namespace orrery::app
