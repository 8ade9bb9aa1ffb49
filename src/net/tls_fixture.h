#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace orrery::net::peers {

/// For tests only: an authority that signs certificates into PEM files.
class TestAuthority {
public:
    explicit TestAuthority(std::filesystem::path folder, std::string name = "test authority") : folder_(std::move(folder)) {
        key_ = make_key();
        certificate_ = make_certificate(key_.get(), name, "", nullptr, nullptr, 3600);
        write_certificate(folder_ / (name + ".pem"), certificate_.get());
        file_ = folder_ / (name + ".pem");
    }
    const std::filesystem::path& file() const { return file_; }
    struct Files {
        std::filesystem::path certificate, key;
    };
    /// `alternatives` as OpenSSL writes them: "DNS:localhost,IP:127.0.0.1"; `lifetime` in seconds may be over already.
    Files sign(const std::string& common_name, const std::string& alternatives, long lifetime = 3600) {
        const auto key = make_key();
        const auto certificate = make_certificate(key.get(), common_name, alternatives, certificate_.get(), key_.get(), lifetime);
        Files files{folder_ / (common_name + "-cert.pem"), folder_ / (common_name + "-key.pem")};
        write_certificate(files.certificate, certificate.get());
        std::FILE* file = std::fopen(files.key.c_str(), "w");
        PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
        std::fclose(file);
        return files;
    }

private:
    using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
    using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

    static Key make_key() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }
    static void add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
        X509V3_CTX context;
        X509V3_set_ctx_nodb(&context);
        X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
        X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
        X509_add_ext(certificate, extension, -1);
        X509_EXTENSION_free(extension);
    }
    static Certificate make_certificate(EVP_PKEY* key, const std::string& common_name, const std::string& alternatives,
                                        X509* issuer, EVP_PKEY* issuer_key, long lifetime) {
        static long serial = 1;
        Certificate certificate(X509_new(), X509_free);
        X509_set_version(certificate.get(), 2);
        ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
        X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -7200);
        X509_gmtime_adj(X509_getm_notAfter(certificate.get()), lifetime);
        X509_set_pubkey(certificate.get(), key);
        X509_NAME* name = X509_get_subject_name(certificate.get());
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                                   0);
        X509_set_issuer_name(certificate.get(), issuer ? X509_get_subject_name(issuer) : name);
        X509* signer = issuer ? issuer : certificate.get();
        if (!issuer) add_extension(certificate.get(), signer, NID_basic_constraints, "critical,CA:TRUE");
        if (!alternatives.empty()) add_extension(certificate.get(), signer, NID_subject_alt_name, alternatives);
        X509_sign(certificate.get(), issuer_key ? issuer_key : key, EVP_sha256());
        return certificate;
    }
    static void write_certificate(const std::filesystem::path& path, X509* certificate) {
        std::FILE* file = std::fopen(path.c_str(), "w");
        PEM_write_X509(file, certificate);
        std::fclose(file);
    }

    std::filesystem::path folder_, file_;
    Key key_{nullptr, EVP_PKEY_free};
    Certificate certificate_{nullptr, X509_free};
};

} // namespace orrery::net::peers
