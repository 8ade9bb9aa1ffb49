#include "health/probes/probe.h"

#include <functional>
#include <map>

namespace orrery::health {

asio::awaitable<Observation> Probe::run(Context) const {
    co_return Observation{.outcome = Outcome::local_error, .text = "this probe needs the engine"};
}

asio::awaitable<Observation> probe_once(Engine& engine, ProbePtr probe, Context ctx) {
    if (auto program = probe->program()) co_return co_await probe_once(engine, std::move(program), ctx);
    co_return co_await probe->run(ctx);
}

std::shared_ptr<const Masker> masker_of(const std::vector<std::string>& secrets) {
    std::map<std::string, std::string, std::less<>> by_number;
    for (const auto& secret : secrets) by_number.emplace(std::to_string(by_number.size()), secret);
    return by_number.empty() ? nullptr : std::make_shared<const Masker>(by_number);
}

} // namespace orrery::health
