#pragma once

#include "store/etcd/members.h"
#include "store/mirror.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace orrery::store::etcd {

/// Keys of our own below the prefix. The store's keys never begin with a slash, so these are out of everybody's sight.
constexpr std::string_view identity_key = "/identity";
constexpr std::string_view mark_key = "/mark";        ///< each write leaves "<session>.<number>" here
constexpr std::string_view session_key = "/session/"; ///< and is bound to the revision its session's key has

/// How the remedy of an error begins whose write may have been applied.
constexpr std::string_view unknown_outcome = "the outcome may be unknown";

/// Work that one coroutine does for all who want it: `busy` while it lasts, then everybody looks again.
class EngineTurn {
public:
    EngineTurn(bool& busy, Notifier& changed) : busy_(busy), changed_(changed) { busy_ = true; }
    ~EngineTurn() {
        busy_ = false;
        changed_.notify_all();
    }
    EngineTurn(const EngineTurn&) = delete;
    EngineTurn& operator=(const EngineTurn&) = delete;

private:
    bool& busy_;
    Notifier& changed_;
};

/// Lets coroutines wait until the copy has reached a revision.
class RevisionGate {
public:
    explicit RevisionGate(asio::any_io_executor executor) : executor_(std::move(executor)) {}
    /// `timeout` when `until` comes first, `cancelled` when the coroutine is cancelled or the gate is closed.
    Task<Unit> wait(Revision revision, SteadyTime until);
    void reached(Revision revision);
    void close();

private:
    struct Waiter {
        asio::steady_timer timer;
        bool told = false;
    };
    asio::any_io_executor executor_;
    Revision reached_ = 0;
    bool closed_ = false;
    std::multimap<Revision, std::shared_ptr<Waiter>> waiting_;
};

/// The store on etcd. Its parts: engine.cpp (reads, leases, asking), write.cpp (transactions, exactly once), feed.cpp (list and
/// watch).
class Engine final : public Store {
public:
    Engine(asio::any_io_executor executor, EtcdOptions options, std::unique_ptr<Members> members);
    ~Engine() override;

    /// Begins to follow the cluster and waits until the copy stands.
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
    std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> seen) override {
        return mirror_.observe(prefix, std::move(seen));
    }

    const std::string& identity() const override { return identity_; }
    Result<Unit> health() const override;
    std::vector<std::pair<std::string, double>> metrics() const override;
    asio::awaitable<void> stop() override;

private:
    template <class Request, class Response> using Call = net::GrpcCall<Request, Response>;
    template <class Request, class Response>
    using Start = void (*)(Line&, Call<Request, Response>&, std::function<void(grpc::Status)>);
    using TxnCall = Call<pb::TxnRequest, pb::TxnResponse>;

    /// A write on its way. Registered while it lasts, so that the watch can say what became of it.
    struct Underway {
        std::uint64_t number = 0;
        Revision applied = 0; ///< where its mark was seen
        bool blind = false;   ///< part of the history was missed: no mark does not mean not applied
    };
    class Registered;
    /// Somebody is inside one of our tasks: `stop` waits until nobody is.
    class Visit {
    public:
        explicit Visit(Engine& engine) : engine_(engine) { ++engine_.visits_; }
        ~Visit() {
            if (--engine_.visits_ == 0 && engine_.closing_) engine_.changed_.notify_all();
        }
        Visit(const Visit&) = delete;
        Visit& operator=(const Visit&) = delete;

    private:
        Engine& engine_;
    };

    // engine.cpp: one call, and calls until it succeeds.
    template <class Request, class Response>
    asio::awaitable<Outcome> attempt(std::shared_ptr<Call<Request, Response>> call, SteadyTime until,
                                     Start<Request, Response> start, Duration answer_within = Duration::zero());
    /// For what may be done twice: asks until it is answered, refused, or patience ends.
    template <class Request, class Response>
    Task<Response> ask(Context ctx, Request request, Start<Request, Response> start, Duration answer_within = Duration::zero());
    SteadyTime until_of(const Context& ctx) const;
    /// Whether there is any use in trying again.
    bool out_of_patience() const;
    Error lost_error(const Error& last) const;
    void note_loss(const Error& why, bool unreachable);
    void note_success();
    std::string path(std::string_view key) const { return options_.prefix + std::string(key); }
    /// Where the keys that are copied end, and those that stand aside begin.
    std::string copied_end() const { return options_.prefix + aside_mark; }
    /// Waits until the copy has `revision`, or has all of ours before it: other people's revisions never arrive.
    Task<Unit> settle(Context ctx, Revision revision);
    Task<Unit> raise_barrier(Context ctx);

    Task<LeaseId> grant_lease(Context ctx, Duration ttl);
    Task<Unit> renew_lease(Context ctx, LeaseId lease);
    Task<Unit> revoke_lease(Context ctx, LeaseId lease);

    // write.cpp
    Task<Revision> write(Context ctx, Transaction transaction, SteadyTime until);
    std::shared_ptr<TxnCall> build(const Transaction& transaction, std::uint64_t number) const;
    Task<Revision> check_only(Context ctx, Transaction transaction);
    Task<Revision> shown(Context ctx, Revision revision, SteadyTime until);
    /// Always `conflict`, in words, once the copy shows what was lost to.
    Task<Revision> refuse_conflict(Context ctx, std::shared_ptr<TxnCall> call, Transaction transaction, std::size_t first_answer);
    /// The revision the lost write has, or 0 when it surely has none and never will.
    Task<Revision> resolve(Context ctx, std::shared_ptr<Underway> underway, Revision sent_with);
    /// Makes every write bound to `old` or earlier impossible from here on; returns what later ones are bound to.
    Task<Revision> fence_off(Context ctx, Revision old);
    asio::awaitable<void> keep_session();

    // feed.cpp
    asio::awaitable<void> feed();
    Task<Unit> follow();
    Task<Unit> greet(Context ctx);
    Task<Unit> list(Context ctx);
    Task<Unit> pump();
    void take(pb::WatchResponse& response);
    void apply_pending(bool all);
    void see_hidden(std::string_view key, const pb::KeyValue& kv);

    asio::any_io_executor executor_;
    EtcdOptions options_;
    std::unique_ptr<Members> members_;
    Mirror mirror_;
    RevisionGate gate_;
    Notifier changed_; ///< connection, fence and reads: whoever waits for one of these looks again
    TaskGroup tasks_;
    std::size_t visits_ = 0;
    std::set<grpc::ClientContext*> calls_; ///< under way
    bool closing_ = false;                 ///< nobody may come in
    bool stopping_ = false;                ///< nothing any more

    // The feed.
    using Stream = net::GrpcStream<pb::WatchRequest, pb::WatchResponse>;
    std::shared_ptr<Stream> stream_;
    std::uint64_t stream_generation_ = 0;
    bool connected_ = false, listed_ = false;
    std::vector<pb::Event> pending_; ///< of a revision whose end has not come yet
    std::string identity_;
    std::optional<Error> fatal_; ///< it is not our store any more, or never was

    // Loss.
    SteadyTime heard_at_{}; ///< when the member in use last said anything
    std::optional<SteadyTime> lost_since_;
    std::string lost_reason_;
    std::set<std::string> unreachable_; ///< members without a connection since the loss

    // Writing.
    const std::string session_;
    LeaseId session_lease_ = 0;
    Revision epoch_ = 0; ///< the revision of our session's key
    bool fencing_ = false;
    std::uint64_t numbers_ = 0;
    std::unordered_map<std::uint64_t, std::shared_ptr<Underway>> underway_;

    // Reads of the cluster's revision, shared by all who wait for one.
    bool reading_ = false;
    std::uint64_t reads_started_ = 0, reads_done_ = 0;
    Revision read_revision_ = 0;
    bool barring_ = false;
    Revision barrier_ = 0;         ///< of our newest write to `mark_key` for settle()
    SteadyTime strangers_until_{}; ///< others write to this etcd too, seen lately

    struct {
        double connects = 0, failovers = 0, fences = 0, resolved = 0, lists = 0, barriers = 0;
    } counts_;
};

