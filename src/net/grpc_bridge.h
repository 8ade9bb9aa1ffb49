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

/// gRPC's callback API as coroutines: calls are started from the loop, gRPC's own threads carry them, and their ends are posted
/// back to the loop. For .cpp files only: it brings gRPC's headers.
namespace orrery::net {

/// One unary call: what gRPC reads and writes while it lasts. Shared with gRPC until the call has ended, so that nothing dangles
/// when the caller goes away first.
template <class Request, class Response> struct GrpcCall {
    grpc::ClientContext context;
    Request request;
    Response response;
};

/// gRPC measures deadlines on the time of day; ours are on the steady clock.
inline void set_deadline(grpc::ClientContext& context, SteadyTime when) {
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(when - std::chrono::steady_clock::now()));
}

/// Starts `call` by `start(call, done)`, where `done` is what gRPC's callback API takes as its last argument, and waits for its
/// end. When the waiting coroutine is cancelled, so is the call, and its end is still awaited: the status is then CANCELLED, or
/// what came first.
///
///     auto call = std::make_shared<net::GrpcCall<PutRequest, PutResponse>>();
///     auto status = co_await net::unary(call, [&](auto& c, auto done) { stub.async()->Put(&c.context, &c.request, &c.response,
///     std::move(done)); });
template <class Call, class Start> asio::awaitable<grpc::Status> unary(std::shared_ptr<Call> call, Start start) {
    auto executor = co_await asio::this_coro::executor;
    auto initiate = [executor, call, start = std::move(start)](auto handler) mutable {
        auto slot = asio::get_associated_cancellation_slot(handler);
        if (slot.is_connected()) slot.assign([call](asio::cancellation_type) { call->context.TryCancel(); });
        // What must come home to the loop: the handler, the guard that keeps the loop running until then, and the call, which may
        // be the last to hold its channel. gRPC ends the threads of its callbacks with the last channel, and one that did so
        // from its own callback would abort the program.
        struct Homeward {
            decltype(handler) handler;
            asio::executor_work_guard<asio::any_io_executor> work;
            std::shared_ptr<Call> call;
        };
        auto homeward = std::make_shared<std::optional<Homeward>>();
        homeward->emplace(std::move(handler), asio::make_work_guard(executor), call);
        auto done = [executor, homeward, slot](grpc::Status status) mutable {
            // Taken out of gRPC's callback, whose copies may live on and die on another thread.
            auto finish = [taken = std::move(**homeward), slot, status = std::move(status)]() mutable {
                if (slot.is_connected()) slot.clear();
                std::move(taken.handler)(std::move(status));
            };
            homeward->reset();
            asio::post(executor, std::move(finish));
        };
        start(*call, std::move(done));
    };
    auto token = asio::use_awaitable;
    co_return co_await asio::async_initiate<decltype(token), void(grpc::Status)>(std::move(initiate), token);
}

/// A stream both ways. gRPC reads ahead by a few messages and then waits for us: a peer that sends faster than we take is held up,
/// not stored. Used from the loop only; keeps itself until gRPC is done with it. Cancel it before letting go.
template <class Request, class Response>
class GrpcStream final : public grpc::ClientBidiReactor<Request, Response>,
                         public std::enable_shared_from_this<GrpcStream<Request, Response>> {
public:
    explicit GrpcStream(asio::any_io_executor executor) : executor_(std::move(executor)), arrived_(executor_) {}

    grpc::ClientContext& context() { return context_; }

    /// Starts by `start(context, reactor)`, which calls the stub's method. Once.
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

    /// The next message; `unavailable` when the stream has ended (`status` says why), `cancelled` and `timeout` as in
    /// Notifier::wait.
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
    /// Waits until gRPC is done with the stream.
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
    // On gRPC's threads, under the mutex.
    std::mutex mutex_;
    Response incoming_;
    Request sending_;
    std::deque<Request> outgoing_;
    std::size_t ahead_ = 0;
    bool writing_ = false, paused_ = false, released_ = false;
    // On the loop.
    std::deque<Response> received_;
    Notifier arrived_;
    bool ended_ = false;
    grpc::Status status_;
    std::optional<asio::executor_work_guard<asio::any_io_executor>> work_;
    std::shared_ptr<GrpcStream> self_;
};

} // namespace orrery::net
