#include "drivers/keystone/keystone.h"

#include "core/log.h"
#include "core/url_text.h"
#include "drivers/keystone/keystone_messages.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <optional>
#include <utility>

namespace orrery::drivers {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t max_answer_size = 1U << 20U;
constexpr auto renew_before = 60s;       // before the service user's own token expires
constexpr auto pause_after_refusal = 5s; // time before the next login

Error unexpected_status(const net::Url& url, int status, std::string_view what) {
    return {Code::unavailable, fmt::format("{} at {} answers {}", what, url.text(), status)};
}

/// The error of a check that failed for another reason than the token.
Error keystone_unavailable(Error error) {
    if (error.code != Code::timeout && error.code != Code::cancelled && error.code != Code::throttled)
        error.code = Code::unavailable;
    return error;
}

class KeystoneSource final : public identity::TokenSource {
public:
    KeystoneSource(net::HttpClient& client, Clock& clock, net::Url tokens, KeystoneOptions options)
        : client_(client), clock_(clock), tokens_(std::move(tokens)), options_(std::move(options)) {}

    std::string name() const override { return "keystone"; }

    Task<Answer> check(Context ctx, std::string token) override {
        if (!is_token_text(token)) co_return Error{Code::unauthenticated, "this is not a Keystone token"};
        ctx = ctx.with_timeout(options_.timeout);
        for (int attempt = 0;; ++attempt) {
            CO_TRY(auto own, co_await own_token(ctx));
            net::ClientRequest request;
            request.url = tokens_;
            request.url.target += "?nocatalog"; // the catalog may be longer than everything else
            request.headers = {{"X-Auth-Token", own}, {"X-Subject-Token", token}, {"Accept", "application/json"}};
            request.max_answer = max_answer_size;
            CO_TRY(auto response, co_await send(ctx, std::move(request)));
            switch (response.status) {
            case 200: {
                CO_TRY(auto answer, read_holder(options_, response.body));
                if (answer.expires_at <= clock_.wall()) co_return Error{Code::unauthenticated, "the token has expired"};
                co_return answer;
            }
            case 404: co_return Error{Code::unauthenticated, "Keystone does not know the token"};
            case 401:
                // Our own token is refused: it was revoked, or Keystone has new keys. Another check may have renewed it meanwhile.
                if (own_token_ == own) own_token_.clear();
                if (attempt > 0)
                    co_return Error{Code::unavailable,
                                    fmt::format("{} refuses the token that it issued to {}", tokens_.text(), options_.user)};
                break;
            case 403:
                co_return Error{Code::unavailable,
                                fmt::format("{} has no permission to validate tokens at {}", options_.user, tokens_.text()),
                                "give that user the role service or admin in its project"};
            default: co_return unexpected_status(tokens_, response.status, "the validation of a token");
            }
        }
    }

private:
    Task<net::ClientResponse> send(Context ctx, net::ClientRequest request) {
        auto response = co_await client_.send(std::move(ctx), std::move(request));
        if (!response.ok()) co_return keystone_unavailable(std::move(response).error());
        co_return response;
    }

    /// The service user's own token, renewed shortly before it expires. Concurrent callers wait for one login.
    Task<std::string> own_token(Context ctx) {
        if (!logged_in_) logged_in_.emplace(co_await asio::this_coro::executor);
        for (;;) {
            if (!own_token_.empty() && clock_.wall() + renew_before < own_expires_at_) co_return own_token_;
            if (refusal_ && clock_.steady() < refused_until_) co_return *refusal_;
            if (!logging_in_) break;
            CO_TRY(std::ignore, co_await logged_in_->wait(ctx));
        }
        struct LoginInProgress {
            KeystoneSource& source;
            explicit LoginInProgress(KeystoneSource& of) : source(of) { source.logging_in_ = true; }
            ~LoginInProgress() {
                source.logging_in_ = false;
                source.logged_in_->notify_all();
            }
        };
        const LoginInProgress in_progress(*this);
        auto done = co_await log_in(ctx);
        refusal_.reset();
        if (!done.ok()) {
            // Not retried for each token: a locked account would never be unlocked.
            if (done.error().code == Code::unavailable) {
                refusal_ = done.error();
                refused_until_ = clock_.steady() + pause_after_refusal;
            }
            co_return std::move(done).error();
        }
        co_return own_token_;
    }

    Task<Unit> log_in(Context ctx) {
        net::ClientRequest request;
        request.method = "POST";
        request.url = tokens_;
        request.url.target += "?nocatalog";
        request.headers = {{"Content-Type", "application/json"}, {"Accept", "application/json"}};
        request.body = login_request(options_);
        request.max_answer = max_answer_size;
        CO_TRY(auto response, co_await send(ctx, std::move(request)));
        if (response.status == 401)
            co_return Error{Code::unavailable, fmt::format("{} refuses the password of {}", tokens_.text(), options_.user),
                            "check user, project and password file"};
        if (response.status != 201)
            co_return unexpected_status(tokens_, response.status, fmt::format("the login of {}", options_.user));
        std::string token(response.headers.get("X-Subject-Token"));
        if (!is_token_text(token)) co_return Error{Code::unavailable, fmt::format("{} answers without a token", tokens_.text())};
        CO_TRY(own_expires_at_, read_expiry(response.body));
        own_token_ = std::move(token);
        log::debug(ctx, "logged in to Keystone: url={} user={} expires_at={}", tokens_.text(), options_.user,
                   to_rfc3339(own_expires_at_));
        co_return Unit{};
    }

    net::HttpClient& client_;
    Clock& clock_;
    net::Url tokens_;
    KeystoneOptions options_;
    std::string own_token_;
    WallTime own_expires_at_{};
    std::optional<Notifier> logged_in_; // created on the loop of the first caller
    bool logging_in_ = false;
    std::optional<Error> refusal_;
    SteadyTime refused_until_{};
};

} // namespace

Result<std::unique_ptr<identity::TokenSource>> keystone_source(net::HttpClient& client, Clock& clock, KeystoneOptions options) {
    Error error{Code::invalid, "the Keystone settings are not valid"};
    const auto wrong = [&](std::string field, std::string message) {
        error.fields.push_back({"identity.keystone." + field, std::move(message)});
    };
    auto url = net::parse_url(options.url);
    if (!url.ok())
        wrong("url", url.error().message);
    else if (url->scheme == "http" && !options.allow_plaintext && !is_loopback_host(url->host))
        wrong("url", "must be https://, because a password is sent there; allow_plaintext permits http://");
    if (options.user.empty()) wrong("user", "must not be empty");
    if (options.password.empty()) wrong("password_file", "must hold a password");
    if (options.project.empty()) wrong("project", "must not be empty");
    if (options.roles.empty()) wrong("roles", "must not be empty: no token would be accepted");
    if (!error.fields.empty()) {
        error.message += ": " + error.fields.front().path + " " + error.fields.front().message;
        return error;
    }
    auto& target = url->target;
    while (target.ends_with('/')) target.pop_back();
    if (!target.ends_with("/v3")) target += "/v3";
    target += "/auth/tokens";
    return std::unique_ptr<identity::TokenSource>(
        std::make_unique<KeystoneSource>(client, clock, std::move(*url), std::move(options)));
}

} // namespace orrery::drivers
