#include "core/log.h"
#include "identity/identity.h"
#include "identity/state.h"

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <utility>

namespace orrery::identity {

namespace {

constexpr std::size_t longest_foreign_token = 8192, most_asked_at_once = 64;

Error refused_foreign() { return {Code::unauthenticated, "the token is not valid", "get a new one where it came from"}; }

} // namespace

const ForeignAnswers::Known* ForeignAnswers::find(const Digest& digest) {
    const auto found = by_digest_.find(digest);
    if (found == by_digest_.end()) return nullptr;
    entries_.splice(entries_.end(), entries_, found->second);
    return &found->second->second;
}

void ForeignAnswers::keep(const Digest& digest, Known known) {
    drop(digest);
    if (size_ == 0) return;
    if (by_digest_.size() >= size_) {
        by_digest_.erase(entries_.front().first);
        entries_.pop_front();
    }
    by_digest_.emplace(digest, entries_.insert(entries_.end(), {digest, std::move(known)}));
}

void ForeignAnswers::drop(const Digest& digest) {
    const auto found = by_digest_.find(digest);
    if (found == by_digest_.end()) return;
    entries_.erase(found->second);
    by_digest_.erase(found);
}

/// Asks each source in turn; the first that knows the token answers. One that cannot be asked might have known it.
template <class State> static Task<TokenSource::Answer> ask_sources(State& state, Context ctx, std::string token) {
    std::optional<Error> silent;
    for (auto& source : state.token_sources) {
        auto answer = co_await source->check(ctx, token);
        if (answer.ok()) {
            answer->principal.via = answer->principal.source = source->name();
            if (answer->principal.role == Role::nobody || answer->principal.user.empty() ||
                answer->expires_at <= state.clock.wall())
                co_return refused_foreign();
            co_return answer;
        }
        if (answer.error().code == Code::unauthenticated) continue;
        log::warn(ctx, "{} could not check a token: {}", source->name(), answer.error().text());
        silent = not_asked(source->name(), answer.error().code);
    }
    co_return silent ? std::move(*silent) : refused_foreign();
}

Task<Principal> Identity::check_foreign_token(Context ctx, std::string token, std::string peer) {
    auto& state = *state_;
    if (state.token_sources.empty() || token.empty() || token.size() > longest_foreign_token) co_return refused_foreign();
    const auto digest = digest_of(token);
    for (;;) {
        const auto* known = state.foreign.find(digest);
        if (known && known->expires_at > state.clock.wall() && known->fresh_until > state.clock.steady())
            co_return known->principal;
        const auto asked = state.being_asked.find(digest);
        if (asked == state.being_asked.end()) break;
        auto answered = asked->second; // the map's own goes when the answer is there
        CO_TRY(std::ignore, co_await answered->wait(ctx));
        // Where it was refused each asks for itself once more, and is counted for it.
    }
    auto attempt = state.by_foreign_peer.admit(peer_key(peer));
    if (!attempt.ok()) {
        co_await state.tell(ctx, State::Limit::one_a_minute, "(token)", peer, "login-throttled",
                            "too many tokens from this address were not valid", {});
        co_return std::move(attempt).error();
    }
    if (state.being_asked.size() >= most_asked_at_once)
        co_return Error{Code::throttled, "too many tokens are being checked", "try again in some seconds"};

    struct Asking {
        State& state;
        Digest digest;
        std::shared_ptr<Notifier> answered;
        ~Asking() { // also where the one who asked was cancelled
            state.being_asked.erase(digest);
            answered->notify_all();
        }
    };
    auto executor = co_await asio::this_coro::executor;
    const Asking asking{state, digest, state.being_asked.emplace(digest, std::make_shared<Notifier>(executor)).first->second};
    const bool new_here = state.foreign.find(digest) == nullptr;
    auto answer = co_await ask_sources(state, ctx, std::move(token));
    if (!answer.ok()) {
        if (answer.error().code != Code::unauthenticated) co_return std::move(answer).error();
        state.foreign.drop(digest);
        attempt->failed();
        co_await state.tell(ctx, State::Limit::one_a_minute, "(token)", peer, "login-refused", "a foreign token was not valid", {});
        co_return std::move(answer).error();
    }
    attempt->succeeded();
    auto principal = answer->principal;
    principal.expires_at = answer->expires_at;
    state.foreign.keep(digest, {principal, answer->expires_at, state.clock.steady() + state.options.foreign_cache_time});
    if (new_here)
        co_await state.tell(ctx.with_actor(principal.user), State::Limit::one_a_minute, shown_name(principal.user), peer, "login",
                            "a foreign token was valid", {{"via", principal.via}});
    co_return principal;
}

} // namespace orrery::identity
