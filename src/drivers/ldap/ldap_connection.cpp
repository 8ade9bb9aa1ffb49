#include "drivers/ldap/ldap_connection.h"

#include "core/ascii.h"

#include <fmt/format.h>
#include <lber.h>
#include <ldap.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace orrery::drivers {

struct LdapConnection::Handle {
    LDAP* ldap = nullptr;
    std::string url;
    SteadyTime deadline;
    std::shared_ptr<ConnectionAborter> aborter;
    ldap_conncb on_connect{};
    ~Handle() {
        if (ldap) ldap_unbind_ext(ldap, nullptr, nullptr);
    }
};

namespace {

constexpr auto system_authorities = "/etc/ssl/certs/ca-certificates.crt";
constexpr ber_len_t max_answer_size = 1U << 20U;

timeval time_left(SteadyTime deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return {0, 1000}; // libldap treats zero as "poll"
    return {left / 1'000'000, left % 1'000'000};
}

struct FreeMessage {
    void operator()(LDAPMessage* message) const { ldap_msgfree(message); }
};
using MessagePtr = std::unique_ptr<LDAPMessage, FreeMessage>;

struct FreeMemory {
    void operator()(char* memory) const { ldap_memfree(memory); }
};
using TextPtr = std::unique_ptr<char, FreeMemory>;

/// Converts libldap's error code; the message names the directory.
Error ldap_failure(LDAP* ldap, const std::string& url, SteadyTime deadline, int code, std::string_view what) {
    char* raw = nullptr;
    ldap_get_option(ldap, LDAP_OPT_DIAGNOSTIC_MESSAGE, &raw);
    const TextPtr diagnostic(raw);
    auto message = fmt::format("{} on {}: {}", what, url, ldap_err2string(code));
    if (diagnostic && *diagnostic) message += fmt::format(" ({})", diagnostic.get());
    const bool late = code == LDAP_TIMEOUT || code == LDAP_TIMELIMIT_EXCEEDED || std::chrono::steady_clock::now() >= deadline;
    return {late ? Code::timeout : Code::unavailable, std::move(message)};
}

/// Called by libldap after the TCP connection is made and before TLS begins.
int connected(LDAP*, Sockbuf* buffer, LDAPURLDesc*, sockaddr*, ldap_conncb* on_connect) {
    int socket = -1;
    if (ber_sockbuf_ctrl(buffer, LBER_SB_OPT_GET_FD, &socket) == 1 && socket >= 0)
        static_cast<ConnectionAborter*>(on_connect->lc_arg)->watch(socket);
    return 0;
}

void disconnected(LDAP*, Sockbuf*, ldap_conncb*) {}

} // namespace

ConnectionAborter::~ConnectionAborter() {
    if (socket_ >= 0) ::close(socket_);
}

void ConnectionAborter::abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
}

