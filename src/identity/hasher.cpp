#include "identity/hasher.h"

#include "identity/password.h"

#include <boost/asio/this_coro.hpp>

#include <optional>
#include <utility>

namespace orrery::identity {

struct Hasher::State {
    State(Pool& pool_, std::size_t at_once_, std::size_t most_waiting_)
        : pool(pool_), at_once(at_once_), most_waiting(most_waiting_) {}
    Pool& pool;
    std::size_t at_once, most_waiting, running = 0, waiting = 0;
    std::optional<Notifier> place_free; // made with the first caller's loop
};

namespace {

/// Counts one more while it lives, also where a coroutine is cancelled.
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

Hasher::Hasher(Pool& pool, std::size_t at_once, std::size_t waiting) : state_(std::make_shared<State>(pool, at_once, waiting)) {}
Hasher::~Hasher() = default;

namespace {

template <class State> Task<Counted> take_place(Context ctx, std::shared_ptr<State> state) {
    if (!state->place_free) state->place_free.emplace(co_await asio::this_coro::executor);
    if (state->running >= state->at_once) {
        if (state->waiting >= state->most_waiting)
            co_return Error{Code::throttled, "too many passwords are being checked", "try again in some seconds"};
        Counted waits(state->waiting);
        while (state->running >= state->at_once) {
            CO_TRY(std::ignore, co_await state->place_free->wait(ctx));
        }
    }
    co_return Counted(state->running);
}

/// Runs `work` in one of the places; whoever waits is told when it is free again.
template <class State, class F>
auto in_place(Context ctx, std::shared_ptr<State> state, F work) -> asio::awaitable<std::invoke_result_t<F&>> {
    struct Tell {
        State& state;
        ~Tell() { state.place_free->notify_all(); }
    };
    auto taken = co_await take_place(std::move(ctx), state);
    if (!taken.ok()) co_return std::move(taken).error();
    const Tell tell{*state}; // after the place itself is given back: the waiting run later, from the loop
    auto place = std::move(taken).value();
    co_return co_await blocking(state->pool, std::move(work));
}

} // namespace

Task<std::string> Hasher::hash(Context ctx, std::string password) {
    auto work = [password = std::move(password)]() -> Result<std::string> {
        auto hash = hash_password(password);
        if (hash.empty())
            return Error{Code::unavailable, "there is no memory to hash a password in (64 MiB)",
                         "try again, or give the server more memory"};
        return hash;
    };
    return in_place(std::move(ctx), state_, std::move(work));
}

Task<bool> Hasher::verify(Context ctx, std::string hash, std::string password) {
    auto work = [hash = std::move(hash), password = std::move(password)]() -> Result<bool> {
        return verify_password(hash, password);
    };
    return in_place(std::move(ctx), state_, std::move(work));
}

} // namespace orrery::identity
