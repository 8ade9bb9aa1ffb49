#include "resource/keyed_mutex.h"

#include <boost/asio/this_coro.hpp>

namespace orrery::resource {

/// Lives in the frame of the waiting coroutine and leaves the queue with it, however the coroutine ends.
struct KeyedMutex::Waiter {
    Waiter(std::shared_ptr<KeyedMutex> mutex_, std::string key_, asio::any_io_executor executor)
        : mutex(std::move(mutex_)), key(std::move(key_)), granted(std::move(executor)) {
        auto& queue = mutex->waiters_[key];
        position = queue.insert(queue.end(), this);
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    ~Waiter() {
        if (!has_lock) mutex->waiters_[key].erase(position);
    }
    std::shared_ptr<KeyedMutex> mutex;
    std::string key;
    Notifier granted;
    std::list<Waiter*>::iterator position;
    bool has_lock = false;
};

Task<KeyedMutex::Lock> KeyedMutex::lock(Context ctx, std::shared_ptr<KeyedMutex> mutex, std::string key) {
    if (mutex->waiters_.try_emplace(key).second) co_return Lock(std::move(mutex), std::move(key));
    Waiter waiter(mutex, key, co_await asio::this_coro::executor);
    while (!waiter.has_lock) {
        auto waited = co_await waiter.granted.wait(ctx);
        if (waited.ok() || waiter.has_lock) continue;
        co_return std::move(waited).error();
    }
    co_return Lock(std::move(mutex), std::move(key));
}

void KeyedMutex::unlock(const std::string& key) {
    const auto at = waiters_.find(key);
    if (at == waiters_.end()) return;
    auto& queue = at->second;
    if (queue.empty()) {
        waiters_.erase(at);
        return;
    }
    auto* next = queue.front();
    queue.pop_front();
    next->has_lock = true;
    next->granted.notify_all();
}

} // namespace orrery::resource
