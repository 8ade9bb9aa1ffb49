#include "core/test_fixture.h"
#include "jobs/engine_fixture.h"
#include "jobs/graph_layout.h"
#include "jobs/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::jobs {
namespace {

using ::testing::EndsWith;
using testing::EngineFixture;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string text_of_output(EngineFixture& world, const std::string& job, std::string_view task) {
    auto run = world.job(job);
    const auto number = *run->plan.find(task);
    auto page = world.wait(world.server->engine->output().read(
        Context::background(), {run->uid, number, static_cast<int>(run->scheduler->record(number).attempt), Phase::run}, 0,
        16 << 20));
    EXPECT_TRUE(page.ok());
    std::string out;
    for (const auto& piece : page->pieces) out += piece.kind == 'n' ? "[" + piece.bytes + "]" : piece.bytes;
    return out;
}

TEST(Output, KeepsItsFirstAndItsLastPartWithinItsLimit) {
    EngineFixture world;
    world.options.output_limit = 100'000;
    world.start();
    world.nodes("n", 1);
    std::string all = "the first line\n";
    for (int i = 0; i < 50'000; ++i) all += fmt::format("line {}\n", i);
    all += "the last line";
    world.fake.script = [&](const Attempt& attempt) {
        FakeExecutor::Script script;
        script.out = attempt.task == "big@n-1" ? all : all.substr(0, 90'000);
        return script;
    };
    world.submit("j", "tasks: [{name: big, on: n, run: {fake: {}}}, {name: small, on: n, run: {fake: {}}}]");
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    const auto kept = text_of_output(world, "j", "big@n-1");
    EXPECT_LT(kept.size(), 101'000u);
    EXPECT_THAT(kept, StartsWith("the first line\n"));
    EXPECT_THAT(kept, EndsWith("line 49999\nthe last line"));
    EXPECT_THAT(kept, HasSubstr("bytes were left out here: the limit is 100000]line ")) << "the last part begins with a whole line";
    EXPECT_EQ(text_of_output(world, "j", "small@n-1"), all.substr(0, 90'000)) << "what fits is whole";
}

/// Does a straight piece of an arrow pass through the box? Curves are within gaps, which no box reaches.
bool crosses(const GraphLayout::Box& box, const GraphLayout::Point& from, const GraphLayout::Point& to) {
    const auto left = std::min(from.x, to.x), right = std::max(from.x, to.x);
    const auto top = std::min(from.y, to.y), bottom = std::max(from.y, to.y);
    return right > box.x && left < box.x + box.width && bottom > box.y && top < box.y + box.height;
}

TEST(Graph, ColumnsFollowAllArrowsAndNoArrowCrossesABox) {
    unsigned seed = 7;
    const auto random = [&](unsigned below) { return (seed = seed * 1664525u + 1013904223u) / 65536u % below; };
    for (int round = 0; round < 50; ++round) {
        const unsigned boxes = 2 + random(30);
        std::vector<BoxSize> sizes;
        for (unsigned i = 0; i < boxes; ++i)
            sizes.push_back({80 + static_cast<int>(random(120)), 30 + static_cast<int>(random(50))});
        std::vector<GraphArrow> arrows;
        for (unsigned i = 0; i < boxes * 2; ++i) {
            const auto a = random(boxes), b = random(boxes);
            if (a != b) arrows.push_back({std::min(a, b), std::max(a, b), random(2) == 0});
        }
        if (round % 5 == 0) arrows.push_back({boxes - 1, 0, true}); // a cycle
        const auto layout = lay_out(sizes, arrows);
        ASSERT_EQ(layout.boxes.size(), boxes);
        for (std::size_t i = 0; i < arrows.size(); ++i) {
            const auto& points = layout.routes[i].points;
            ASSERT_GE(points.size(), 2u);
            ASSERT_EQ(points.size() % 2, 0u);
            if (!layout.routes[i].backwards) EXPECT_LT(layout.boxes[arrows[i].from].x, layout.boxes[arrows[i].to].x);
            for (const auto& box : layout.boxes) {
                for (std::size_t k = 1; k + 1 < points.size(); k += 2) EXPECT_FALSE(crosses(box, points[k], points[k + 1]));
                for (std::size_t k = 0; k + 1 < points.size(); k += 2) // within the gap, whatever its height
                    EXPECT_FALSE(points[k + 1].x > box.x && points[k].x < box.x + box.width);
            }
        }
        for (std::size_t a = 0; a < boxes; ++a)
            for (std::size_t b = a + 1; b < boxes; ++b) {
                const auto &one = layout.boxes[a], &two = layout.boxes[b];
                EXPECT_FALSE(one.x < two.x + two.width && two.x < one.x + one.width && one.y < two.y + two.height &&
                             two.y < one.y + one.height);
                EXPECT_GE(one.x, 0);
                EXPECT_GE(one.y, 0);
            }
    }
}

TEST(Graph, AGraphTooLargeForAPictureIsRefused) {
    std::vector<BoxSize> sizes(6000, {100, 30});
    EXPECT_TRUE(lay_out(sizes, {}).too_large);
    sizes.resize(200);
    std::vector<GraphArrow> arrows; // each to all after it: lanes without end
    for (std::uint32_t i = 0; i < 200; ++i)
        for (std::uint32_t k = i + 1; k < 200; ++k) arrows.push_back({i, k, false});
    EXPECT_TRUE(lay_out(sizes, arrows).too_large);
}

} // namespace
} // namespace orrery::jobs
