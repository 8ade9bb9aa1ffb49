#include "store/etcd/engine.h"

#include <fmt/format.h>

#include <random>

namespace orrery::store::etcd {

Task<LeaseId> Engine::grant(Context ctx, Duration ttl) {
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    ActiveCall active(*this);
    co_return co_await grant_lease(ctx, ttl);
}

Task<LeaseId> Engine::grant_lease(Context ctx, Duration ttl) {
    if (ttl <= Duration::zero()) co_return Error{Code::invalid, "the TTL of a lease must be positive"};
    // The client chooses the id, so that a retry finds the lease of the first attempt.
    static std::mt19937_64 random{std::random_device{}()};
    pb::LeaseGrantRequest request;
    request.set_id(static_cast<LeaseId>(random() >> 1) | 1);
    request.set_ttl(std::chrono::ceil<std::chrono::seconds>(ttl).count());
    const LeaseId lease = request.id();
    auto granted = co_await call_with_retry<pb::LeaseGrantRequest, pb::LeaseGrantResponse>(
        ctx, std::move(request), [](MemberConnection& connection, auto& c, auto done) {
            connection.lease->async()->LeaseGrant(&c.context, &c.request, &c.response, std::move(done));
        });
    if (!granted.ok() && granted.error().code != Code::conflict) co_return granted.error();
    co_return lease;
}

Task<Unit> Engine::keep_alive(Context ctx, LeaseId lease) {
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    ActiveCall active(*this);
    co_return co_await renew_lease(ctx, lease);
}

Task<Unit> Engine::renew_lease(Context ctx, LeaseId lease) {
    pb::LeaseKeepAliveRequest request;
    request.set_id(lease);
    CO_TRY(auto response, co_await call_with_retry<pb::LeaseKeepAliveRequest, pb::LeaseKeepAliveResponse>(
                              ctx, std::move(request), [](MemberConnection& connection, auto& c, auto done) {
                                  connection.lease->async()->LeaseKeepAlive(&c.context, &c.request, &c.response, std::move(done));
                              }));
    if (response.ttl() <= 0) co_return Error{Code::not_found, fmt::format("the lease {:x} has expired or was revoked", lease)};
    co_return Unit{};
}

Task<Unit> Engine::revoke(Context ctx, LeaseId lease) {
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    ActiveCall active(*this);
    co_return co_await revoke_lease(ctx, lease);
}

Task<Unit> Engine::revoke_lease(Context ctx, LeaseId lease) {
    pb::LeaseRevokeRequest request;
    request.set_id(lease);
    auto revoked = co_await call_with_retry<pb::LeaseRevokeRequest, pb::LeaseRevokeResponse>(
        ctx, std::move(request), [](MemberConnection& connection, auto& c, auto done) {
            connection.lease->async()->LeaseRevoke(&c.context, &c.request, &c.response, std::move(done));
        });
    if (!revoked.ok()) {
        if (revoked.error().code == Code::not_found)
            co_return Error{Code::not_found, fmt::format("the lease {:x} has expired or was revoked", lease)};
        co_return revoked.error();
    }
    // When this returns, the keys are removed from the copy as well.
    co_return co_await wait_for_revision(ctx, revoked->header().revision());
}

} // namespace orrery::store::etcd
