#include "drivers/keystone/session.h"

#include "core/log.h"
#include "drivers/keystone/keystone_messages.h"
#include "drivers/rest/rest.h"

#include <boost/asio/this_coro.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

namespace orrery::drivers {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t max_login_answer = 8U << 20U; // it has the catalog of services
constexpr auto after_refusal = 5s;                  // time before the next login

std::string credential_request(const OpenstackLogin& login) {
    // No scope: a credential has its own scope, and Keystone refuses a second one.
    json::object identity{{"methods", json::array{"application_credential"}},
                          {"application_credential", json::object{{"id", login.credential}, {"secret", login.credential_secret}}}};
    return json::serialize(json::object{{"auth", json::object{{"identity", std::move(identity)}}}});
}

std::string session_request(const OpenstackLogin& login) {
    if (!login.credential.empty()) return credential_request(login);
    KeystoneOptions options;
    options.user = login.user;
    options.user_domain = login.user_domain;
    options.password = login.password;
    options.project = login.project;
    options.project_domain = login.project_domain;
    return login_request(options);
}

/// Endpoints by type of service.
std::map<std::string, std::string> read_catalog(const OpenstackLogin& login, const json::object& token) {
    std::map<std::string, std::string> out;
    for (const auto& service : array_at(token, "catalog"))
        for (const auto& endpoint : array_at(as_object(service), "endpoints")) {
            if (text_at(as_object(endpoint), "interface") != login.interface_) continue;
            const auto region = text_at(as_object(endpoint), "region_id");
            if (!login.region.empty() && region != login.region && text_at(as_object(endpoint), "region") != login.region) continue;
            out.try_emplace(text_at(as_object(service), "type"), text_at(as_object(endpoint), "url"));
        }
    return out;
}

class Session final : public OpenstackSession {
public:
    Session(net::HttpClient& client, Clock& clock, net::Url tokens, OpenstackLogin login)
        : client_(client), clock_(clock), tokens_(std::move(tokens)), login_(std::move(login)) {}

    Task<net::ClientResponse> send(Context ctx, Call call) override {
        for (int attempt = 0;; ++attempt) {
            CO_TRY(const auto token, co_await token_now(ctx));
            net::ClientRequest request;
            CO_TRY(request.url, url_of(call));
            request.method = call.method;
            request.headers = {{"X-Auth-Token", token}, {"Accept", "application/json"}};
            if (!call.body.empty()) request.headers.set("Content-Type", "application/json");
            request.body = call.body;
            request.max_answer = call.max_answer;
            CO_TRY(auto answer, co_await client_.send(ctx, std::move(request)));
            if (answer.status != 401 || attempt > 0) co_return std::move(answer);
            // The token was revoked, or Keystone has new keys. Another call may have renewed it meanwhile.
            if (token_ == token) token_.clear();
        }
    }

private:
    std::string login_name() const { return login_.credential.empty() ? login_.user : "the application credential"; }

    Result<net::Url> url_of(const Call& call) const {
        auto endpoint = call.endpoint;
        if (endpoint.empty()) {
            const auto found = catalog_.find(call.service);
            if (found == catalog_.end())
                return Error{Code::not_found,
                             fmt::format("Keystone's catalog has no {} endpoint of the service {}{}", login_.interface_,
                                         call.service, login_.region.empty() ? "" : " in region " + login_.region),
                             "add it to the catalog, or set the endpoint"};
            endpoint = found->second;
        }
        TRY(auto url, api_base(fmt::format("the endpoint of {}", call.service), endpoint, login_.allow_plaintext));
        // Catalogs have both forms: "http://dns:9001" and "http://dns:9001/v2/".
        const auto version = call.path.substr(0, call.path.find('/', 1));
        if (url.target.ends_with(version)) url.target.resize(url.target.size() - version.size());
        url.target += call.path;
        return url;
    }

