#pragma once

#include "core/testing.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <sys/types.h>

namespace orrery::lab {

/// A real OpenLDAP server on loopback with a small directory (see slapd.cpp), in a folder of its own. It ends with this object.
class Slapd {
public:
    /// Why it cannot be had on this machine; empty where it can.
    static std::string missing();

    Slapd();
    ~Slapd();
    Slapd(const Slapd&) = delete;
    Slapd& operator=(const Slapd&) = delete;

    /// Starts it, on the same ports each time, and waits until it answers. False, with what it said, where it does not.
    bool start();
    void stop();

    std::string plain_url() const;
    std::string tls_url() const;
    /// The same server at an address that is not in its certificate.
    std::string misnamed_url() const;
    std::filesystem::path ca() const { return folder_ / "ca.pem"; }
    /// Of an authority that signed nothing here.
    std::filesystem::path other_ca() const { return folder_ / "other-ca.pem"; }

private:
    bool run(const std::string& command) const;
    bool prepare();

    testing::TemporaryFolder folder_;
    std::uint16_t port_ = 0, tls_port_ = 0;
    pid_t pid_ = 0;
    bool prepared_ = false;
};

/// A port that nobody listens on.
std::uint16_t free_port();

/// Takes connections and never says a word.
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
