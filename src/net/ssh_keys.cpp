#include "net/ssh_keys.h"

#include "core/truncate.h"
#include "net/ssh.h"

#include <fmt/format.h>

namespace orrery::net {

namespace {

/// libssh's strings are freed by libssh.
std::string taken(char* text) {
    std::string out = text == nullptr ? "" : text;
    ssh_string_free_char(text);
    return out;
}

int no_passphrase(const char*, char*, size_t, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
}

} // namespace

Result<SshKey> read_ssh_private_key(const std::string& text) {
    const std::string remedy = "give a private key as ssh-keygen writes it, without a passphrase";
    if (text.find("PRIVATE KEY-----") == std::string::npos)
        return Error{Code::invalid, "the private key is no private key: it has no line \"-----BEGIN ... PRIVATE KEY-----\"",
                     remedy};
    if (text.size() > 64 * 1024 || text.find('\0') != std::string::npos)
        return Error{Code::invalid, "the private key is no private key: it is too long, or not text", remedy};
    // libssh wants the newline after the last line, which a Secret may have lost.
    const auto whole = text.ends_with('\n') ? text : text + "\n";
    bool asked = false;
    ssh_key key = nullptr;
    const int rc = ssh_pki_import_privkey_base64(whole.c_str(), nullptr, no_passphrase, &asked, &key);
    SshKey owned(key);
    if (asked || whole.find("ENCRYPTED") != std::string::npos)
        return Error{Code::invalid, "the private key has a passphrase", "make one without: ssh-keygen -p -N '' -f FILE"};
    if (rc != SSH_OK || key == nullptr) return Error{Code::invalid, "the private key cannot be read", remedy};
    return owned;
}

Result<SshKey> read_ssh_public_key(std::string_view text) {
    const Error bad{Code::invalid, fmt::format("\"{}\" is no public key", truncate(text, 40)),
                    "write it as in a known_hosts file, without the host: \"ssh-ed25519 AAAA...\""};
    const auto space = text.find(' ');
    if (space == std::string_view::npos || text.size() > 16 * 1024) return bad;
    const std::string type(text.substr(0, space));
    auto rest = text.substr(space + 1);
    const std::string base64(rest.substr(0, rest.find_first_of(" \r\n")));
    if (base64.empty()) return bad;
    const auto known = ssh_key_type_from_name(type.c_str());
    if (known == SSH_KEYTYPE_UNKNOWN) return bad;
    ssh_key key = nullptr;
    if (ssh_pki_import_pubkey_base64(base64.c_str(), known, &key) != SSH_OK || key == nullptr) return bad;
    return SshKey(key);
}

std::string ssh_public_key_text(ssh_key key) {
    char* base64 = nullptr;
    if (ssh_pki_export_pubkey_base64(key, &base64) != SSH_OK) return {};
    const auto type = ssh_key_type(key);
    // ssh_key_type_to_char names the curve too.
    return fmt::format("{} {}", ssh_key_type_to_char(type), taken(base64));
}

std::string ssh_key_fingerprint(ssh_key key) {
    unsigned char* hash = nullptr;
    std::size_t size = 0;
    if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size) != SSH_OK) return "SHA256:?";
    auto text = taken(ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size));
    ssh_clean_pubkey_hash(&hash);
    return text;
}

std::string ssh_host_key_algorithms(std::string_view public_key) {
    const auto type = public_key.substr(0, public_key.find(' '));
    if (type == "ssh-rsa") return "rsa-sha2-512,rsa-sha2-256";
    return std::string(type);
}

Result<std::string> ssh_fingerprint(std::string_view public_key) {
    TRY(const auto key, read_ssh_public_key(public_key));
    return ssh_key_fingerprint(key.get());
}

Result<Unit> check_ssh_private_key(const std::string& text) {
    TRY(std::ignore, read_ssh_private_key(text));
    return Unit{};
}

} // namespace orrery::net
