#include "health/engine/wheel.h"

#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <random>

namespace orrery::health {

namespace {

struct Timed : Wheel::Waiting {
    int name = 0;
};

} // namespace

TEST(Wheel, ReturnsEachEntryAtItsTick) {
    Wheel wheel(1000);
    std::vector<Timed> timed(6);
    const std::vector<Wheel::Tick> at{1001, 1255, 1256, 70'000, 1000 + (1ULL << 24), 1077 + (1ULL << 24)};
    for (std::size_t i = 0; i < at.size(); ++i) {
        timed[i].name = static_cast<int>(i);
        wheel.add(timed[i], at[i]);
    }
    std::vector<std::pair<int, Wheel::Tick>> seen;
    while (wheel.size() > 0)
        wheel.advance(wheel.next_event(),
                      [&](Wheel::Waiting& one) { seen.emplace_back(static_cast<Timed&>(one).name, wheel.now()); });
    ASSERT_EQ(seen.size(), at.size());
    for (std::size_t i = 0; i < at.size(); ++i) EXPECT_EQ(seen[i], std::pair(static_cast<int>(i), at[i]));
    EXPECT_EQ(wheel.next_event(), Wheel::never);
}

TEST(Wheel, AnEntryInThePastIsDueAtTheNextTick) {
    Wheel wheel(500);
    Timed one;
    wheel.add(one, 3);
    int times = 0;
    wheel.advance(501, [&](Wheel::Waiting&) { ++times; });
    EXPECT_EQ(times, 1);
    EXPECT_FALSE(one.is_waiting());
}

TEST(Wheel, TheCallbackMayAddAndRemoveEntries) {
    Wheel wheel;
    Timed first, second, third;
    wheel.add(first, 10);
    wheel.add(second, 10);
    wheel.add(third, 300);
    int calls = 0;
    wheel.advance(10, [&](Wheel::Waiting& one) {
        ++calls;
        wheel.remove(second);
        wheel.add(one, 300);
        wheel.remove(third);
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(wheel.size(), 1U);
    wheel.advance(299, [&](Wheel::Waiting&) { ++calls; });
    EXPECT_EQ(calls, 1);
    wheel.advance(300, [&](Wheel::Waiting&) { ++calls; });
    EXPECT_EQ(calls, 2);
}

TEST(Wheel, AgreesWithAnOrderedMapAfterRandomOperations) {
    for (const auto seed : {1U, 2U, 3U, 4U}) {
        std::mt19937_64 random(seed);
        Wheel wheel(random() % 100'000);
        std::vector<std::unique_ptr<Timed>> timed;
        for (int i = 0; i < 200; ++i) {
            timed.push_back(std::make_unique<Timed>());
            timed.back()->name = i;
        }
        std::multimap<Wheel::Tick, int> truth;
        const auto forget = [&](int name) {
            for (auto at = truth.begin(); at != truth.end(); ++at)
                if (at->second == name) {
                    truth.erase(at);
                    return;
                }
        };
        for (int step = 0; step < 3000; ++step) {
            auto& one = *timed[random() % timed.size()];
            if (random() % 3 == 0) {
                wheel.remove(one);
                forget(one.name);
            } else {
                const auto when = wheel.now() + 1 + random() % (random() % 2 ? 300 : 200'000);
                forget(one.name);
                wheel.add(one, when);
                truth.emplace(when, one.name);
            }
            const auto to = wheel.now() + random() % (random() % 10 ? 40 : 5000);
            wheel.advance(to, [&](Wheel::Waiting& due) {
                ASSERT_FALSE(truth.empty());
                EXPECT_EQ(truth.begin()->first, wheel.now());
                forget(static_cast<Timed&>(due).name);
            });
            EXPECT_TRUE(truth.empty() || truth.begin()->first > wheel.now());
            EXPECT_EQ(truth.size(), wheel.size());
        }
    }
}

} // namespace orrery::health
