#include "drivers/keystone/keystone.h"

#include "core/log.h"
#include "drivers/keystone/keystone_messages.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <optional>
#include <utility>

namespace orrery::drivers {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t longest_answer = 1U << 20U;
constexpr auto renew_before = 60s;       // of the expiry of our own token
constexpr auto pause_after_refusal = 5s; // before our own login is tried again

Error not_now(const net::Url& url, int status, std::string_view what) {
    return {Code::unavailable, fmt::format("{} at {} answers {}", what, url.text(), status)};
}

/// What a check may end with where it is not the token's fault.
Error cannot_ask(Error error) {
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
            request.url.target += "?nocatalog"; // which may be longer than all the rest
            request.headers = {{"X-Auth-Token", own}, {"X-Subject-Token", token}, {"Accept", "application/json"}};
            request.max_answer = longest_answer;
            CO_TRY(auto response, co_await send(ctx, std::move(request)));
            switch (response.status) {
            case 200: {
                CO_TRY(auto answer, read_holder(options_, response.body));
                if (answer.expires_at <= clock_.wall()) co_return Error{Code::unauthenticated, "the token has expired"};
                co_return answer;
            }
            case 404: co_return Error{Code::unauthenticated, "Keystone does not know the token"};
            case 401:
                // Ours is no longer taken: revoked, or Keystone has new keys. Unless another check has got a new one already.
                if (own_token_ == own) own_token_.clear();
                if (attempt > 0)
                    co_return Error{Code::unavailable,
                                    fmt::format("{} does not take the token it gave to {}", tokens_.text(), options_.user)};
                break;
            case 403:
                co_return Error{Code::unavailable, fmt::format("{} may not validate tokens at {}", options_.user, tokens_.text()),
                                "give that user the role service or admin in its project"};
            default: co_return not_now(tokens_, response.status, "the validation of a token");
            }
        }
    }

private:
    Task<net::ClientResponse> send(Context ctx, net::ClientRequest request) {
        auto response = co_await client_.send(std::move(ctx), std::move(request));
        if (!response.ok()) co_return cannot_ask(std::move(response).error());
        co_return response;
    }

    /// The token that we ask with, got anew where it is about to expire. Whoever comes while it is being got waits for it.
    Task<std::string> own_token(Context ctx) {
        if (!logged_in_) logged_in_.emplace(co_await asio::this_coro::executor);
        for (;;) {
            if (!own_token_.empty() && clock_.wall() + renew_before < own_expires_at_) co_return own_token_;
            if (refusal_ && clock_.steady() < refused_until_) co_return *refusal_;
            if (!logging_in_) break;
            CO_TRY(std::ignore, co_await logged_in_->wait(ctx));
        }
        struct Telling {
            KeystoneSource& source;
            explicit Telling(KeystoneSource& of) : source(of) { source.logging_in_ = true; }
            ~Telling() {
                source.logging_in_ = false;
                source.logged_in_->notify_all();
            }
        };
        const Telling telling(*this);
        auto done = co_await log_in(ctx);
        refusal_.reset();
        if (!done.ok()) {
            // Not again at once for each token that comes in: a locked account would never be unlocked.
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
        request.max_answer = longest_answer;
        CO_TRY(auto response, co_await send(ctx, std::move(request)));
        if (response.status == 401)
            co_return Error{Code::unavailable, fmt::format("{} does not take the password of {}", tokens_.text(), options_.user),
                            "check user, project and password file"};
        if (response.status != 201) co_return not_now(tokens_, response.status, fmt::format("the login of {}", options_.user));
        std::string token(response.headers.get("X-Subject-Token"));
        if (!is_token_text(token)) co_return Error{Code::unavailable, fmt::format("{} answers without a token", tokens_.text())};
        CO_TRY(own_expires_at_, read_expiry(response.body));
        own_token_ = std::move(token);
        log::debug(ctx, "logged in at {} as {} until {}", tokens_.text(), options_.user, to_rfc3339(own_expires_at_));
        co_return Unit{};
    }

    net::HttpClient& client_;
    Clock& clock_;
    net::Url tokens_;
    KeystoneOptions options_;
    std::string own_token_;
    WallTime own_expires_at_{};
    std::optional<Notifier> logged_in_; // made with the first caller's loop
    bool logging_in_ = false;
    std::optional<Error> refusal_;
    SteadyTime refused_until_{};
};

bool is_loopback_host(const std::string& host) {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(host, error);
    return error ? host == "localhost" : address.is_loopback();
}

} // namespace

Result<std::unique_ptr<identity::TokenSource>> keystone_source(net::HttpClient& client, Clock& clock, KeystoneOptions options) {
    Error error{Code::invalid, "the options of Keystone are not right"};
    const auto wrong = [&](std::string field, std::string message) {
        error.fields.push_back({"identity.keystone." + field, std::move(message)});
    };
    auto url = net::parse_url(options.url);
    if (!url.ok())
        wrong("url", url.error().message);
    else if (url->scheme == "http" && !options.allow_plaintext && !is_loopback_host(url->host))
        wrong("url", "must be https://, because our password goes there");
    if (options.user.empty()) wrong("user", "is empty: who asks Keystone?");
    if (options.password.empty()) wrong("password_file", "gives no password");
    if (options.project.empty()) wrong("project", "is empty");
    if (options.roles.empty()) wrong("roles", "is empty: no token would count");
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
