#include "app/service_manager.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace orrery::app {

void notify_service_manager(std::string_view message) {
    const char* path = std::getenv("NOTIFY_SOCKET");
    if (path == nullptr) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const auto length = std::strlen(path);
    if (length < 2 || length >= sizeof address.sun_path) return;
    std::memcpy(address.sun_path, path, length);
    if (path[0] == '@') address.sun_path[0] = '\0'; // the abstract namespace
    const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return;
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
    [[maybe_unused]] const auto sent =
        ::sendto(socket, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size);
    ::close(socket);
}

} // namespace orrery::app
