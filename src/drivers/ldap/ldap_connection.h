#pragma once

#include "core/clock.h"
#include "core/result.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace orrery::drivers {

/// Ends a conversation from another thread: whatever blocks in it comes back with an error. Needed because libldap waits for a TLS
/// handshake without end, whatever time it was given. Safe from any thread.
class Scissors {
public:
    Scissors() = default;
    ~Scissors();
    Scissors(const Scissors&) = delete;
    Scissors& operator=(const Scissors&) = delete;
    void cut();
    /// The socket to cut; it may be closed by its owner at any time.
    void hold(int socket);

private:
    std::mutex mutex_;
    int socket_ = -1; // a duplicate, so that the number stays ours
    bool cut_ = false;
};

/// One conversation with a directory, by libldap. Every call blocks, until `deadline` at the latest: pool threads only.
class LdapConnection {
public:
    struct Options {
        std::string url;
        std::string ca;
        bool start_tls = true;
        SteadyTime deadline;
        std::shared_ptr<Scissors> scissors; ///< whose holder cuts at the deadline
    };
    /// Connects; with TLS, the certificate has been verified when this returns. `unavailable`, `timeout`.
    static Result<LdapConnection> open(const Options& options);
    LdapConnection(LdapConnection&&) noexcept;
    LdapConnection& operator=(LdapConnection&&) = delete;
    LdapConnection(const LdapConnection&) = delete;
    LdapConnection& operator=(const LdapConnection&) = delete;
    ~LdapConnection();

    /// False: the directory refuses this name and password. An empty password is refused here, because a directory would take it
    /// for an anonymous bind and say yes. An empty DN binds as nobody.
    Result<bool> bind(const std::string& dn, const std::string& password);

    struct Entry {
        std::string dn;
        std::map<std::string, std::vector<std::string>> attributes; ///< by name in small letters
    };
    /// At most `limit` entries below `base`; `too_large` where there are more.
    Result<std::vector<Entry>> search(const std::string& base, const std::string& filter,
                                      const std::vector<std::string>& attributes, int limit);

private:
    struct Handle;
    explicit LdapConnection(std::unique_ptr<Handle> handle);
    std::unique_ptr<Handle> handle_;
};

} // namespace orrery::drivers
