#pragma once

#include "store/copy_age.h"
#include "store/etcd/call_outcome.h"
#include "store/etcd/members.h"
#include "store/etcd/revision_waiters.h"
#include "store/mirror.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace orrery::store::etcd {

/// Internal keys below the prefix. Keys of the store never start with a slash, so these are invisible to users of the store.
constexpr std::string_view identity_key = "/identity";
constexpr std::string_view write_marker_key = "/mark"; ///< each write puts "<session>.<number>" here
constexpr std::string_view session_key = "/session/";  ///< each write requires the known revision of its session's key

/// The start of the remedy of an error whose write may have been applied.
constexpr std::string_view unknown_outcome = "the outcome may be unknown";

/// Scope of an operation that one coroutine runs on behalf of all that need it: sets `busy`, then clears it and wakes the waiters.
class SingleFlight {
public:
    SingleFlight(bool& busy, Notifier& changed) : busy_(busy), changed_(changed) { busy_ = true; }
    ~SingleFlight() {
        busy_ = false;
        changed_.notify_all();
    }
    SingleFlight(const SingleFlight&) = delete;
    SingleFlight& operator=(const SingleFlight&) = delete;

private:
    bool& busy_;
    Notifier& changed_;
};

/// The store on etcd. Loop thread only. Implemented in engine.cpp (life cycle, calls, reads), engine_transactions.cpp (exactly-once
/// writes), engine_watch_stream.cpp (list and watch), engine_copy_verification.cpp (staleness) and engine_leases.cpp.
class Engine final : public Store, public CopyAgeProvider {
public:
    Engine(asio::any_io_executor executor, EtcdOptions options, std::unique_ptr<Members> members);
    ~Engine() override;

    /// Starts the list and the watch, and waits until the copy is complete.
    Task<Unit> start(Context ctx);

    Revision revision() const override { return mirror_.revision(); }
    Revision compacted() const override { return mirror_.compacted(); }
    RecordPtr find(std::string_view key) const override { return mirror_.find(key); }
    Page range(std::string_view prefix, std::size_t limit, std::string_view after) const override {
        return mirror_.range(prefix, limit, after);
    }
    std::size_t count(std::string_view prefix) const override { return mirror_.count(prefix); }
    Task<Revision> catch_up(Context ctx) override;
    Task<Page> fetch(Context ctx, std::string prefix, std::size_t limit, std::string after, Values values) override;

    Task<Revision> apply(Context ctx, Transaction transaction) override;
    Task<Unit> compact(Context ctx, Revision revision) override;

    Task<LeaseId> grant(Context ctx, Duration ttl) override;
    Task<Unit> keep_alive(Context ctx, LeaseId lease) override;
    Task<Unit> revoke(Context ctx, LeaseId lease) override;

    std::unique_ptr<Watch> watch(std::string_view prefix, Revision from) override { return mirror_.watch(prefix, from); }
    std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> callback) override {
        return mirror_.observe(prefix, std::move(callback));
    }

    const std::string& identity() const override { return identity_; }
    Result<Unit> health() const override;
    Duration copy_age() const override { return std::chrono::steady_clock::now() - verified_at_; }
    std::vector<std::pair<std::string, double>> metrics() const override;
    asio::awaitable<void> stop() override;

