#include "drivers/ldap/ldap.h"

#include "core/ascii.h"
#include "core/log.h"
#include "core/url_text.h"
#include "drivers/ldap/ldap_connection.h"
#include "drivers/ldap/ldap_text.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <list>

namespace orrery::drivers {

namespace {

constexpr std::size_t threads = 2, max_in_progress = 32;
constexpr int max_groups = 1000;

/// The host of "ldap://host:port/...", IPv6 without brackets.
std::string host_of(std::string_view url) {
    auto rest = url.substr(url.find("://") + 3);
    rest = rest.substr(0, rest.find('/'));
    if (rest.starts_with('[')) return std::string(rest.substr(1, rest.find(']') - 1));
    return std::string(rest.substr(0, rest.find(':')));
}

struct Answer {
    std::optional<identity::Principal> principal; // nothing: the directory has no such user
    std::string refusal;                          // for the log, never for the user
};

identity::Role role_of(const LdapOptions& options, const std::vector<std::string>& group_names) {
    auto role = identity::Role::nobody;
    for (const auto& [group, gives] : options.roles) {
        const auto wanted = ascii_lower(group);
        if (std::any_of(group_names.begin(), group_names.end(), [&](const auto& name) { return ascii_lower(name) == wanted; }))
            role = std::max(role, gives);
    }
    return role;
}

/// The names of the user's groups: DN and cn of each.
Result<std::vector<std::string>> groups_of(LdapConnection& connection, const LdapOptions& options, const std::string& user,
                                           const LdapConnection::Entry& entry) {
    std::vector<std::string> names;
    if (options.group_base.empty()) {
        const auto found = entry.attributes.find("memberof");
        if (found == entry.attributes.end()) return names;
        for (const auto& dn : found->second) {
            names.push_back(dn);
            names.push_back(first_value(dn));
        }
        return names;
    }
    TRY(const auto groups,
        connection.search(options.group_base, fill_filter(options.group_filter, user, entry.dn), {"cn"}, max_groups));
    for (const auto& group : groups) {
        names.push_back(group.dn);
        if (const auto found = group.attributes.find("cn"); found != group.attributes.end())
            names.insert(names.end(), found->second.begin(), found->second.end());
    }
    return names;
}

Result<Answer> check_password(const LdapOptions& options, const std::string& user, const std::string& password, SteadyTime deadline,
                              std::shared_ptr<ConnectionAborter> aborter) {
    LdapConnection::Options to;
    to.url = options.url;
    to.ca = options.ca;
    to.start_tls = options.url.starts_with("ldap:") && !options.plain_on_loopback;
    to.deadline = deadline;
    to.aborter = std::move(aborter);
    TRY(auto connection, LdapConnection::open(to));
    if (!options.bind_dn.empty()) {
        TRY(const bool accepted, connection.bind(options.bind_dn, options.bind_password));
        if (!accepted)
            return Error{Code::unavailable, fmt::format("{} refuses the password of {}", options.url, options.bind_dn),
                         "check bind_dn and its password file"};
    }
    auto found =
        connection.search(options.user_base, fill_filter(options.user_filter, user, {}), {options.user_attribute, "memberOf"}, 1);
    if (!found.ok() && found.error().code == Code::too_large) return Answer{identity::Principal{}, "more than one entry matches"};
    if (!found.ok()) return std::move(found).error();
    if (found->empty()) return Answer{};
    const auto& entry = found->front();
    if (entry.dn.empty()) return Answer{identity::Principal{}, "its entry has no name"};

    identity::Principal principal;
    principal.user = user;
    if (const auto named = entry.attributes.find(ascii_lower(options.user_attribute));
        named != entry.attributes.end() && !named->second.empty()) {
        // An entry may have several names; the one that was typed is preferred.
        const auto& names = named->second;
        const auto typed =
            std::find_if(names.begin(), names.end(), [&](const auto& name) { return ascii_lower(name) == ascii_lower(user); });
        principal.user = typed != names.end() ? *typed : names.front();
    }
    TRY(const auto groups, groups_of(connection, options, user, entry));
    const auto role = role_of(options, groups);
    // The bind is made even without a role, so that the time of the check does not reveal whether the user has one.
    TRY(const bool right, connection.bind(entry.dn, password));
    if (!right) return Answer{identity::Principal{}, "the directory refuses the password"};
    if (role == identity::Role::nobody)
        return Answer{identity::Principal{}, fmt::format("none of the groups of {} gives a role", entry.dn)};
    principal.role = role;
    return Answer{std::move(principal), {}};
}

/// Registers a check in the list of checks in progress, while the object exists.
struct CheckInProgress {
    using List = std::list<std::shared_ptr<ConnectionAborter>>;
    explicit CheckInProgress(std::shared_ptr<List> list_)
        : aborter(std::make_shared<ConnectionAborter>()), list(std::move(list_)), entry(list->insert(list->end(), aborter)) {}
    ~CheckInProgress() { list->erase(entry); }
    CheckInProgress(const CheckInProgress&) = delete;
    CheckInProgress& operator=(const CheckInProgress&) = delete;

