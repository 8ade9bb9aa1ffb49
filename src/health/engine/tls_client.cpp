#include "health/engine/tls_client.h"

#include "net/tls_context.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

namespace orrery::health {

namespace {

int keeper_index() {
    static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
    return index;
}

int on_new_session(SSL* ssl, SSL_SESSION* session) {
    auto* keeper = static_cast<SessionKeeper*>(SSL_get_ex_data(ssl, keeper_index()));
    if (keeper == nullptr) return 0;
    keeper->keep(SessionPtr(session));
    return 1; // the keeper owns it now
}

std::shared_ptr<net::TlsContext> systems_authorities() {
    static std::once_flag once;
    static std::shared_ptr<net::TlsContext> shared;
    std::call_once(once, [] {
        if (auto made = net::tls_client({}); made.ok()) shared = std::move(*made);
    });
    return shared;
}

bool is_address(const std::string& host) {
    unsigned char ignored[16];
    return ::inet_pton(AF_INET, host.c_str(), ignored) == 1 || ::inet_pton(AF_INET6, host.c_str(), ignored) == 1;
}

} // namespace

Result<std::shared_ptr<net::TlsContext>> tls_from_pem(const std::string& pem) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<net::TlsContext>> made; // probes with the same authorities share sessions
    const std::lock_guard lock(mutex);
    if (const auto known = made.find(pem); known != made.end())
        if (auto shared = known->second.lock()) return shared;
    std::erase_if(made, [](const auto& one) { return one.second.expired(); });
    const std::unique_ptr<BIO, decltype(&::BIO_free)> text(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                           &::BIO_free);
    std::unique_ptr<X509_STORE, decltype(&::X509_STORE_free)> store(::X509_STORE_new(), &::X509_STORE_free);
    std::size_t count = 0;
    while (auto* raw = ::PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)) {
        const std::unique_ptr<X509, decltype(&::X509_free)> certificate(raw, &::X509_free);
        count += ::X509_STORE_add_cert(store.get(), certificate.get()) == 1 ? 1 : 0;
    }
    ::ERR_clear_error(); // the end of the text sets an error
    if (count == 0) return Error{Code::invalid, "ca must hold certificates in PEM, each from BEGIN CERTIFICATE to END CERTIFICATE"};
    TRY(auto tls, net::tls_client({}));
    ::SSL_CTX_set_cert_store(tls->context.native_handle(), store.release());
    made.insert_or_assign(pem, tls);
    return tls;
}

SSL_CTX* tls_context_for(const ProbeProgram& program) {
    static std::mutex mutex;
    auto shared = program.tls ? program.tls : systems_authorities();
    if (!shared) return nullptr;
    SSL_CTX* context = shared->context.native_handle();
    std::lock_guard lock(mutex);
    if (SSL_CTX_sess_get_new_cb(context) != on_new_session) {
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(context, on_new_session);
    }
    return context;
}

SslPtr make_tls(SSL_CTX* context, const ProbeProgram& program, int fd, SSL_SESSION* resume, SessionKeeper* keeper) {
    SslPtr ssl(SSL_new(context));
    if (!ssl) return ssl;
    const auto& name = program.server_name.empty() ? program.host : program.server_name;
    SSL_set_read_ahead(ssl.get(), 1); // one read for all available data, instead of two for each record
    SSL_set_mode(ssl.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE);
    if (is_address(name)) {
        X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), name.c_str());
    } else {
        SSL_set_tlsext_host_name(ssl.get(), name.c_str());
        SSL_set1_host(ssl.get(), name.c_str());
    }
    SSL_set_verify(ssl.get(), program.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
    SSL_set_ex_data(ssl.get(), keeper_index(), keeper);
    if (SSL_set_fd(ssl.get(), fd) != 1) return nullptr;
    if (resume != nullptr) SSL_set_session(ssl.get(), resume);
    SSL_set_connect_state(ssl.get());
    return ssl;
}

TlsFailure tls_failure(SSL* ssl, int error, int system_error) {
    TlsFailure out;
    const long verified = SSL_get_verify_result(ssl);
    const auto reason = ERR_peek_last_error();
    if (verified != X509_V_OK && ERR_GET_REASON(reason) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        out.expired = verified == X509_V_ERR_CERT_HAS_EXPIRED;
        out.message = fmt::format("the certificate is not good: {}", X509_verify_cert_error_string(verified));
    } else if (error == SSL_ERROR_SYSCALL && reason == 0) {
        out.message = system_error == 0 ? "the connection was closed during the handshake"
                                        : fmt::format("the handshake failed: {}", std::strerror(system_error));
    } else if (reason != 0) {
        const char* message = ERR_reason_error_string(reason);
        out.message = fmt::format("the handshake failed: {}", message == nullptr ? "unknown reason" : message);
    } else {
        out.message = "the connection was closed during the handshake";
    }
    ERR_clear_error();
    return out;
}

bool certificate_left(SSL* ssl, std::chrono::seconds& left) {
    X509* certificate = SSL_get0_peer_certificate(ssl);
    if (certificate == nullptr) return false;
    int days = 0, seconds = 0;
    if (ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(certificate)) != 1) return false;
    left = std::chrono::hours(24) * days + std::chrono::seconds(seconds);
    return true;
}

} // namespace orrery::health
