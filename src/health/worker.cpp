#include "health/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace orrery::health {

namespace {

constexpr std::size_t events_at_once = 512;
/// A round that took longer than this was not ours to spend: the machine stood still, or others had the processor.
constexpr auto worth_noting = std::chrono::milliseconds(100);

} // namespace

Worker::Worker(const Engine::Options& options_, std::size_t kept_connections, Names& names)
    : options(options_), names_(names), most_kept_(kept_connections), buffer_(64 << 10) {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll_ < 0 || bell_ < 0) std::abort(); // at the start of the program, with no files left
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, bell_, &event);
    epoch_ = now_ = real_clock().steady();
    thread_ = std::thread([this] { run(); });
}

Worker::~Worker() {
    {
        std::lock_guard lock(mutex_);
        errands_.stop = true;
    }
    wake();
    thread_.join();
    ::close(bell_);
    ::close(epoll_);
}

void Worker::wake() {
    const std::uint64_t one = 1;
    std::ignore = ::write(bell_, &one, sizeof one);
}

void Worker::order(std::vector<Engine::Order> orders) {
    bool ring = false;
    {
        std::lock_guard lock(mutex_);
        if (errands_.orders.empty())
            errands_.orders = std::move(orders);
        else
            std::move(orders.begin(), orders.end(), std::back_inserter(errands_.orders));
        ring = !std::exchange(rung_, true);
    }
    if (ring) wake();
}

void Worker::remove(Engine::SpotPtr spot) {
    bool ring = false;
    {
        std::lock_guard lock(mutex_);
        errands_.removed.push_back(std::move(spot));
        ring = !std::exchange(rung_, true);
    }
    if (ring) wake();
}

Wheel::Tick Worker::tick_of(SteadyTime time) const { return time <= epoch_ ? 0 : static_cast<Wheel::Tick>((time - epoch_) / tick); }

/// Until the next deadline may pass, in whole milliseconds; -1: until something happens.
int Worker::time_to_sleep() const {
    const auto next = deadlines_.next_event();
    if (next == Wheel::never) return -1;
    const auto left = epoch_ + tick * static_cast<std::int64_t>(next) - real_clock().steady();
    return left <= Duration{} ? 0 : static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

void Worker::run() {
    // Signals are for the main thread; a write to a closed connection must end in an error, not in the process.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    ::pthread_setname_np(::pthread_self(), "health");
    std::vector<epoll_event> events(events_at_once);
    auto last = now_;
    while (!stopping_) {
        const int sleep = time_to_sleep();
        const auto before = real_clock().steady();
        const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), sleep);
        now_ = real_clock().steady();
        // How long deadlines went unwatched: the round before and what the sleep took beyond its time.
        const auto asleep = now_ - before;
        auto unwatched = before - last;
        if (sleep >= 0 && asleep > std::chrono::milliseconds(sleep)) unwatched += asleep - std::chrono::milliseconds(sleep);
        last = now_;
        if (unwatched > worth_noting) {
            stalled_ = unwatched;
            stalled_until_ = now_;
        }
        bool errands = false;
        for (int i = 0; i < count; ++i) {
            if (events[static_cast<std::size_t>(i)].data.ptr == nullptr)
                errands = true;
            else
                on_event(*static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr),
                         events[static_cast<std::size_t>(i)].events);
        }
        if (errands) {
            std::uint64_t ignored = 0;
            std::ignore = ::read(bell_, &ignored, sizeof ignored);
            Errands taken;
            {
                std::lock_guard lock(mutex_);
                std::swap(taken, errands_);
                rung_ = false;
            }
            take_errands(std::move(taken));
        }
        settle_fresh();
        // After the events: what came in time is judged by what came, however late we are.
        deadlines_.advance(tick_of(now_), [this](Wheel::Waiting& due) { expire(static_cast<Look&>(due)); });
        start_waiting_handshakes();
        settle_fresh(); // a second address, tried after the first came to nothing
        deliver();
        bury();
    }
    while (!active_.empty()) finish(*active_.back(), Outcome::local_error, "the engine ended");
    for (auto* connection = oldest_; connection != nullptr;) {
        auto* next = connection->newer;
        unrest(*connection);
        drop(*connection);
        connection = next;
    }
    bury();
    for (auto& family : sockets_)
        for (auto* connection : family) {
            ::close(connection->fd);
            delete connection;
        }
}

