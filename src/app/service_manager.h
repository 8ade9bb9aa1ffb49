#pragma once

#include <string_view>

namespace orrery::app {

/// Sends a state ("READY=1", "STOPPING=1") to systemd if NOTIFY_SOCKET is set; see sd_notify(3).
void notify_service_manager(std::string_view message);

} // namespace orrery::app
