#pragma once

#include <string_view>

namespace orrery::app {

/// Tells systemd ("READY=1", "STOPPING=1") where it started us and wants to know; else does nothing.
void notify_service_manager(std::string_view message);

} // namespace orrery::app