void Worker::take_errands(Errands errands) {
    stopping_ = errands.stop;
    for (auto& order : errands.orders) begin(std::move(order));
    for (auto& found : errands.resolved) resolved(std::move(found));
    for (const auto& spot : errands.removed) {
        spot->removed = true;
        if (auto* kept = spot->kept) {
            unrest(*kept);
            drop(*kept);
        }
        if (spot->session) {
            spot->session.reset();
            --counts.sessions;
        }
    }
}

void Worker::begin(Engine::Order order) {
    auto& spot = *order.spot;
    if (spot.look != nullptr || stopping_) { // never two looks at a target at once
        outbox_.emplace_back(spot.inbox,
                             Engine::Done{order.tag, {.outcome = Outcome::local_error, .text = "the last look still runs"}});
        return;
    }
    std::unique_ptr<Look> owned;
    if (spare_looks_.empty()) {
        owned = std::make_unique<Look>();
    } else {
        owned = std::move(spare_looks_.back());
        spare_looks_.pop_back();
    }
    auto& look = *owned.release();
    look.spot = std::move(order.spot);
    look.plan = spot.plan.get();
    look.elsewhere.reset();
    look.tag = order.tag;
    look.serial = ++serials_;
    look.begin = now_;
    look.deadline = order.deadline;
    look.connection = nullptr;
    look.on_kept = false;
    look.next_address = look.written = 0;
    look.seen = {};
    look.answer.begin({});
    look.place = active_.size();
    active_.push_back(&look);
    spot.look = &look;
    ++counts.looking;
    deadlines_.add(look, tick_of(order.deadline) + 1);
    if (spot.kept != nullptr) {
        auto& kept = *spot.kept;
        unrest(kept);
        kept.look = &look;
        look.connection = &kept;
        look.on_kept = true;
        ++counts.reused;
        start_exchange(look);
        return;
    }
    look.addresses = spot.literal;
    find_and_connect(look);
}

void Worker::find_and_connect(Look& look) {
    if (!look.addresses) {
        look.phase = Look::Phase::resolving;
        look.addresses = names_.find(look.plan->host, look.plan->port, now_,
                                     [this, again = look.spot, serial = look.serial](Names::Answer answer) {
                                         bool ring = false;
                                         {
                                             std::lock_guard lock(mutex_);
                                             errands_.resolved.push_back({again, serial, std::move(answer)});
                                             ring = !std::exchange(rung_, true);
                                         }
                                         if (ring) wake();
                                     });
        if (!look.addresses) return;
    }
    connect_next(look);
}

void Worker::resolved(Resolved found) {
    auto* look = found.spot->look;
    if (look == nullptr || look->serial != found.serial || look->phase != Look::Phase::resolving) return; // it has ended meanwhile
    if (!found.answer.ok()) {
        const bool none = found.answer.error().code == Code::not_found;
        finish(*look, none ? Outcome::dns_error : Outcome::local_error, found.answer.error().message);
        return;
    }
    look->addresses = std::move(*found.answer);
    connect_next(*look);
}

void Worker::expire(Look& look) {
    // A deadline that passed while we did not look at the clock tells of us.
    if (look.begin < stalled_until_ && stalled_ * 4 > look.deadline - look.begin) {
        finish(look, Outcome::local_error,
               fmt::format("this server stood still for {} ms",
                           std::chrono::duration_cast<std::chrono::milliseconds>(stalled_).count()));
        return;
    }
    switch (look.phase) {
    case Look::Phase::resolving: finish(look, Outcome::local_error, "the name was not resolved in time"); return;
    case Look::Phase::queueing: finish(look, Outcome::local_error, "this server had no time for the handshake"); return;
    case Look::Phase::connecting: finish(look, Outcome::timeout_connect, "no answer in time"); return;
    case Look::Phase::handshaking: finish(look, Outcome::timeout_connect, "no handshake in time"); return;
    case Look::Phase::writing:
    case Look::Phase::reading: finish(look, Outcome::timeout_read, "no whole answer in time"); return;
    }
}

void Worker::deliver() {
    if (outbox_.empty()) return;
    std::vector<Engine::Done> part;
    for (std::size_t at = 0; at < outbox_.size();) {
        const auto inbox = outbox_[at].first;
        for (; at < outbox_.size() && outbox_[at].first == inbox; ++at) part.push_back(std::move(outbox_[at].second));
        inbox->put(part);
        part.clear();
    }
    outbox_.clear();
}

} // namespace orrery::health