template <class Request, class Response>
asio::awaitable<Outcome> Engine::attempt(std::shared_ptr<Call<Request, Response>> call, SteadyTime until,
                                         Start<Request, Response> start, Duration answer_within) {
    if (answer_within == Duration::zero()) answer_within = options_.request_timeout;
    const auto generation = members_->generation();
    const auto address = members_->address();
    const auto asked_at = std::chrono::steady_clock::now();
    net::set_deadline(call->context, std::min(until, asked_at + answer_within));
    members_->prepare(call->context);
    auto line = members_->request_line();
    if (stopping_) co_return Outcome{Outcome::What::not_done, Error{Code::unavailable, "the store is being closed"}};
    calls_.insert(&call->context);
    auto status = co_await net::unary(call, [line, start](auto& c, auto done) { start(*line, c, std::move(done)); });
    calls_.erase(&call->context);
    auto outcome = judge(status, address);
    if (outcome.error.code == Code::cancelled) {
        // A member that shuts down cancels as well; only our own caller's wish counts as one.
        const auto state = co_await asio::this_coro::cancellation_state;
        if (state.cancelled() == asio::cancellation_type::none) {
            outcome.error = Error{Code::unavailable, fmt::format("etcd at {} dropped the call", address)};
            outcome.member_at_fault = !stopping_;
        }
    }
    if (outcome.what == Outcome::What::done || outcome.what == Outcome::What::refused) {
        note_success();
    } else if (outcome.error.code == Code::timeout && (until < asked_at + answer_within || heard_at_ > asked_at)) {
        // A caller in a hurry is no evidence against the member, and one that answers others is not silent: it lost this one.
    } else if (outcome.member_at_fault) {
        note_loss(outcome.error, outcome.unreachable);
        if (members_->size() > 1 && generation == members_->generation()) {
            members_->leave(generation);
            if (stream_ && stream_generation_ != members_->generation()) stream_->cancel();
        }
    }
    co_return outcome;
}

template <class Request, class Response>
Task<Response> Engine::ask(Context ctx, Request request, Start<Request, Response> start, Duration answer_within) {
    const auto until = until_of(ctx);
    Duration pause = std::chrono::milliseconds(10);
    for (int logins = 0;;) {
        if (fatal_) co_return *fatal_;
        auto call = std::make_shared<Call<Request, Response>>();
        call->request = request;
        auto outcome = co_await attempt(call, until, start, answer_within);
        if (outcome.what == Outcome::What::done) co_return std::move(call->response);
        if (outcome.what == Outcome::What::refused || outcome.error.code == Code::cancelled || stopping_) co_return outcome.error;
        if (outcome.log_in_again && logins++ < 3) {
            CO_TRY(std::ignore, co_await members_->log_in(ctx.with_deadline(until)));
            continue;
        }
        if (std::chrono::steady_clock::now() + pause >= until || out_of_patience()) co_return lost_error(outcome.error);
        CO_TRY(std::ignore, co_await real_clock().sleep(pause));
        pause = std::min<Duration>(pause * 2, std::chrono::milliseconds(200));
    }
}

} // namespace orrery::store::etcd
