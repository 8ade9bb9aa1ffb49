#pragma once

#include "health/plan.h"

#include <openssl/ssl.h>

#include <memory>
#include <string>

/// OpenSSL as the engine uses it: one context for all targets, sessions handed out and taken back, errors in words. For .cpp files.
namespace orrery::health {

struct FreeSsl {
    void operator()(SSL* ssl) const {
        // A session whose connection was not shut down counts as broken and is never resumed; nothing is sent by this.
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

/// Where new sessions of a connection go. Called from within OpenSSL, on the thread that drives the connection.
class SessionKeeper {
public:
    virtual void keep(SessionPtr session) = 0;

protected:
    ~SessionKeeper() = default;
};

/// A context that hands new sessions to their connection's keeper. The first call for a context must come before it is used from
/// several threads. Null where the system's authorities cannot be read.
SSL_CTX* tls_context_for(const Plan& plan);

/// A connection on a socket, to be driven by SSL_do_handshake. Null where memory lacks.
SslPtr make_tls(SSL_CTX* context, const Plan& plan, int fd, SSL_SESSION* resume, SessionKeeper* keeper);

/// After a failed step: what is wrong, and whether it is a certificate whose time is over.
struct TlsTrouble {
    bool expired = false;
    std::string words;
};
TlsTrouble tls_trouble(SSL* ssl, int error, int system_error);

/// Seconds until the peer's certificate ends; nothing where it showed none.
bool certificate_left(SSL* ssl, std::chrono::seconds& left);

} // namespace orrery::health
