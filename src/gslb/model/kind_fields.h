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

/// How to authenticate at Keystone. `owns`: what the project owns, for the help text.
inline resource::Field keystone_field(std::string doc, std::string_view owns) {
    return resource::object("keystone", std::move(doc))
        .with(resource::text("url", "The URL of Keystone.").required().format(resource::Format::url))
        .with(name_text("user", "The user."))
        .with(name_text("user_domain", "The user's domain.").default_value("Default"))
        .with(name_text("project", fmt::format("The project that owns {}.", owns)).default_value("service"))
        .with(name_text("project_domain", "The project's domain.").default_value("Default"))
        .with(name_text("credential", "The id of an application credential, instead of user and project."))
        .with(name_text("region", "The region. Default: the first in the catalog."));
}

inline resource::Field plaintext_field() {
    return resource::boolean("allow_plaintext", "Allow http:// beyond loopback. Credentials are then sent unencrypted.")
        .default_value(false);
}

} // namespace orrery::gslb
