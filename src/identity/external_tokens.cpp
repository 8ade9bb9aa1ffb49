#include "core/log.h"
#include "identity/identity.h"
#include "identity/identity_state.h"

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <utility>

namespace orrery::identity {

namespace {

constexpr std::size_t max_external_token_size = 8192, max_concurrent_checks = 64;

Error invalid_external_token() {
    return {Code::unauthenticated, "the token is not valid", "request a new token from the service that issued it"};
}

} // namespace

const ExternalTokenCache::CachedToken* ExternalTokenCache::find(const Digest& digest) {
    const auto found = by_digest_.find(digest);
    if (found == by_digest_.end()) return nullptr;
    entries_.splice(entries_.end(), entries_, found->second);
    return &found->second->second;
}

void ExternalTokenCache::put(const Digest& digest, CachedToken token) {
    erase(digest);
    if (size_ == 0) return;
    if (by_digest_.size() >= size_) {
        by_digest_.erase(entries_.front().first);
        entries_.pop_front();
    }
    by_digest_.emplace(digest, entries_.insert(entries_.end(), {digest, std::move(token)}));
}

void ExternalTokenCache::erase(const Digest& digest) {
    const auto found = by_digest_.find(digest);
    if (found == by_digest_.end()) return;
    entries_.erase(found->second);
    by_digest_.erase(found);
}

/// Asks the sources in order until one accepts the token. If a source did not respond and no other accepts the token, the result is
/// that source's error, because the source might have accepted it.
template <class State> static Task<TokenSource::Answer> check_with_sources(State& state, Context ctx, std::string token) {
    std::optional<Error> unavailable;
    for (auto& source : state.token_sources) {
        auto answer = co_await source->check(ctx, token);
        if (answer.ok()) {
            answer->principal.via = answer->principal.source = source->name();
            if (answer->principal.role == Role::nobody || answer->principal.user.empty() ||
                answer->expires_at <= state.clock.wall())
                co_return invalid_external_token();
            co_return answer;
        }
        if (answer.error().code == Code::unauthenticated) continue;
        log::warn(ctx, "external token check failed: source={} error={}", source->name(), answer.error().text());
        unavailable = source_unavailable(source->name(), answer.error().code);
    }
    co_return unavailable ? std::move(*unavailable) : invalid_external_token();
}

Task<Principal> Identity::check_external_token(Context ctx, std::string token, std::string peer) {
    auto& state = *state_;
    if (state.token_sources.empty() || token.empty() || token.size() > max_external_token_size) co_return invalid_external_token();
    const auto digest = sha256(token);
    for (;;) {
        const auto* known = state.external_tokens.find(digest);
        if (known && known->expires_at > state.clock.wall() && known->fresh_until > state.clock.steady())
            co_return known->principal;
        const auto running = state.checks_in_progress.find(digest);
        if (running == state.checks_in_progress.end()) break;
        auto answered = running->second; // the map entry is removed when the result is there
        CO_TRY(std::ignore, co_await answered->wait(ctx));
        // After a refusal each waiting request checks the token itself, and is counted by the throttle.
    }
    auto attempt = state.by_external_token_peer.admit(peer_key(peer));
    if (!attempt.ok()) {
        co_await state.record_login_event(ctx, State::Limit::one_a_minute, "(token)", peer, "login-throttled",
                                          "too many tokens from this address were not valid", {});
        co_return std::move(attempt).error();
    }
    if (state.checks_in_progress.size() >= max_concurrent_checks)
        co_return Error{Code::throttled, "too many tokens are being checked", "try again in some seconds"};

    struct CheckInProgress {
        State& state;
        Digest digest;
        std::shared_ptr<Notifier> answered;
        ~CheckInProgress() { // also on cancellation
            state.checks_in_progress.erase(digest);
            answered->notify_all();
        }
    };
    auto executor = co_await asio::this_coro::executor;
    const CheckInProgress check{state, digest,
                                state.checks_in_progress.emplace(digest, std::make_shared<Notifier>(executor)).first->second};
    const bool first_use = state.external_tokens.find(digest) == nullptr;
    auto answer = co_await check_with_sources(state, ctx, std::move(token));
    if (!answer.ok()) {
        if (answer.error().code != Code::unauthenticated) co_return std::move(answer).error();
        state.external_tokens.erase(digest);
        attempt->failed();
        co_await state.record_login_event(ctx, State::Limit::one_a_minute, "(token)", peer, "login-refused",
                                          "an external token was not valid", {});
        co_return std::move(answer).error();
    }
    attempt->succeeded();
    auto principal = answer->principal;
    principal.expires_at = answer->expires_at;
    state.external_tokens.put(digest, {principal, answer->expires_at, state.clock.steady() + state.options.external_cache_ttl});
    if (first_use)
        co_await state.record_login_event(ctx.with_actor(principal.user), State::Limit::one_a_minute,
                                          printable_name(principal.user), peer, "login", "an external token was valid",
                                          {{"via", principal.via}});
    co_return principal;
}

} // namespace orrery::identity
