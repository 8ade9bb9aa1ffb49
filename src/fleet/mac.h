#pragma once

#include <string>
#include <string_view>

namespace orrery::fleet {

/// A MAC address in its one form, "52:54:00:4e:3d:30": lower case, with colons. Dashes and PXELINUX's prefix 01- are accepted.
/// Empty for other texts.
std::string normalized_mac(std::string_view text);

} // namespace orrery::fleet