private:
    template <class Request, class Response> using Call = net::GrpcCall<Request, Response>;
    template <class Request, class Response>
    using Start = void (*)(MemberConnection&, Call<Request, Response>&, std::function<void(grpc::Status)>);
    using TxnCall = Call<pb::TxnRequest, pb::TxnResponse>;

    /// A write without a result yet. Registered while it lasts, so that the watch can record its marker.
    struct PendingWrite {
        std::uint64_t number = 0;
        Revision applied = 0;     ///< the revision at which its marker arrived; 0: not yet
        bool history_gap = false; ///< part of the history was missed, so a missing marker proves nothing
    };
    class PendingWriteGuard;
    /// Counts a public call in progress: `stop` waits until no call is in progress.
    class ActiveCall {
    public:
        explicit ActiveCall(Engine& engine) : engine_(engine) { ++engine_.active_calls_; }
        ~ActiveCall() {
            if (--engine_.active_calls_ == 0 && engine_.closing_) engine_.changed_.notify_all();
        }
        ActiveCall(const ActiveCall&) = delete;
        ActiveCall& operator=(const ActiveCall&) = delete;

    private:
        Engine& engine_;
    };

    // engine.cpp: gRPC calls, with and without retries.
    template <class Request, class Response>
    asio::awaitable<CallOutcome> call_once(std::shared_ptr<Call<Request, Response>> call, SteadyTime until,
                                           Start<Request, Response> start, Duration timeout = Duration::zero());
    /// For idempotent requests: retries until a response, a refusal, the deadline, or `retries_exhausted`.
    template <class Request, class Response>
    Task<Response> call_with_retry(Context ctx, Request request, Start<Request, Response> start,
                                   Duration timeout = Duration::zero());
    SteadyTime deadline_of(const Context& ctx) const;
    /// True if further attempts are useless at present: closed, or etcd has been unavailable for `retry_time`.
    bool retries_exhausted() const;
    Error unavailable_error(const Error& last) const;
    void record_failure(const Error& why, bool unreachable);
    void record_success();
    std::string path(std::string_view key) const { return options_.prefix + std::string(key); }
    /// The end of the cached keys, where the uncached keys start.
    std::string cached_range_end() const { return options_.prefix + uncached_prefix; }
    /// Waits until the copy has every change of this store up to `revision`. Revisions of foreign keys never arrive by the watch,
    /// so if `revision` has not arrived after `grace`, this writes an internal key (a barrier) and waits for that.
    Task<Unit> wait_for_revision(Context ctx, Revision revision, Duration grace = std::chrono::milliseconds(50));
    Task<Unit> write_barrier(Context ctx);
    /// The cluster's revision from a linearizable read that starts after this call. Concurrent callers share one read.
    Task<Revision> cluster_revision(Context ctx);
    /// Compares the copy with the cluster every `verify_every` and abandons connections that do not deliver.
    asio::awaitable<void> verify_copy();
    Task<Unit> verify_once();
    /// Ends the watch. `run_watch` then opens another one on new connections.
    void abandon_watch(std::uint64_t generation);
    void report_staleness();

    Task<LeaseId> grant_lease(Context ctx, Duration ttl);
    Task<Unit> renew_lease(Context ctx, LeaseId lease);
    Task<Unit> revoke_lease(Context ctx, LeaseId lease);

    // engine_transactions.cpp
    Task<Revision> write(Context ctx, Transaction transaction, SteadyTime until);
    std::shared_ptr<TxnCall> build_request(const Transaction& transaction, std::uint64_t number) const;
    Task<Revision> check_compares(Context ctx, Transaction transaction);
    Task<Revision> wait_until_visible(Context ctx, Revision revision, SteadyTime until);
    /// Returns `conflict`, once the copy has the change that caused it.
    Task<Revision> conflict_error(Context ctx, std::shared_ptr<TxnCall> call, Transaction transaction, std::size_t first_answer);
    /// The revision of the lost write, or 0 if it was not applied and never will be.
    Task<Revision> resolve_lost_write(Context ctx, std::shared_ptr<PendingWrite> pending, Revision sent_revision);
    /// Rewrites the session's key, so that no write sent with session revision `old` or earlier can be applied any more. Returns
    /// the new session revision.
    Task<Revision> fence(Context ctx, Revision old);
    asio::awaitable<void> renew_session();

    // engine_watch_stream.cpp
    asio::awaitable<void> run_watch();
    Task<Unit> list_and_watch();
    Task<Unit> check_identity(Context ctx);
    Task<Unit> list(Context ctx);
    Task<Unit> read_watch();
    void handle_watch_response(pb::WatchResponse& response);
    void apply_events(bool all);
    void handle_internal_key(std::string_view key, const pb::KeyValue& kv);

    asio::any_io_executor executor_;
    EtcdOptions options_;
    std::unique_ptr<Members> members_;
    Mirror mirror_;
    RevisionWaiters revision_waiters_;
    Notifier changed_; ///< notified when the connection, the fence or a shared read changes
    TaskGroup tasks_;
    std::size_t active_calls_ = 0;
    std::set<grpc::ClientContext*> grpc_calls_; ///< in progress
    bool closing_ = false;                      ///< new calls are refused
    bool stopping_ = false;                     ///< all work ends

    // The watch.
    using Stream = net::GrpcStream<pb::WatchRequest, pb::WatchResponse>;
    std::shared_ptr<Stream> stream_;
    std::uint64_t stream_generation_ = 0;
    bool connected_ = false, listed_ = false;
    std::vector<pb::Event> partial_events_; ///< of a revision that is not complete yet
    std::string identity_;
    std::optional<Error> fatal_error_; ///< etcd does not hold this server's store

    // Availability.
    SteadyTime last_response_at_{}; ///< last response of the current member
    SteadyTime verified_at_{};      ///< the copy had every write acknowledged before this time
    bool stale_reported_ = false;
    std::optional<SteadyTime> unavailable_since_;
    std::string last_failure_;
    std::set<std::string> unreachable_; ///< members without a connection since then

    // Writes.
    const std::string session_;
    LeaseId session_lease_ = 0;
    Revision session_revision_ = 0; ///< revision of the session's key
    bool fencing_ = false;
    std::uint64_t last_write_number_ = 0;
    std::unordered_map<std::uint64_t, std::shared_ptr<PendingWrite>> pending_writes_;

    // Shared reads of the cluster's revision.
    bool reading_ = false;
    std::uint64_t reads_started_ = 0, reads_done_ = 0;
    Revision read_revision_ = 0;
    bool writing_barrier_ = false;
    Revision barrier_revision_ = 0;     ///< of the newest barrier
    SteadyTime foreign_writes_until_{}; ///< other applications wrote to this etcd recently

    struct {
        double connects = 0, failovers = 0, fences = 0, resolved = 0, lists = 0, barriers = 0, stalls = 0;
    } counts_;
};

