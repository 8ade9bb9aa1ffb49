#pragma once

#include "drivers/keystone/session.h"
#include "resource/resources.h"

#include <optional>
#include <string>
#include <string_view>

namespace orrery::app {

/// Of an object's fields: nothing where there is none, or it is of another sort. Kinds have checked what must be there.
std::string text_in(const json::object& object, std::string_view key);
std::optional<double> number_in(const json::object& object, std::string_view key);
const json::object& part_of(const json::object& object, std::string_view key);

/// What a Publisher or a Source says of the service it speaks to.
class ServiceSpec {
public:
    /// Both must outlive this.
    ServiceSpec(const resource::Resources& resources, const json::object& spec) : resources_(resources), spec_(spec) {}

    std::string text(std::string_view key) const { return text_in(spec_, key); }
    bool allows_plaintext() const;
    /// A value of the Secret that it names; `not_found` says what that lacks.
    Result<std::string> secret(std::string_view value) const;
    Result<drivers::OpenstackLogin> openstack_login() const;

private:
    const resource::Resources& resources_;
    const json::object& spec_;
};

} // namespace orrery::app