void ConnectionAborter::watch(int socket) {
    const std::lock_guard lock(mutex_);
    if (socket_ >= 0) ::close(socket_);
    socket_ = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
    if (aborted_ && socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
}

LdapConnection::LdapConnection(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
LdapConnection::LdapConnection(LdapConnection&&) noexcept = default;
LdapConnection::~LdapConnection() = default;

Result<LdapConnection> LdapConnection::open(const Options& options) {
    auto handle = std::make_unique<Handle>();
    handle->url = options.url;
    handle->deadline = options.deadline;
    handle->aborter = options.aborter;
    if (const int code = ldap_initialize(&handle->ldap, options.url.c_str()); code != LDAP_SUCCESS)
        return Error{Code::unavailable, fmt::format("{} cannot be used: {}", options.url, ldap_err2string(code))};
    auto* ldap = handle->ldap;
    const int version = LDAP_VERSION3, demand = LDAP_OPT_X_TLS_DEMAND, min_tls = LDAP_OPT_X_TLS_PROTOCOL_TLS1_2, client = 0;
    const auto left = time_left(options.deadline);
    // Every relevant option is set here, so that ldap.conf cannot change it.
    bool set = ldap_set_option(ldap, LDAP_OPT_PROTOCOL_VERSION, &version) == LDAP_OPT_SUCCESS;
    set = set && ldap_set_option(ldap, LDAP_OPT_REFERRALS, LDAP_OPT_OFF) ==
                     LDAP_OPT_SUCCESS; // a referral would send passwords to unknown servers
    set = set && ldap_set_option(ldap, LDAP_OPT_RESTART, LDAP_OPT_ON) == LDAP_OPT_SUCCESS;
    set = set && ldap_set_option(ldap, LDAP_OPT_NETWORK_TIMEOUT, &left) == LDAP_OPT_SUCCESS;
    set = set && ldap_set_option(ldap, LDAP_OPT_TIMEOUT, &left) == LDAP_OPT_SUCCESS;
    set = set && ldap_set_option(ldap, LDAP_OPT_X_TLS_REQUIRE_CERT, &demand) == LDAP_OPT_SUCCESS;
    set = set && ldap_set_option(ldap, LDAP_OPT_X_TLS_PROTOCOL_MIN, &min_tls) == LDAP_OPT_SUCCESS;
    set = set && ldap_set_option(ldap, LDAP_OPT_X_TLS_CACERTFILE, options.ca.empty() ? system_authorities : options.ca.c_str()) ==
                     LDAP_OPT_SUCCESS;
    if (options.aborter) {
        handle->on_connect = {&connected, &disconnected, options.aborter.get()};
        set = set && ldap_set_option(ldap, LDAP_OPT_CONNECT_CB, &handle->on_connect) == LDAP_OPT_SUCCESS;
    }
    const bool encrypted = options.start_tls || options.url.starts_with("ldaps:");
    if (encrypted) set = set && ldap_set_option(ldap, LDAP_OPT_X_TLS_NEWCTX, &client) == LDAP_OPT_SUCCESS;
    if (!set)
        return Error{Code::unavailable,
                     fmt::format("the connection to {} cannot be set up with the authority {}", options.url,
                                 options.ca.empty() ? system_authorities : options.ca),
                     "check that the file exists and holds certificates in PEM"};
    const auto with_advice = [&](int code, std::string_view what) {
        auto error = ldap_failure(ldap, options.url, options.deadline, code, what);
        if (encrypted && error.code == Code::unavailable)
            error.remedy = "check that it is up, and that its certificate names this host and is signed by the authority";
        return error;
    };
    if (const int code = ldap_connect(ldap); code != LDAP_SUCCESS) return with_advice(code, "connecting");
    Sockbuf* buffer = nullptr;
    auto max_incoming = max_answer_size;
    if (ldap_get_option(ldap, LDAP_OPT_SOCKBUF, &buffer) == LDAP_OPT_SUCCESS && buffer)
        ber_sockbuf_ctrl(buffer, LBER_SB_OPT_SET_MAX_INCOMING, &max_incoming);
    if (options.start_tls)
        if (const int code = ldap_start_tls_s(ldap, nullptr, nullptr); code != LDAP_SUCCESS) return with_advice(code, "StartTLS");
    return LdapConnection(std::move(handle));
}

Result<bool> LdapConnection::bind(const std::string& dn, const std::string& password) {
    auto* ldap = handle_->ldap;
    if (password.empty() && !dn.empty()) return false;
    berval secret{password.size(), const_cast<char*>(password.data())};
    int id = 0;
    int code = ldap_sasl_bind(ldap, dn.c_str(), LDAP_SASL_SIMPLE, &secret, nullptr, nullptr, &id);
    if (code != LDAP_SUCCESS) return ldap_failure(ldap, handle_->url, handle_->deadline, code, "binding");
    auto left = time_left(handle_->deadline);
    LDAPMessage* raw = nullptr;
    const int got = ldap_result(ldap, id, LDAP_MSG_ALL, &left, &raw);
    const MessagePtr message(raw);
    if (got == 0) return ldap_failure(ldap, handle_->url, handle_->deadline, LDAP_TIMEOUT, "binding");
    if (got < 0) {
        ldap_get_option(ldap, LDAP_OPT_RESULT_CODE, &code);
        return ldap_failure(ldap, handle_->url, handle_->deadline, code, "binding");
    }
    int answer = LDAP_OTHER;
    code = ldap_parse_result(ldap, message.get(), &answer, nullptr, nullptr, nullptr, nullptr, 0);
    if (code != LDAP_SUCCESS) return ldap_failure(ldap, handle_->url, handle_->deadline, code, "binding");
    switch (answer) {
    case LDAP_SUCCESS: return true;
    case LDAP_BUSY:
    case LDAP_UNAVAILABLE:
    case LDAP_OPERATIONS_ERROR:
    case LDAP_PROTOCOL_ERROR:
    case LDAP_CONFIDENTIALITY_REQUIRED:
    case LDAP_STRONG_AUTH_REQUIRED:
    case LDAP_OTHER: return ldap_failure(ldap, handle_->url, handle_->deadline, answer, "binding");
    default: return false; // a wrong password, a locked or expired account: each is a refusal
    }
}

Result<std::vector<LdapConnection::Entry>> LdapConnection::search(const std::string& base, const std::string& filter,
                                                                  const std::vector<std::string>& attributes, int limit) {
    auto* ldap = handle_->ldap;
    const auto what = fmt::format("searching {} below {}", filter, base);
    std::vector<char*> wanted;
    for (const auto& attribute : attributes) wanted.push_back(const_cast<char*>(attribute.c_str()));
    wanted.push_back(nullptr);
    auto left = time_left(handle_->deadline);
    int id = 0;
    int code = ldap_search_ext(ldap, base.c_str(), LDAP_SCOPE_SUBTREE, filter.c_str(), wanted.data(), 0, nullptr, nullptr, &left,
                               limit + 1, &id);
    if (code != LDAP_SUCCESS) return ldap_failure(ldap, handle_->url, handle_->deadline, code, what);
    std::vector<Entry> entries;
    for (;;) {
        left = time_left(handle_->deadline);
        LDAPMessage* raw = nullptr;
        const int got = ldap_result(ldap, id, LDAP_MSG_ONE, &left, &raw);
        const MessagePtr message(raw);
        if (got == 0) return ldap_failure(ldap, handle_->url, handle_->deadline, LDAP_TIMEOUT, what);
        if (got < 0) {
            ldap_get_option(ldap, LDAP_OPT_RESULT_CODE, &code);
            return ldap_failure(ldap, handle_->url, handle_->deadline, code, what);
        }
        if (got == LDAP_RES_SEARCH_ENTRY) {
            if (entries.size() >= static_cast<std::size_t>(limit)) {
                ldap_abandon_ext(ldap, id, nullptr, nullptr);
                return Error{Code::too_large, fmt::format("{} gives more than {}", what, limit)};
            }
            Entry entry;
            const TextPtr dn(ldap_get_dn(ldap, message.get()));
            entry.dn = dn ? dn.get() : "";
            for (const auto& attribute : attributes) {
                auto** values = ldap_get_values_len(ldap, message.get(), attribute.c_str());
                if (!values) continue;
                auto& into = entry.attributes[ascii_lower(attribute)];
                for (auto** value = values; *value; ++value) into.emplace_back((*value)->bv_val, (*value)->bv_len);
                ldap_value_free_len(values);
            }
            entries.push_back(std::move(entry));
            continue;
        }
        if (got != LDAP_RES_SEARCH_RESULT) continue; // referrals to other servers
        int answer = LDAP_OTHER;
        code = ldap_parse_result(ldap, message.get(), &answer, nullptr, nullptr, nullptr, nullptr, 0);
        if (code != LDAP_SUCCESS) return ldap_failure(ldap, handle_->url, handle_->deadline, code, what);
        if (answer == LDAP_SIZELIMIT_EXCEEDED) return Error{Code::too_large, fmt::format("{} gives more than {}", what, limit)};
        if (answer != LDAP_SUCCESS) return ldap_failure(ldap, handle_->url, handle_->deadline, answer, what);
        return entries;
    }
}

} // namespace orrery::drivers
