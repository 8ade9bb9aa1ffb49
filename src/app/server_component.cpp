#include "app/server_component.h"

namespace orrery::app {

Task<Unit> ComponentSequence::start(Context ctx) {
    for (auto* component : components_) {
        ++started_;
        CO_TRY(std::ignore, co_await component->start(ctx));
    }
    co_return Unit{};
}

asio::awaitable<void> ComponentSequence::drain(Duration grace) {
    for (auto i = started_; i-- > 0;) co_await components_[i]->drain(grace);
}

asio::awaitable<void> ComponentSequence::stop() {
    for (auto i = started_; i-- > 0;) co_await components_[i]->stop();
}

} // namespace orrery::app
