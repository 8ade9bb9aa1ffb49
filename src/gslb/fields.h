#pragma once

#include "resource/kind.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

/// Private to the module: fields that several kinds have.
namespace orrery::gslb {

inline resource::Field name_text(std::string name, std::string doc) {
    return resource::text(std::move(name), std::move(doc)).format(resource::Format::one_line).between(1, 255);
}

/// Who we are where Keystone is asked. `owns`: what the project has there.
inline resource::Field keystone_field(std::string doc, std::string_view owns) {
    return resource::object("keystone", std::move(doc))
        .with(resource::text("url", "Where Keystone is.").required().format(resource::Format::url))
        .with(name_text("user", "The user."))
        .with(name_text("user_domain", "The user's domain.").otherwise("Default"))
        .with(name_text("project", fmt::format("The project that owns {}.", owns)).otherwise("service"))
        .with(name_text("project_domain", "The project's domain.").otherwise("Default"))
        .with(name_text("credential", "The id of an application credential, in place of user and project."))
        .with(name_text("region", "The region. Left out: the first there is."));
}

inline resource::Field plaintext_field() {
    return resource::boolean("allow_plaintext", "Speak http:// beyond loopback: what we log in with can then be read on the way.")
        .otherwise(false);
}

} // namespace orrery::gslb
