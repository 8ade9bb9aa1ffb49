#include "resource/sealer.h"

#include "core/digest.h"
#include "core/ids.h"

#include <fmt/format.h>
#include <sodium.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace orrery::resource {

namespace {

constexpr std::string_view sealed_prefix = "v1:";
constexpr std::size_t nonce_size = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr std::size_t tag_size = crypto_aead_xchacha20poly1305_ietf_ABYTES;
static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == 32);

void start_sodium() {
    static const bool started = ::sodium_init() >= 0;
    if (!started) std::abort(); // no randomness: nothing sealed would be safe
}

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

std::string to_base64(const unsigned char* data, std::size_t size) {
    std::string out(sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL), '\0');
    ::sodium_bin2base64(out.data(), out.size(), data, size, sodium_base64_VARIANT_ORIGINAL);
    out.resize(std::strlen(out.c_str()));
    return out;
}

/// The bytes, or none where it is not base64.
std::vector<unsigned char> from_base64(std::string_view text) {
    std::vector<unsigned char> out(text.size() + 1); // never empty: sodium takes no null
    std::size_t size = 0;
    if (::sodium_base642bin(out.data(), out.size(), text.data(), text.size(), " \n\r", &size, nullptr,
                            sodium_base64_VARIANT_ORIGINAL) != 0)
        return {};
    out.resize(size);
    return out;
}

struct OwnedFd {
    int fd;
    explicit OwnedFd(int fd_) : fd(fd_) {}
    ~OwnedFd() {
        if (fd >= 0) ::close(fd);
    }
    OwnedFd(const OwnedFd&) = delete;
    OwnedFd& operator=(const OwnedFd&) = delete;
};

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const auto wrote = ::write(fd, text.data(), text.size());
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(wrote));
    }
    return true;
}

/// Creates the file atomically. The link fails if another process was faster; its key is used then.
Result<Unit> make_key_file(const std::filesystem::path& path) {
    std::array<unsigned char, 32> key{};
    ::randombytes_buf(key.data(), key.size());
    const auto text = to_base64(key.data(), key.size()) + "\n";
    ::sodium_memzero(key.data(), key.size());
    const auto failed = [&](std::string_view what) {
        return Error{Code::unavailable,
                     fmt::format("cannot make the key file {}: {}: {}", path.string(), what, std::strerror(errno)),
                     "check that its folder exists and can be written"};
    };
    const auto draft = path.string() + "." + random_id();
    {
        const OwnedFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (file.fd < 0) return failed("open");
        if (!write_all(file.fd, text) || ::fsync(file.fd) != 0) {
            auto error = failed("write");
            ::unlink(draft.c_str());
            return error;
        }
    }
    if (::link(draft.c_str(), path.c_str()) != 0 && errno != EEXIST) {
        auto error = failed("link");
        ::unlink(draft.c_str());
        return error;
    }
    ::unlink(draft.c_str());
    const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    const OwnedFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.fd >= 0) ::fsync(directory.fd);
    return Unit{};
}

} // namespace

