#pragma once

#include "core/task.h"

#include <list>
#include <memory>
#include <string>
#include <unordered_map>

namespace orrery::resource {

/// A set of mutexes, one for each key, that coroutines hold across awaits. Waiters are served in the order in which they came.
/// Resources takes the lock of a resource for each write. Writes are correct without it, because they compare revisions; but
/// concurrent writes of one resource would conflict with each other, possibly again and again. Loop thread only.
class KeyedMutex {
public:
    /// Holds the mutex of one key until it is destroyed.
    class Lock {
    public:
        Lock(std::shared_ptr<KeyedMutex> mutex, std::string key) : mutex_(std::move(mutex)), key_(std::move(key)) {}
        Lock(Lock&&) = default;
        Lock& operator=(Lock&&) = delete;
        ~Lock() {
            if (mutex_) mutex_->unlock(key_);
        }

    private:
        std::shared_ptr<KeyedMutex> mutex_;
        std::string key_;
    };

    /// Waits for the mutex of `key`. Errors: `cancelled` and `timeout`, as in Notifier::wait.
    static Task<Lock> lock(Context ctx, std::shared_ptr<KeyedMutex> mutex, std::string key);

private:
    struct Waiter;
    void unlock(const std::string& key);
    std::unordered_map<std::string, std::list<Waiter*>> waiters_; ///< has an entry for each locked key, even without waiters
};

} // namespace orrery::resource
