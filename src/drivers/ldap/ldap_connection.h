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

/// Aborts a connection from another thread: the call that blocks on it returns with an error. Needed because libldap waits for a
/// TLS handshake without a time limit, whatever timeout is set. Thread-safe.
class ConnectionAborter {
public:
    ConnectionAborter() = default;
    ~ConnectionAborter();
    ConnectionAborter(const ConnectionAborter&) = delete;
    ConnectionAborter& operator=(const ConnectionAborter&) = delete;
    /// Aborts the connection, now or as soon as it has a socket.
    void abort();
    /// Sets the socket to abort; its owner may close it at any time.
    void watch(int socket);

private:
    std::mutex mutex_;
    int socket_ = -1; // a duplicate: the owner may close its own, and the number be used again
    bool aborted_ = false;
};

/// A connection to a directory by libldap. Every call blocks, until `deadline` at the latest: pool threads only.
class LdapConnection {
public:
    struct Options {
        std::string url;
        std::string ca;
        bool start_tls = true;
        SteadyTime deadline;
        std::shared_ptr<ConnectionAborter> aborter; ///< its owner aborts at the deadline
    };
    /// Connects. With TLS, the certificate is verified before this returns. `unavailable`, `timeout`.
    static Result<LdapConnection> open(const Options& options);
    LdapConnection(LdapConnection&&) noexcept;
    LdapConnection& operator=(LdapConnection&&) = delete;
    LdapConnection(const LdapConnection&) = delete;
    LdapConnection& operator=(const LdapConnection&) = delete;
    ~LdapConnection();

    /// Returns false where the directory refuses the name and password. An empty password is refused here, because a directory
    /// treats it as an anonymous bind, which succeeds. An empty DN binds anonymously.
    Result<bool> bind(const std::string& dn, const std::string& password);

    struct Entry {
        std::string dn;
        std::map<std::string, std::vector<std::string>> attributes; ///< by lower-case name
    };
    /// Returns the entries below `base`; `too_large` where there are more than `limit`.
    Result<std::vector<Entry>> search(const std::string& base, const std::string& filter,
                                      const std::vector<std::string>& attributes, int limit);

private:
    struct Handle;
    explicit LdapConnection(std::unique_ptr<Handle> handle);
    std::unique_ptr<Handle> handle_;
};

} // namespace orrery::drivers