    Task<std::string> token_now(Context ctx) {
        if (!logged_in_) logged_in_.emplace(co_await asio::this_coro::executor);
        for (;;) {
            if (!token_.empty() && clock_.wall() < renew_at_) co_return token_;
            if (refusal_ && clock_.steady() < refused_until_) co_return *refusal_;
            if (!logging_in_) break;
            CO_TRY(std::ignore, co_await logged_in_->wait(ctx));
        }
        struct LoginInProgress {
            Session& session;
            explicit LoginInProgress(Session& of) : session(of) { session.logging_in_ = true; }
            ~LoginInProgress() {
                session.logging_in_ = false;
                session.logged_in_->notify_all();
            }
        };
        const LoginInProgress in_progress(*this);
        auto done = co_await log_in(ctx);
        refusal_.reset();
        if (done.ok()) co_return token_;
        // Renewal begins early, so the old token is still valid.
        if (!token_.empty() && clock_.wall() < expires_at_) {
            renew_at_ = std::min(expires_at_, clock_.wall() + 10s);
            log::warn(ctx, "Keystone token not renewed: login=\"{}\" error=\"{}\"", login_name(), done.error().text());
            co_return token_;
        }
        // Not retried for each call: a locked account would never be unlocked.
        if (done.error().code == Code::unauthenticated) {
            refusal_ = done.error();
            refused_until_ = clock_.steady() + after_refusal;
        }
        co_return std::move(done).error();
    }

    Task<Unit> log_in(Context ctx) {
        net::ClientRequest request;
        request.method = "POST";
        request.url = tokens_;
        request.headers = {{"Content-Type", "application/json"}, {"Accept", "application/json"}};
        request.body = session_request(login_);
        request.max_answer = max_login_answer;
        CO_TRY(const auto answer, co_await client_.send(ctx, std::move(request)));
        if (answer.status == 401)
            co_return Error{Code::unauthenticated,
                            fmt::format("Keystone at {} refuses the login of {}", tokens_.origin(), login_name()),
                            "check user, project and password, or the application credential"};
        if (answer.status != 201)
            co_return Error{Code::unavailable,
                            fmt::format("Keystone at {} answers a login with {}", tokens_.origin(), answer.status)};
        std::string token(answer.headers.get("X-Subject-Token"));
        if (!is_token_text(token))
            co_return Error{Code::unavailable, fmt::format("Keystone at {} answers without a token", tokens_.origin())};
        CO_TRY(const auto document, read_answer("Keystone", answer.body));
        CO_TRY(const auto expires_at, read_expiry(answer.body));
        catalog_ = read_catalog(login_, object_at(as_object(document), "token"));
        token_ = std::move(token);
        expires_at_ = expires_at;
        const auto now = clock_.wall();
        renew_at_ = now + (expires_at - now) * 4 / 5;
        co_return Unit{};
    }

    net::HttpClient& client_;
    Clock& clock_;
    net::Url tokens_;
    OpenstackLogin login_;
    std::string token_;
    WallTime expires_at_{}, renew_at_{};
    std::map<std::string, std::string> catalog_;
    std::optional<Notifier> logged_in_; // created on the loop of the first caller
    bool logging_in_ = false;
    std::optional<Error> refusal_;
    SteadyTime refused_until_{};
};

} // namespace

Result<std::shared_ptr<OpenstackSession>> OpenstackSession::make(net::HttpClient& client, Clock& clock, std::string where,
                                                                 OpenstackLogin login) {
    TRY(auto url, api_base(where + ".url", login.url, login.allow_plaintext));
    Error error{Code::invalid, ""};
    const auto wrong = [&](std::string_view field, std::string why) {
        error.fields.push_back({fmt::format("{}.{}", where, field), std::move(why)});
    };
    if (login.credential.empty()) {
        if (login.user.empty()) wrong("user", "must not be empty without an application credential");
        if (login.password.empty()) wrong("password", "must not be empty");
        if (login.project.empty()) wrong("project", "must not be empty");
    } else if (login.credential_secret.empty()) {
        wrong("credential_secret", "must not be empty");
    }
    if (login.interface_ != "public" && login.interface_ != "internal" && login.interface_ != "admin")
        wrong("interface", fmt::format("must be public, internal or admin, not \"{}\"", login.interface_));
    if (!error.fields.empty()) {
        error.message = fmt::format("{} {}", error.fields.front().path, error.fields.front().message);
        return error;
    }
    if (!url.target.ends_with("/v3")) url.target += "/v3";
    url.target += "/auth/tokens";
    return std::shared_ptr<OpenstackSession>(std::make_shared<Session>(client, clock, std::move(url), std::move(login)));
}

} // namespace orrery::drivers