template <class Request, class Response>
asio::awaitable<CallOutcome> Engine::call_once(std::shared_ptr<Call<Request, Response>> call, SteadyTime until,
                                               Start<Request, Response> start, Duration timeout) {
    if (timeout == Duration::zero()) timeout = options_.request_timeout;
    const auto generation = members_->generation();
    const auto address = members_->address();
    const auto sent_at = std::chrono::steady_clock::now();
    net::set_deadline(call->context, std::min(until, sent_at + timeout));
    members_->prepare(call->context);
    auto connection = members_->request_connection();
    if (stopping_) co_return CallOutcome{CallOutcome::Status::not_done, Error{Code::unavailable, "the store is being closed"}};
    grpc_calls_.insert(&call->context);
    auto status = co_await net::unary(call, [connection, start](auto& c, auto done) { start(*connection, c, std::move(done)); });
    grpc_calls_.erase(&call->context);
    auto outcome = classify_status(status, address);
    if (outcome.error.code == Code::cancelled) {
        // A member that shuts down also cancels calls. Only a cancellation by the caller is reported as such.
        const auto state = co_await asio::this_coro::cancellation_state;
        if (state.cancelled() == asio::cancellation_type::none) {
            outcome.error = Error{Code::unavailable, fmt::format("etcd at {} dropped the call", address)};
            outcome.is_member_fault = !stopping_;
        }
    }
    if (outcome.status == CallOutcome::Status::done || outcome.status == CallOutcome::Status::refused) {
        record_success();
    } else if (outcome.error.code == Code::timeout && (until < sent_at + timeout || last_response_at_ > sent_at)) {
        // A short deadline of the caller is no evidence against the member, and neither is one lost call while others are answered.
    } else if (outcome.is_member_fault) {
        record_failure(outcome.error, outcome.unreachable);
        // A member that does not respond may have lost its end of the connection, which TCP would detect only after minutes.
        if (members_->size() > 1 || outcome.error.code == Code::timeout) abandon_watch(generation);
    }
    co_return outcome;
}

template <class Request, class Response>
Task<Response> Engine::call_with_retry(Context ctx, Request request, Start<Request, Response> start, Duration timeout) {
    const auto until = deadline_of(ctx);
    Duration pause = std::chrono::milliseconds(10);
    for (int logins = 0;;) {
        if (fatal_error_) co_return *fatal_error_;
        auto call = std::make_shared<Call<Request, Response>>();
        call->request = request;
        auto outcome = co_await call_once(call, until, start, timeout);
        if (outcome.status == CallOutcome::Status::done) co_return std::move(call->response);
        if (outcome.status == CallOutcome::Status::refused || outcome.error.code == Code::cancelled || stopping_)
            co_return outcome.error;
        if (outcome.log_in_again && logins++ < 3) {
            CO_TRY(std::ignore, co_await members_->log_in(ctx.with_deadline(until)));
            continue;
        }
        if (std::chrono::steady_clock::now() + pause >= until || retries_exhausted()) co_return unavailable_error(outcome.error);
        CO_TRY(std::ignore, co_await real_clock().sleep(pause));
        pause = std::min<Duration>(pause * 2, std::chrono::milliseconds(200));
    }
}

} // namespace orrery::store::etcd
