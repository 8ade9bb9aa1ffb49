#include "net/http_pool.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

namespace orrery::net {

namespace {
constexpr std::size_t max_response_head = 64 * 1024;
}

bool ClientConnection::is_usable() const {
    if (taken != filled) return false;
    char byte = 0;
    const auto seen = ::recv(stream->descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return seen < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

HttpPool::HttpPool(asio::any_io_executor executor, HttpClient::Options options)
    : executor_(std::move(executor)), options_(std::move(options)), reaper_(executor_) {}

HttpPool::Lease& HttpPool::Lease::operator=(Lease&& other) noexcept {
    if (this == &other) return *this;
    release();
    pool_ = std::move(other.pool_);
    origin_ = std::move(other.origin_);
    connection_ = std::move(other.connection_);
    return *this;
}

void HttpPool::Lease::attach(std::unique_ptr<ClientConnection> connection) {
    drop();
    connection_ = std::move(connection);
    pool_->origins_[origin_].busy.push_back(connection_.get());
}

void HttpPool::Lease::drop() {
    if (!connection_) return;
    pool_->origins_[origin_].busy.remove(connection_.get());
    connection_.reset();
}

void HttpPool::Lease::keep() {
    if (!connection_) return;
    pool_->origins_[origin_].busy.remove(connection_.get());
    pool_->give_back(origin_, std::move(connection_));
    release();
}

void HttpPool::Lease::release() {
    if (!pool_) return;
    drop();
    pool_->release_slot(origin_);
    pool_.reset();
}

Task<HttpPool::Lease> HttpPool::acquire(Context ctx, Url url, Use use) {
    const auto self = shared_from_this();
    const auto name = url.origin();
    if (stopped_) co_return Error{Code::cancelled, "the client has stopped"};
    auto* origin = &origins_[name];
    if (origin->in_use >= options_.max_per_host || !origin->waiting.empty()) {
        if (origin->waiting.size() >= options_.max_waiting_per_host) {
            forget_if_empty(name);
            co_return Error{Code::throttled,
                            fmt::format("{} requests to {} wait for one of {} connections already", origin->waiting.size(), name,
                                        options_.max_per_host),
                            "wait for some of them to end"};
        }
        auto waiter = std::make_shared<Waiter>(asio::steady_timer(executor_, ctx.deadline().value_or(SteadyTime::max())));
        const auto in_line = origin->waiting.insert(origin->waiting.end(), waiter);
        auto [error] = co_await waiter->timer.async_wait(asio::as_tuple(asio::use_awaitable));
        if (!waiter->granted) {
            origin->waiting.erase(in_line);
            forget_if_empty(name);
            if (!error) co_return Error{Code::timeout, fmt::format("no connection to {} became free in time", name)};
            co_return Error{Code::cancelled, "the request was cancelled"};
        }
    } else {
        ++origin->in_use;
    }
    Lease lease(self, name);
    if (stopped_) co_return Error{Code::cancelled, "the client has stopped"};
    while (use == Use::idle_first && !origin->idle.empty()) {
        auto connection = std::move(origin->idle.back().connection);
        origin->idle.pop_back();
        if (!connection->is_usable()) continue;
        connection->reused = true;
        lease.attach(std::move(connection));
        break;
    }
    co_return std::move(lease);
}

Task<Unit> HttpPool::connect(Context ctx, Url url, Lease& lease) {
    const auto self = shared_from_this();
    std::shared_ptr<TlsContext> trust;
    if (url.scheme == "https") {
        CO_TRY(trust, tls());
    }
    CO_TRY(auto stream, co_await connect_stream(ctx, url, std::move(trust), options_.connect_timeout, options_.outbound));
    if (stopped_) co_return Error{Code::cancelled, "the client has stopped"};
    lease.attach(std::make_unique<ClientConnection>(std::move(stream), max_response_head));
    co_return Unit{};
}

Result<std::shared_ptr<TlsContext>> HttpPool::tls() {
    if (!options_.tls) {
        TRY(options_.tls, tls_client({}));
    }
    return options_.tls;
}

void HttpPool::give_back(const std::string& origin, std::unique_ptr<ClientConnection> connection) {
    if (stopped_) return;
    auto& idle = origins_[origin].idle;
    idle.push_back({std::move(connection), std::chrono::steady_clock::now()});
    if (idle.size() > options_.max_idle_per_host) idle.pop_front();
    if (!reaping_ && !idle.empty()) close_old();
}

void HttpPool::release_slot(const std::string& name) {
    auto& origin = origins_[name];
    if (origin.waiting.empty()) {
        --origin.in_use;
        forget_if_empty(name);
        return;
    }
    const auto next = std::move(origin.waiting.front());
    origin.waiting.pop_front();
    next->granted = true;
    next->timer.cancel();
}

void HttpPool::forget_if_empty(const std::string& name) {
    const auto found = origins_.find(name);
    if (found == origins_.end()) return;
    const auto& origin = found->second;
    if (origin.in_use == 0 && origin.idle.empty() && origin.waiting.empty() && origin.busy.empty()) origins_.erase(found);
}

/// Closes what has been idle for long, and comes back when the next one is due.
void HttpPool::close_old() {
    reaping_ = false;
    auto next = SteadyTime::max();
    const auto before = std::chrono::steady_clock::now() - options_.idle_timeout;
    for (auto at = origins_.begin(); at != origins_.end();) {
        const auto here = at++;
        auto& idle = here->second.idle;
        while (!idle.empty() && idle.front().since <= before) idle.pop_front();
        if (!idle.empty())
            next = std::min(next, idle.front().since + options_.idle_timeout);
        else
            forget_if_empty(std::string(here->first));
    }
    if (next == SteadyTime::max()) return;
    reaping_ = true;
    reaper_.expires_at(next);
    reaper_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
        if (auto self = weak.lock(); self && !error) self->close_old();
    });
}

void HttpPool::stop() {
    stopped_ = true;
    reaper_.cancel();
    for (auto& [name, origin] : origins_) {
        origin.idle.clear();
        for (auto* connection : origin.busy) connection->stream->close();
        for (const auto& waiter : origin.waiting) {
            ++origin.in_use;
            waiter->granted = true;
            waiter->timer.cancel();
        }
        origin.waiting.clear();
    }
}

} // namespace orrery::net
