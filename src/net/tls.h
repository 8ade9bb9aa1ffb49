#pragma once

#include "core/result.h"

#include <filesystem>
#include <memory>
#include <string>

namespace orrery::net {

/// TLS 1.2 and later, with modern ciphers only. Opaque, to keep the headers of OpenSSL out of this one.
class TlsContext;

struct TlsServerOptions {
    std::filesystem::path certificate; ///< PEM, with the chain
    std::filesystem::path key;         ///< PEM
    std::filesystem::path client_ca;   ///< if set, clients may present a certificate that it signed
    bool require_client_certificate = false;
};
/// Errors: `invalid` with the file and the cause.
Result<std::shared_ptr<TlsContext>> tls_server(const TlsServerOptions& options);

/// Reads the files again. New connections use them; open connections do not change. On an error nothing changes. Call it on the
/// thread that accepts connections.
Result<Unit> reload_tls(TlsContext& tls, const TlsServerOptions& options);

struct TlsClientOptions {
    std::filesystem::path ca;          ///< empty: the certificates of the system
    std::filesystem::path certificate; ///< empty: no client certificate
    std::filesystem::path key;
};
/// Certificates and host names are always verified.
Result<std::shared_ptr<TlsContext>> tls_client(const TlsClientOptions& options);

} // namespace orrery::net
