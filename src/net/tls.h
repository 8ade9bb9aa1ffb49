#pragma once

#include "core/result.h"

#include <filesystem>
#include <memory>
#include <string>

namespace orrery::net {

/// TLS 1.2 and later, with modern ciphers only. Opaque so that OpenSSL stays out of headers (boost::asio::ssl::context inside).
class TlsContext;

struct TlsServerOptions {
    std::filesystem::path certificate; ///< PEM, with its chain
    std::filesystem::path key;         ///< PEM
    std::filesystem::path client_ca;   ///< where set, clients may show a certificate signed by it
    bool require_client_certificate = false;
};
/// `invalid` names the file and what is wrong with it.
Result<std::shared_ptr<TlsContext>> tls_server(const TlsServerOptions& options);

struct TlsClientOptions {
    std::filesystem::path ca;          ///< empty: the system's
    std::filesystem::path certificate; ///< empty: none shown
    std::filesystem::path key;
};
/// Certificates and host names are always verified.
Result<std::shared_ptr<TlsContext>> tls_client(const TlsClientOptions& options);

} // namespace orrery::net
