#include "app/server_component.h"
#include "core/test_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::app {

namespace {

using ::testing::ElementsAre;

/// Records the calls of its life cycle.
class RecordedComponent final : public ServerComponent {
public:
    RecordedComponent(std::string name, std::vector<std::string>& calls) : name_(std::move(name)), calls_(calls) {}
    std::string_view name() const override { return name_; }
    Task<Unit> start(Context ctx) override {
        calls_.push_back("start " + name_);
        if (fails) co_return Error{Code::unavailable, "no port"};
        co_return Unit{};
    }
    asio::awaitable<void> drain(Duration grace) override {
        calls_.push_back("drain " + name_);
        co_return;
    }
    asio::awaitable<void> stop() override {
        calls_.push_back("stop " + name_);
        co_return;
    }
    bool fails = false;

private:
    std::string name_;
    std::vector<std::string>& calls_;
};

} // namespace

CO_TEST(ComponentSequence, StopsInTheReverseOrderOfTheStart) {
    std::vector<std::string> calls;
    RecordedComponent store("store", calls), api("api", calls);
    ComponentSequence components({&store, &api});
    const auto started = co_await components.start(Context::background());
    EXPECT_TRUE(started.ok());
    co_await components.drain(std::chrono::seconds(1));
    co_await components.stop();
    EXPECT_THAT(calls, ElementsAre("start store", "start api", "drain api", "drain store", "stop api", "stop store"));
}

CO_TEST(ComponentSequence, AFailedStartEndsTheStartAndStopsWhatWasStarted) {
    std::vector<std::string> calls;
    RecordedComponent store("store", calls), catalog("catalog", calls), api("api", calls);
    catalog.fails = true;
    ComponentSequence components({&store, &catalog, &api});
    const auto started = co_await components.start(Context::background());
    EXPECT_FALSE(started.ok());
    co_await components.drain(std::chrono::seconds(1));
    co_await components.stop();
    EXPECT_THAT(calls, ElementsAre("start store", "start catalog", "drain catalog", "drain store", "stop catalog", "stop store"));
}

} // namespace orrery::app
