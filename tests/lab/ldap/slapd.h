#pragma once

#include "core/test_fixture.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <sys/types.h>

namespace orrery::lab {

/// A real OpenLDAP server on loopback with a small directory (see slapd.cpp), in a temporary folder. It stops with this object.
class Slapd {
public:
    /// The reason why slapd cannot run on this host; empty where it can.
    static std::string missing();

    Slapd();
    ~Slapd();
    Slapd(const Slapd&) = delete;
    Slapd& operator=(const Slapd&) = delete;

    /// Starts slapd, on the same ports each time, and waits until it answers. Returns false, and prints its output, where it does
    /// not.
    bool start();
    void stop();

    std::string plain_url() const;
    std::string tls_url() const;
    /// The same server at an address that is not in its certificate.
    std::string misnamed_url() const;
    std::filesystem::path ca() const { return folder_ / "ca.pem"; }
    /// An authority that signed no certificate here.
    std::filesystem::path other_ca() const { return folder_ / "other-ca.pem"; }

private:
    bool run(const std::string& command) const;
    bool prepare();

    testing::TemporaryFolder folder_;
    std::uint16_t port_ = 0, tls_port_ = 0;
    pid_t pid_ = 0;
    bool prepared_ = false;
};

/// A free port.
std::uint16_t free_port();

/// Accepts connections and never sends anything.
class SilentServer {
public:
    SilentServer();
    ~SilentServer();
    SilentServer(const SilentServer&) = delete;
    SilentServer& operator=(const SilentServer&) = delete;
    std::uint16_t port() const { return port_; }

private:
    int socket_ = -1;
    std::uint16_t port_ = 0;
};

} // namespace orrery::lab
