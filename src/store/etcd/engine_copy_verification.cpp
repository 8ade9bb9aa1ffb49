// Verification of the in-memory copy against the cluster, and the staleness that follows from it.

#include "core/log.h"
#include "store/etcd/engine.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

namespace orrery::store::etcd {

using namespace std::chrono_literals;

asio::awaitable<void> Engine::verify_copy() {
    co_await asio::this_coro::throw_if_cancelled(false);
    while (!stopping_) {
        const auto begun = std::chrono::steady_clock::now();
        // Without a watch, `run_watch` is reconnecting. The pause is short, so that a new watch is verified soon.
        if (connected_ && begun - verified_at_ >= options_.verify_every) {
            auto verified = co_await verify_once();
            if (verified.ok()) verified_at_ = begun;
        }
        if (stopping_ || fatal_error_) co_return;
        report_staleness();
        if (!(co_await real_clock().sleep(std::min<Duration>(options_.verify_every / 4, 250ms))).ok()) co_return;
    }
}

Task<Unit> Engine::verify_once() {
    const auto generation = stream_generation_;
    // Long enough for `call_once` to time out on a silent member and abandon it.
    const auto ctx = Context::background().with_timeout(options_.request_timeout + options_.request_timeout / 4);
    CO_TRY(const auto revision, co_await cluster_revision(ctx));
    // Requests are answered. The watch must now deliver that revision, or a barrier written after it.
    const auto watch_ctx = Context::background().with_timeout(options_.request_timeout);
    auto delivered = co_await wait_for_revision(watch_ctx, revision, options_.request_timeout / 4);
    if (delivered.ok() || stopping_ || fatal_error_ || generation != stream_generation_ || !connected_) co_return delivered;
    if (delivered.error().code == Code::cancelled) co_return delivered;
    ++counts_.stalls;
    log::warn(ctx, "watch stalled, reconnecting: member={} missing_revision={}", members_->address(), revision);
    record_failure(Error{Code::unavailable, fmt::format("the watch on etcd at {} stalled", members_->address())}, false);
    abandon_watch(generation);
    co_return delivered;
}

void Engine::abandon_watch(std::uint64_t generation) {
    if (generation != members_->generation()) return;
    members_->switch_member(generation);
    if (stream_ && stream_generation_ != members_->generation()) stream_->cancel();
}

void Engine::report_staleness() {
    const auto age = copy_age();
    const bool stale = age > options_.stale_after;
    if (stale == stale_reported_) return;
    stale_reported_ = stale;
    if (stale)
        log::warn(Context::background(), "store copy is stale: age_ms={} revision={} reason={}",
                  std::chrono::duration_cast<std::chrono::milliseconds>(age).count(), mirror_.revision(),
                  last_failure_.empty() ? "no response from etcd" : last_failure_);
    else
        log::info(Context::background(), "store copy is current again: revision={}", mirror_.revision());
}

} // namespace orrery::store::etcd