Result<std::unique_ptr<Sealer>> Sealer::open(const std::filesystem::path& key_file, Missing missing) {
    start_sodium();
    OwnedFd file(::open(key_file.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.fd < 0 && errno == ENOENT && missing == Missing::make) {
        TRY([[maybe_unused]] auto made, make_key_file(key_file));
        file.fd = ::open(key_file.c_str(), O_RDONLY | O_CLOEXEC);
    }
    if (file.fd < 0)
        return Error{errno == ENOENT ? Code::not_found : Code::unavailable,
                     fmt::format("cannot open the key file {}: {}", key_file.string(), std::strerror(errno)),
                     "secrets in the store can be read only with the key they were sealed with; restore it from a backup"};
    struct stat about{};
    if (::fstat(file.fd, &about) != 0 || !S_ISREG(about.st_mode))
        return Error{Code::invalid, fmt::format("the key file {} is not a plain file", key_file.string())};
    if ((about.st_mode & 077U) != 0)
        return Error{Code::denied,
                     fmt::format("the key file {} can be read by others (mode {:03o})", key_file.string(), about.st_mode & 0777U),
                     fmt::format("chmod 600 {}", key_file.string())};
    std::array<char, 256> raw{};
    std::size_t size = 0;
    while (size < raw.size()) {
        const auto got = ::read(file.fd, raw.data() + size, raw.size() - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return Error{Code::unavailable,
                         fmt::format("cannot read the key file {}: {}", key_file.string(), std::strerror(errno))};
        if (got == 0) break;
        size += static_cast<std::size_t>(got);
    }
    std::unique_ptr<Sealer> sealer(new Sealer);
    auto decoded = from_base64({raw.data(), size});
    const bool is_text = decoded.size() == sealer->key_.size(), is_raw = size == sealer->key_.size();
    if (is_raw)
        std::memcpy(sealer->key_.data(), raw.data(), sealer->key_.size());
    else if (is_text)
        std::memcpy(sealer->key_.data(), decoded.data(), sealer->key_.size());
    ::sodium_memzero(raw.data(), raw.size());
    if (!decoded.empty()) ::sodium_memzero(decoded.data(), decoded.size());
    if (!is_raw && !is_text)
        return Error{Code::invalid, fmt::format("the key file {} does not hold a key: {} bytes", key_file.string(), size),
                     "it must hold 32 bytes, or those in base64; restore it from a backup, or make one with: head -c 32 "
                     "/dev/urandom | base64"};
    return sealer;
}

std::unique_ptr<Sealer> Sealer::ephemeral() {
    start_sodium();
    std::unique_ptr<Sealer> sealer(new Sealer);
    ::randombytes_buf(sealer->key_.data(), sealer->key_.size());
    return sealer;
}

Sealer::~Sealer() { ::sodium_memzero(key_.data(), key_.size()); }

std::string Sealer::seal(std::string_view plain, std::string_view where) const {
    std::vector<unsigned char> out(nonce_size + plain.size() + tag_size);
    ::randombytes_buf(out.data(), nonce_size);
    unsigned long long size = 0;
    ::crypto_aead_xchacha20poly1305_ietf_encrypt(out.data() + nonce_size, &size, bytes_of(plain), plain.size(), bytes_of(where),
                                                 where.size(), nullptr, out.data(), key_.data());
    return std::string(sealed_prefix) + to_base64(out.data(), nonce_size + size);
}

Result<std::string> Sealer::unseal(std::string_view sealed, std::string_view where) const {
    const Error refused{Code::denied,
                        fmt::format("the secret {} cannot be opened: it was sealed under another key, or for another place", where),
                        "start the server with the key file it was sealed with, or set the secret again"};
    if (!sealed.starts_with(sealed_prefix)) return refused;
    const auto raw = from_base64(sealed.substr(sealed_prefix.size()));
    if (raw.size() < nonce_size + tag_size) return refused;
    std::string plain(raw.size() - nonce_size - tag_size, '\0');
    unsigned long long size = 0;
    if (::crypto_aead_xchacha20poly1305_ietf_decrypt(reinterpret_cast<unsigned char*>(plain.data()), &size, nullptr,
                                                     raw.data() + nonce_size, raw.size() - nonce_size, bytes_of(where),
                                                     where.size(), raw.data(), key_.data()) != 0)
        return refused;
    plain.resize(size);
    return plain;
}

std::string Sealer::fingerprint() const {
    constexpr std::string_view purpose = "orrery key fingerprint";
    std::array<unsigned char, 16> digest{};
    ::crypto_generichash(digest.data(), digest.size(), bytes_of(purpose), purpose.size(), key_.data(), key_.size());
    return to_hex({reinterpret_cast<const char*>(digest.data()), 8});
}

std::string Sealer::keyed_hash(std::string_view purpose, std::string_view text) const {
    const auto message = fmt::format("orrery keyed hash\n{}\n{}", purpose, text);
    std::array<unsigned char, 32> digest{};
    ::crypto_generichash(digest.data(), digest.size(), bytes_of(message), message.size(), key_.data(), key_.size());
    return to_hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

} // namespace orrery::resource
