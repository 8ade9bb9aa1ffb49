#include "identity/password_hasher.h"

#include "identity/password.h"

#include <boost/asio/this_coro.hpp>

#include <optional>
#include <utility>

namespace orrery::identity {

struct PasswordHasher::State {
    State(std::size_t max_concurrent_, std::size_t max_waiting_)
        : pool(max_concurrent_), max_concurrent(max_concurrent_), max_waiting(max_waiting_) {}
    ~State() { pool.join(); }
    Pool pool;
    std::size_t max_concurrent, max_waiting, running = 0, waiting = 0;
    std::optional<Notifier> slot_released; // created by the first call, on its loop
};

namespace {

/// Increments a counter for its lifetime, also if the coroutine is cancelled.
class Counted {
public:
    explicit Counted(std::size_t& count) : count_(&count) { ++*count_; }
    Counted(Counted&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
    Counted& operator=(Counted&&) = delete;
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() {
        if (count_) --*count_;
    }

private:
    std::size_t* count_;
};

} // namespace

PasswordHasher::PasswordHasher(std::size_t max_concurrent, std::size_t max_waiting)
    : state_(std::make_shared<State>(max_concurrent, max_waiting)) {}
PasswordHasher::~PasswordHasher() = default;

namespace {

template <class State> Task<Counted> acquire_slot(Context ctx, std::shared_ptr<State> state) {
    if (!state->slot_released) state->slot_released.emplace(co_await asio::this_coro::executor);
    if (state->running >= state->max_concurrent) {
        if (state->waiting >= state->max_waiting)
            co_return Error{Code::throttled, "too many passwords are being checked", "try again in some seconds"};
        Counted waiter(state->waiting);
        while (state->running >= state->max_concurrent) {
            CO_TRY(std::ignore, co_await state->slot_released->wait(ctx));
        }
    }
    co_return Counted(state->running);
}

/// Runs `work` in a slot and notifies the waiting calls when the slot is released.
template <class State, class F>
auto run_in_slot(Context ctx, std::shared_ptr<State> state, F work) -> asio::awaitable<std::invoke_result_t<F&>> {
    struct NotifyRelease {
        State& state;
        ~NotifyRelease() { state.slot_released->notify_all(); }
    };
    auto acquired = co_await acquire_slot(std::move(ctx), state);
    if (!acquired.ok()) co_return std::move(acquired).error();
    const NotifyRelease notify{*state}; // destroyed after the slot: waiting calls resume later, from the loop
    auto slot = std::move(acquired).value();
    co_return co_await blocking(state->pool, std::move(work));
}

} // namespace

Task<std::string> PasswordHasher::hash(Context ctx, std::string password) {
    auto work = [password = std::move(password)]() -> Result<std::string> {
        auto hash = hash_password(password);
        if (hash.empty())
            return Error{Code::unavailable, "not enough memory to hash a password (64 MiB)",
                         "try again, or give the server more memory"};
        return hash;
    };
    return run_in_slot(std::move(ctx), state_, std::move(work));
}

Task<bool> PasswordHasher::verify(Context ctx, std::string hash, std::string password) {
    auto work = [hash = std::move(hash), password = std::move(password)]() -> Result<bool> {
        return verify_password(hash, password);
    };
    return run_in_slot(std::move(ctx), state_, std::move(work));
}

} // namespace orrery::identity