    std::shared_ptr<ConnectionAborter> aborter;
    std::shared_ptr<List> list; // shared: a coroutine that is destroyed late outlives the source
    List::iterator entry;
};

class LdapSource final : public identity::PasswordSource {
public:
    explicit LdapSource(LdapOptions options) : options_(std::make_shared<const LdapOptions>(std::move(options))), pool_(threads) {}
    ~LdapSource() override {
        for (const auto& aborter : *in_progress_) aborter->abort();
        pool_.join();
    }

    std::string name() const override { return "ldap"; }

    Task<std::optional<identity::Principal>> check(Context ctx, std::string user, std::string password) override {
        // RFC 4513 5.1.2: a bind with a name and an empty password succeeds, as an anonymous bind.
        if (user.empty() || password.empty()) co_return Error{Code::unauthenticated, "a login needs a user and a password"};
        if (in_progress_->size() >= max_in_progress)
            co_return Error{Code::throttled, "too many logins wait for the directory", "try again in a few seconds"};
        const auto deadline = std::min(real_clock().steady() + options_->timeout, ctx.deadline().value_or(SteadyTime::max()));
        const CheckInProgress mine(in_progress_);
        asio::steady_timer at_deadline(co_await asio::this_coro::executor, deadline);
        at_deadline.async_wait([aborter = mine.aborter](boost::system::error_code error) {
            if (!error) aborter->abort();
        });
        auto work = [options = options_, user, password = std::move(password), deadline,
                     aborter = mine.aborter]() -> Result<Answer> {
            if (real_clock().steady() >= deadline)
                return Error{Code::timeout, fmt::format("no connection to {} in time: other logins wait for it", options->url)};
            return check_password(*options, user, password, deadline, aborter);
        };
        CO_TRY(auto answer, co_await blocking(pool_, std::move(work)));
        if (!answer.principal) co_return std::optional<identity::Principal>();
        if (!answer.refusal.empty()) {
            log::info(ctx, "LDAP login refused: reason=\"{}\"", answer.refusal);
            co_return Error{Code::unauthenticated, "the directory refuses the login"};
        }
        co_return answer.principal;
    }

private:
    std::shared_ptr<const LdapOptions> options_;
    Pool pool_;
    std::shared_ptr<CheckInProgress::List> in_progress_ = std::make_shared<CheckInProgress::List>();
};

} // namespace

Result<std::unique_ptr<identity::PasswordSource>> ldap_source(LdapOptions options) {
    Error error{Code::invalid, "the LDAP settings are not valid"};
    const auto wrong = [&](std::string field, std::string message) {
        error.fields.push_back({"identity.ldap." + field, std::move(message)});
    };
    const bool plain = options.url.starts_with("ldap://"), encrypted = options.url.starts_with("ldaps://");
    if (!plain && !encrypted)
        wrong("url", "must begin with ldaps:// or ldap://");
    else if (options.url.find_first_of(" ,") != std::string::npos || host_of(options.url).empty())
        wrong("url", "must name one host");
    if (has_userinfo(options.url)) wrong("url", "must not hold a user; set bind_dn and bind_password_file");
    if (options.plain_on_loopback && plain && !is_loopback_host(host_of(options.url)))
        wrong("url", "must be a loopback address without TLS");
    if (options.plain_on_loopback && encrypted) options.plain_on_loopback = false;
    if (options.user_base.empty()) wrong("user_base", "must not be empty");
    if (options.user_filter.find("{user}") == std::string::npos) wrong("user_filter", "must contain {user}");
    if (!options.group_base.empty() && options.group_filter.find("{dn}") == std::string::npos &&
        options.group_filter.find("{user}") == std::string::npos)
        wrong("group_filter", "must contain {dn} or {user}");
    if (!options.bind_dn.empty() && options.bind_password.empty()) wrong("bind_dn", "needs a password");
    if (options.roles.empty()) wrong("roles", "must not be empty: no user could log in");
    if (options.user_attribute.empty()) wrong("user_attribute", "must not be empty");
    if (!error.fields.empty()) {
        error.message += ": " + error.fields.front().path + " " + error.fields.front().message;
        return error;
    }
    return std::unique_ptr<identity::PasswordSource>(std::make_unique<LdapSource>(std::move(options)));
}

} // namespace orrery::drivers
