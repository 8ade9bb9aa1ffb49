#include "health/probes/programs.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::health {

struct Programs::State {
    State(asio::any_io_executor executor, std::size_t at_once_, Result<std::optional<net::ProcessUser>> account_)
        : changed(std::move(executor)), at_once(std::max<std::size_t>(1, at_once_)), account(std::move(account_)) {}
    Notifier changed;
    std::size_t at_once, running = 0;
    Result<std::optional<net::ProcessUser>> account;
};

Programs::Programs(asio::any_io_executor executor, std::size_t at_once, Result<std::optional<net::ProcessUser>> account)
    : state_(std::make_shared<State>(std::move(executor), at_once, std::move(account))) {}
Programs::~Programs() = default;
std::size_t Programs::running() const { return state_->running; }

Task<Programs::Ended> Programs::run(Context ctx, std::vector<std::string> argv, std::map<std::string, std::string> environment) {
    const auto state = state_;
    if (!state->account.ok()) co_return state->account.error();
    while (state->running >= state->at_once) {
        auto woken = co_await state->changed.wait(ctx);
        if (woken.ok()) continue;
        if (woken.error().code != Code::timeout) co_return std::move(woken).error();
        co_return Error{Code::throttled, fmt::format("{} programs run already, and none ended in time", state->at_once)};
    }
    struct Slot {
        std::shared_ptr<State> of;
        ~Slot() {
            --of->running;
            of->changed.notify_all();
        }
    };
    ++state->running;
    const Slot slot{state};
    net::ProcessSpec spec;
    spec.argv = std::move(argv);
    spec.environment = std::move(environment);
    spec.environment.try_emplace("LC_ALL", "C.UTF-8");
    spec.environment.try_emplace("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    spec.folder = "/";
    spec.user = *state->account;
    spec.no_new_privileges = true;
    spec.max_output = 64 << 10;
    spec.term_grace = std::chrono::milliseconds(500);
    CO_TRY(auto ended, co_await net::run_process(ctx, std::move(spec)));
    co_return Ended{ended.exit_code, ended.output.empty() ? std::move(ended.errors) : std::move(ended.output)};
}

} // namespace orrery::health
