#pragma once

#include "core/task.h"

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/status.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

/// The callback API of gRPC as coroutines. Calls start on the loop, run on the threads of gRPC, and complete on the loop. Include
/// it in .cpp files only, because it includes the headers of gRPC.
namespace orrery::net {

/// The objects that gRPC reads and writes during one unary call. gRPC shares ownership until the call has ended, so that they
/// outlive a caller that was destroyed earlier.
template <class Request, class Response> struct GrpcCall {
    grpc::ClientContext context;
    Request request;
    Response response;
};

/// Converts a deadline of the steady clock to the system clock, which gRPC uses.
inline void set_deadline(grpc::ClientContext& context, SteadyTime when) {
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(when - std::chrono::steady_clock::now()));
}

/// Starts `call` with `start(call, done)` and waits for its status; `done` is the last argument of a method of gRPC's callback API.
/// Cancelling the waiting coroutine cancels the call and still waits for its end: the status is CANCELLED, or the status that
/// arrived first.
///
///     auto call = std::make_shared<net::GrpcCall<PutRequest, PutResponse>>();
///     auto status = co_await net::unary(call, [&](auto& c, auto done) { stub.async()->Put(&c.context, &c.request, &c.response,
///     std::move(done)); });
template <class Call, class Start> asio::awaitable<grpc::Status> unary(std::shared_ptr<Call> call, Start start) {
    auto executor = co_await asio::this_coro::executor;
    auto initiate = [executor, call, start = std::move(start)](auto handler) mutable {
        auto slot = asio::get_associated_cancellation_slot(handler);
        if (slot.is_connected()) slot.assign([call](asio::cancellation_type) { call->context.TryCancel(); });
        // These must be destroyed on the loop: the handler, the guard that keeps the loop running, and the call, which may own the
        // last reference to its channel. gRPC joins its callback threads when the last channel is destroyed; on a callback thread
        // that would abort the process.
        struct Completion {
            decltype(handler) handler;
            asio::executor_work_guard<asio::any_io_executor> work;
            std::shared_ptr<Call> call;
        };
        auto completion = std::make_shared<std::optional<Completion>>();
        completion->emplace(std::move(handler), asio::make_work_guard(executor), call);
        auto done = [executor, completion, slot](grpc::Status status) mutable {
            // Moved out of the callback, because gRPC may destroy copies of the callback on another thread.
            auto finish = [taken = std::move(**completion), slot, status = std::move(status)]() mutable {
                if (slot.is_connected()) slot.clear();
                std::move(taken.handler)(std::move(status));
            };
            completion->reset();
            asio::post(executor, std::move(finish));
        };
        start(*call, std::move(done));
    };
    auto token = asio::use_awaitable;
    co_return co_await asio::async_initiate<decltype(token), void(grpc::Status)>(std::move(initiate), token);
}

/// A bidirectional stream. It reads ahead by a few messages and then stops reading, so that flow control slows a fast peer down.
/// Loop thread only. Keeps itself alive until gRPC has finished the stream. Call `cancel` before the last reference is dropped.
template <class Request, class Response>
class GrpcStream final : public grpc::ClientBidiReactor<Request, Response>,
                         public std::enable_shared_from_this<GrpcStream<Request, Response>> {
public:
    explicit GrpcStream(asio::any_io_executor executor) : executor_(std::move(executor)), arrived_(executor_) {}

    grpc::ClientContext& context() { return context_; }

    /// Starts the stream with `start(context, reactor)`, which calls the method of the stub. Call it once.
    template <class Start> void open(Start start) {
        self_ = this->shared_from_this();
        work_.emplace(asio::make_work_guard(executor_));
        start(context_, *this);
        this->AddHold(); // writes and later reads start outside of gRPC's callbacks
        this->StartRead(&incoming_);
        this->StartCall();
    }

    void write(Request request) {
        std::lock_guard lock(mutex_);
        outgoing_.push_back(std::move(request));
        write_next();
    }

    /// Waits for the next message. Errors: `unavailable` when the stream has ended (`status` has the cause), `cancelled` and
    /// `timeout` as in Notifier::wait.
    Task<Response> next(Context ctx) {
        auto self = this->shared_from_this();
        for (;;) {
            if (!received_.empty()) {
                Response response = std::move(received_.front());
                received_.pop_front();
                read_on();
                co_return response;
            }
            if (ended_) co_return Error{Code::unavailable, status_.error_message()};
            CO_TRY(std::ignore, co_await arrived_.wait(ctx));
        }
    }

    void cancel() {
        context_.TryCancel();
        release();
    }
    bool ended() const { return ended_; }
    const grpc::Status& status() const { return status_; }
    /// Waits until gRPC has finished the stream.
    asio::awaitable<void> finished() {
        auto self = this->shared_from_this();
        while (!ended_) std::ignore = co_await arrived_.wait(Context::background());
    }

private:
    static constexpr std::size_t read_ahead = 16;

    void OnReadDone(bool ok) override {
        if (!ok) {
            asio::post(executor_, [self = this->shared_from_this()] { self->release(); });
            return;
        }
        auto message = std::make_shared<Response>(std::move(incoming_));
        incoming_.Clear();
        asio::post(executor_, [self = this->shared_from_this(), message] {
            self->received_.push_back(std::move(*message));
            self->arrived_.notify_all();
        });
        std::lock_guard lock(mutex_);
        if (++ahead_ < read_ahead)
            this->StartRead(&incoming_);
        else
            paused_ = true;
    }

    void OnWriteDone(bool ok) override {
        std::lock_guard lock(mutex_);
        writing_ = false;
        if (ok) write_next();
    }

    void OnDone(const grpc::Status& status) override {
        asio::post(executor_, [self = this->shared_from_this(), status] {
            self->status_ = status;
            self->ended_ = true;
            self->arrived_.notify_all();
            self->work_.reset();
            self->self_.reset();
        });
    }

    void write_next() {
        if (writing_ || outgoing_.empty() || released_) return;
        writing_ = true;
        sending_ = std::move(outgoing_.front());
        outgoing_.pop_front();
        this->StartWrite(&sending_);
    }

    void read_on() {
        std::lock_guard lock(mutex_);
        --ahead_;
        if (!paused_ || released_) return;
        paused_ = false;
        this->StartRead(&incoming_);
    }

    void release() {
        {
            std::lock_guard lock(mutex_);
            if (released_) return;
            released_ = true;
        }
        this->RemoveHold();
    }

    asio::any_io_executor executor_;
    grpc::ClientContext context_;
    // Used on the threads of gRPC, protected by the mutex.
    std::mutex mutex_;
    Response incoming_;
    Request sending_;
    std::deque<Request> outgoing_;
    std::size_t ahead_ = 0;
    bool writing_ = false, paused_ = false, released_ = false;
    // Used on the loop only.
    std::deque<Response> received_;
    Notifier arrived_;
    bool ended_ = false;
    grpc::Status status_;
    std::optional<asio::executor_work_guard<asio::any_io_executor>> work_;
    std::shared_ptr<GrpcStream> self_;
};

} // namespace orrery::net
