#include "drivers/ldap/ldap.h"

#include "core/log.h"
#include "drivers/ldap/ldap_connection.h"
#include "drivers/ldap/ldap_text.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <list>

namespace orrery::drivers {

namespace {

constexpr std::size_t threads = 2, most_under_way = 32;
constexpr int most_groups = 1000;

/// The host of "ldap://host:port/...", IPv6 without brackets.
std::string host_of(std::string_view url) {
    auto rest = url.substr(url.find("://") + 3);
    rest = rest.substr(0, rest.find('/'));
    if (rest.starts_with('[')) return std::string(rest.substr(1, rest.find(']') - 1));
    return std::string(rest.substr(0, rest.find(':')));
}

bool is_loopback(const std::string& host) {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(host, error);
    return error ? host == "localhost" : address.is_loopback();
}

struct Answer {
    std::optional<identity::Principal> principal; // nothing: not known
    std::string refusal;                          // for the log; never for the user
};

identity::Role role_of(const LdapOptions& options, const std::vector<std::string>& group_names) {
    auto role = identity::Role::nobody;
    for (const auto& [group, gives] : options.roles) {
        const auto wanted = fold_case(group);
        if (std::any_of(group_names.begin(), group_names.end(), [&](const auto& name) { return fold_case(name) == wanted; }))
            role = std::max(role, gives);
    }
    return role;
}

/// Every name the user's groups go by: their DN and cn.
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
        connection.search(options.group_base, fill_filter(options.group_filter, user, entry.dn), {"cn"}, most_groups));
    for (const auto& group : groups) {
        names.push_back(group.dn);
        if (const auto found = group.attributes.find("cn"); found != group.attributes.end())
            names.insert(names.end(), found->second.begin(), found->second.end());
    }
    return names;
}

