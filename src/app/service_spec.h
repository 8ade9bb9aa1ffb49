#pragma once

#include "core/json_fields.h"
#include "core/text.h"
#include "drivers/keystone/session.h"
#include "resource/resources.h"

#include <optional>
#include <string>
#include <string_view>

namespace orrery::app {

/// The value of a field; nullopt if the field is absent or has another type.
std::optional<double> number_in(const json::object& object, std::string_view key);

/// The connection fields of a Publisher or a Source: URL, credentials, TLS policy.
class ServiceSpec {
public:
    /// Both must outlive this.
    ServiceSpec(const resource::Resources& resources, const json::object& spec) : resources_(resources), spec_(spec) {}

    std::string text(std::string_view key) const { return text_at(spec_, key); }
    bool allows_plaintext() const;
    /// A value of the Secret that the spec names. `not_found` names the missing value.
    Result<std::string> secret(std::string_view value) const;
    Result<drivers::OpenstackLogin> openstack_login() const;

private:
    const resource::Resources& resources_;
    const json::object& spec_;
};

} // namespace orrery::app
