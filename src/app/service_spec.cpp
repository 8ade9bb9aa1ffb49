#include "app/service_spec.h"

#include "core/json_fields.h"

#include <fmt/format.h>

namespace orrery::app {

std::optional<double> number_in(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_number() ? std::optional(value->to_number<double>()) : std::nullopt;
}

bool ServiceSpec::allows_plaintext() const {
    const auto* flag = spec_.if_contains("allow_plaintext");
    return flag != nullptr && flag->is_bool() && flag->get_bool();
}

Result<std::string> ServiceSpec::secret(std::string_view value) const {
    const auto name = text("credentials");
    auto out = resources_.reveal(*resources_.registry().find("Secret"), name, fmt::format("spec.values.{}", value));
    if (!out.ok())
        return Error{Code::not_found, fmt::format("Secret {} has no value \"{}\"", name, value), "add the value to the Secret"};
    return out;
}

Result<drivers::OpenstackLogin> ServiceSpec::openstack_login() const {
    const auto& keystone = object_at(spec_, "keystone");
    drivers::OpenstackLogin login;
    login.url = text_at(keystone, "url");
    login.allow_plaintext = allows_plaintext();
    login.user = text_at(keystone, "user");
    login.user_domain = text_at(keystone, "user_domain");
    login.project = text_at(keystone, "project");
    login.project_domain = text_at(keystone, "project_domain");
    login.credential = text_at(keystone, "credential");
    login.region = text_at(keystone, "region");
    if (login.credential.empty()) {
        TRY(login.password, secret("password"));
    } else {
        TRY(login.credential_secret, secret("credential_secret"));
    }
    return login;
}

} // namespace orrery::app