Result<Answer> ask(const LdapOptions& options, const std::string& user, const std::string& password, SteadyTime deadline,
                   std::shared_ptr<Scissors> scissors) {
    LdapConnection::Options how;
    how.url = options.url;
    how.ca = options.ca;
    how.start_tls = options.url.starts_with("ldap:") && !options.plain_on_loopback;
    how.deadline = deadline;
    how.scissors = std::move(scissors);
    TRY(auto connection, LdapConnection::open(how));
    if (!options.bind_dn.empty()) {
        TRY(const bool taken, connection.bind(options.bind_dn, options.bind_password));
        if (!taken)
            return Error{Code::unavailable, fmt::format("{} does not take the password of {}", options.url, options.bind_dn),
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
    if (const auto named = entry.attributes.find(fold_case(options.user_attribute));
        named != entry.attributes.end() && !named->second.empty()) {
        // An entry may have several; the one that was typed is as good as any.
        const auto& names = named->second;
        const auto typed =
            std::find_if(names.begin(), names.end(), [&](const auto& name) { return fold_case(name) == fold_case(user); });
        principal.user = typed != names.end() ? *typed : names.front();
    }
    TRY(const auto groups, groups_of(connection, options, user, entry));
    const auto role = role_of(options, groups);
    // The password is tried in any case, so that what follows takes the same time whoever it is.
    TRY(const bool right, connection.bind(entry.dn, password));
    if (!right) return Answer{identity::Principal{}, "the directory refuses the password"};
    if (role == identity::Role::nobody)
        return Answer{identity::Principal{}, fmt::format("none of the groups of {} gives a role", entry.dn)};
    principal.role = role;
    return Answer{std::move(principal), {}};
}

/// One check in the list of those under way, while it lives.
struct UnderWay {
    using List = std::list<std::shared_ptr<Scissors>>;
    explicit UnderWay(std::shared_ptr<List> list_)
        : scissors(std::make_shared<Scissors>()), list(std::move(list_)), place(list->insert(list->end(), scissors)) {}
    ~UnderWay() { list->erase(place); }
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;

    std::shared_ptr<Scissors> scissors;
    std::shared_ptr<List> list; // which a coroutine that is destroyed late may outlive its source with
    List::iterator place;
};

class LdapSource final : public identity::PasswordSource {
public:
    explicit LdapSource(LdapOptions options) : options_(std::make_shared<const LdapOptions>(std::move(options))), pool_(threads) {}
    ~LdapSource() override {
        for (const auto& scissors : *under_way_) scissors->cut();
        pool_.join();
    }

    std::string name() const override { return "ldap"; }

    Task<std::optional<identity::Principal>> check(Context ctx, std::string user, std::string password) override {
        // RFC 4513 5.1.2: a bind with a name and no password succeeds, as nobody.
        if (user.empty() || password.empty()) co_return Error{Code::unauthenticated, "a user and a password are needed"};
        if (under_way_->size() >= most_under_way)
            co_return Error{Code::throttled, "too many logins wait for the directory", "try again in some seconds"};
        const auto deadline = std::min(real_clock().steady() + options_->timeout, ctx.deadline().value_or(SteadyTime::max()));
        const UnderWay mine(under_way_);
        asio::steady_timer at_deadline(co_await asio::this_coro::executor, deadline);
        at_deadline.async_wait([scissors = mine.scissors](boost::system::error_code error) {
            if (!error) scissors->cut();
        });
        auto work = [options = options_, user, password = std::move(password), deadline,
                     scissors = mine.scissors]() -> Result<Answer> {
            if (real_clock().steady() >= deadline)
                return Error{Code::timeout, fmt::format("{} was not asked in time: others are waiting for it", options->url)};
            return ask(*options, user, password, deadline, scissors);
        };
        CO_TRY(auto answer, co_await blocking(pool_, std::move(work)));
        if (!answer.principal) co_return std::optional<identity::Principal>();
        if (!answer.refusal.empty()) {
            log::info(ctx, "ldap: a login is refused: {}", answer.refusal);
            co_return Error{Code::unauthenticated, "the directory refuses the login"};
        }
        co_return answer.principal;
    }

private:
    std::shared_ptr<const LdapOptions> options_;
    Pool pool_;
    std::shared_ptr<UnderWay::List> under_way_ = std::make_shared<UnderWay::List>();
};

} // namespace

Result<std::unique_ptr<identity::PasswordSource>> ldap_source(LdapOptions options) {
    Error error{Code::invalid, "the options of the LDAP directory are not right"};
    const auto wrong = [&](std::string field, std::string message) {
        error.fields.push_back({"identity.ldap." + field, std::move(message)});
    };
    const bool plain = options.url.starts_with("ldap://"), encrypted = options.url.starts_with("ldaps://");
    if (!plain && !encrypted)
        wrong("url", "must begin with ldaps:// or ldap://");
    else if (options.url.find_first_of(" ,") != std::string::npos || host_of(options.url).empty())
        wrong("url", "must name one host");
    if (options.plain_on_loopback && plain && !is_loopback(host_of(options.url)))
        wrong("url", "must be a loopback address where TLS is not used");
    if (options.plain_on_loopback && encrypted) options.plain_on_loopback = false;
    if (options.user_base.empty()) wrong("user_base", "is empty: where are the users?");
    if (options.user_filter.find("{user}") == std::string::npos) wrong("user_filter", "has no {user} in it");
    if (!options.group_base.empty() && options.group_filter.find("{dn}") == std::string::npos &&
        options.group_filter.find("{user}") == std::string::npos)
        wrong("group_filter", "has neither {dn} nor {user} in it");
    if (!options.bind_dn.empty() && options.bind_password.empty()) wrong("bind_dn", "needs a password");
    if (options.roles.empty()) wrong("roles", "is empty: nobody could log in");
    if (options.user_attribute.empty()) wrong("user_attribute", "is empty");
    if (!error.fields.empty()) {
        error.message += ": " + error.fields.front().path + " " + error.fields.front().message;
        return error;
    }
    return std::unique_ptr<identity::PasswordSource>(std::make_unique<LdapSource>(std::move(options)));
}

} // namespace orrery::drivers
