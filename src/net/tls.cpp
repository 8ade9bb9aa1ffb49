#include "net/tls.h"

#include "net/tls_context.h"

#include <boost/asio/ssl/context.hpp>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <tuple>

namespace orrery::net {

namespace {

using SslContext = boost::asio::ssl::context;

/// Checks that the file is readable, so that later errors of OpenSSL are about its contents.
Result<Unit> readable(std::string_view what, const std::filesystem::path& file) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored))
        return Error{Code::invalid, fmt::format("{} {} is a folder", what, file.string())};
    errno = 0;
    if (std::ifstream(file).good()) return Unit{};
    const int reason = errno;
    return Error{Code::invalid,
                 fmt::format("{} {} cannot be read: {}", what, file.string(), reason ? std::strerror(reason) : "unknown reason"),
                 reason == EACCES ? "give the user this runs as permission to read it" : "check the path"};
}

Error tls_file_error(std::string_view what, const std::filesystem::path& file, const boost::system::error_code& error) {
    return Error{Code::invalid, fmt::format("{} {} is not usable: {}", what, file.string(), error.message()),
                 "it must be in PEM form"};
}

Result<std::shared_ptr<TlsContext>> make_tls_context(SslContext::method method) {
    ERR_clear_error();
    auto tls = std::make_shared<TlsContext>(method);
    SSL_CTX* native = tls->context.native_handle();
    SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
    SSL_CTX_set_options(native, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    if (SSL_CTX_set_cipher_list(native, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
        return Error{Code::internal, "OpenSSL knows none of the ciphers that are allowed"};
    // A key under a passphrase would make OpenSSL ask on the terminal.
    boost::system::error_code error;
    tls->context.set_password_callback([](std::size_t, SslContext::password_purpose) { return std::string(); }, error);
    return tls;
}

Result<Unit> load_identity(SslContext& context, const std::filesystem::path& certificate, const std::filesystem::path& key) {
    TRY(std::ignore, readable("the certificate", certificate));
    TRY(std::ignore, readable("the key", key));
    boost::system::error_code error;
    context.use_certificate_chain_file(certificate.string(), error);
    if (error) return tls_file_error("the certificate", certificate, error);
    // Before the key, to distinguish a key of a different certificate from a malformed one.
    SslContext probe(SslContext::tls);
    probe.set_password_callback([](std::size_t, SslContext::password_purpose) { return std::string(); }, error);
    probe.use_private_key_file(key.string(), SslContext::pem, error);
    if (error) return tls_file_error("the key", key, error);
    context.use_private_key_file(key.string(), SslContext::pem, error);
    if (error || SSL_CTX_check_private_key(context.native_handle()) != 1) {
        ERR_clear_error();
        return Error{Code::invalid,
                     fmt::format("the key {} does not belong to the certificate {}", key.string(), certificate.string()),
                     "give the key that the certificate was made from"};
    }
    return Unit{};
}

Result<Unit> load_authorities(SslContext& context, const std::filesystem::path& file) {
    TRY(std::ignore, readable("the authorities' file", file));
    boost::system::error_code error;
    context.load_verify_file(file.string(), error);
    if (error) return tls_file_error("the authorities' file", file, error);
    return Unit{};
}

} // namespace

Result<std::shared_ptr<TlsContext>> tls_server(const TlsServerOptions& options) {
    TRY(auto tls, make_tls_context(SslContext::tls_server));
    if (options.certificate.empty()) return Error{Code::invalid, "TLS needs a certificate", "give its file"};
    if (options.key.empty()) return Error{Code::invalid, "TLS needs the certificate's key", "give its file"};
    TRY(std::ignore, load_identity(tls->context, options.certificate, options.key));
    SSL_CTX* native = tls->context.native_handle();
    constexpr std::string_view session_name = "orrery";
    SSL_CTX_set_session_id_context(native, reinterpret_cast<const unsigned char*>(session_name.data()), session_name.size());
    if (options.client_ca.empty()) {
        if (options.require_client_certificate)
            return Error{Code::invalid, "client certificates are required but there is no authority to verify them with",
                         "give the authority's file"};
        return tls;
    }
    TRY(std::ignore, load_authorities(tls->context, options.client_ca));
    SSL_CTX_set_client_CA_list(native, SSL_load_client_CA_file(options.client_ca.c_str()));
    tls->context.set_verify_mode(boost::asio::ssl::verify_peer |
                                 (options.require_client_certificate ? boost::asio::ssl::verify_fail_if_no_peer_cert : 0));
    return tls;
}

Result<Unit> reload_tls(TlsContext& tls, const TlsServerOptions& options) {
    TRY(auto fresh, tls_server(options));
    // Connections hold what they were made with (OpenSSL counts references to it).
    tls.context = std::move(fresh->context);
    return Unit{};
}

Result<std::shared_ptr<TlsContext>> tls_client(const TlsClientOptions& options) {
    TRY(auto tls, make_tls_context(SslContext::tls_client));
    boost::system::error_code error;
    if (options.ca.empty()) {
        tls->context.set_default_verify_paths(error);
        if (error) return Error{Code::unavailable, fmt::format("the system's certificates cannot be used: {}", error.message())};
    } else {
        TRY(std::ignore, load_authorities(tls->context, options.ca));
    }
    if (options.certificate.empty() != options.key.empty())
        return Error{Code::invalid, "a client certificate and its key are of use only together", "give both files or none"};
    if (!options.certificate.empty()) {
        TRY(std::ignore, load_identity(tls->context, options.certificate, options.key));
    }
    tls->context.set_verify_mode(boost::asio::ssl::verify_peer);
    return tls;
}

} // namespace orrery::net
