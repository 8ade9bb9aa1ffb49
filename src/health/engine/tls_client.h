#pragma once

#include "health/engine/probe_program.h"

#include <openssl/ssl.h>

#include <memory>
#include <string>

/// The engine's interface to OpenSSL: one context for all targets, sessions that can be resumed, errors as messages. Private to the
/// module.
namespace orrery::health {

struct FreeSsl {
    void operator()(SSL* ssl) const {
        // OpenSSL never resumes the session of a connection without a shutdown. A quiet shutdown sends nothing.
        SSL_set_quiet_shutdown(ssl, 1);
        SSL_shutdown(ssl);
        SSL_free(ssl);
    }
};
struct FreeSession {
    void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};
using SslPtr = std::unique_ptr<SSL, FreeSsl>;
using SessionPtr = std::unique_ptr<SSL_SESSION, FreeSession>;

/// Receives the new sessions of a connection. Called from OpenSSL, on the thread that drives the connection.
class SessionKeeper {
public:
    virtual void keep(SessionPtr session) = 0;

protected:
    ~SessionKeeper() = default;
};

/// The context of a program, prepared to pass new sessions to the keeper of their connection. The first call for a context must be
/// made before several threads use it. Null: the authorities of the system cannot be read.
SSL_CTX* tls_context_for(const ProbeProgram& program);
/// A context that trusts only these certificates; the same context for the same text. `invalid`: the text contains no certificates
/// in PEM.
Result<std::shared_ptr<net::TlsContext>> tls_from_pem(const std::string& pem);

/// A connection on a socket, to be driven with SSL_do_handshake. Null: out of memory.
SslPtr make_tls(SSL_CTX* context, const ProbeProgram& program, int fd, SSL_SESSION* resume, SessionKeeper* keeper);

/// Why a step failed.
struct TlsFailure {
    bool expired = false; ///< the certificate has expired
    std::string message;
};
TlsFailure tls_failure(SSL* ssl, int error, int system_error);

/// Sets `left` to the remaining lifetime of the peer's certificate; false if the peer sent none.
bool certificate_left(SSL* ssl, std::chrono::seconds& left);

} // namespace orrery::health
