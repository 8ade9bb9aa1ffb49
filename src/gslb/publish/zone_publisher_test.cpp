#include "core/test_fixture.h"
#include "gslb/publish/fake_dns_provider.h"
#include "gslb/publish/zone_publisher.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gmock/gmock.h>

#include <random>

namespace orrery::gslb {

using namespace std::chrono_literals;

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto www = "www.gslb.test.";

RecordSets addresses(std::vector<std::string> values, std::uint32_t ttl = 30) {
    auto set = record_set(RecordType::a, ttl, std::move(values));
    EXPECT_TRUE(set.ok());
    return {*set};
}
RecordSets marked_as(std::string_view owner, RecordSets sets) {
    for (auto& set : sets) set.mark = mark_of(owner, set);
    return sets;
}

/// A path to a service in memory, and the hands of its clock.
struct Path {
    explicit Path(asio::any_io_executor executor, ZonePublisher::Options options = {}, bool ask = false)
        : servers(service),
          group(executor),
          publication(clock, service, ask ? &servers : nullptr, with_defaults(std::move(options)),
                      [this](const PublishStatus& status) { statuses.push_back(status); }) {
        group.spawn(publication.run(Context::make("test")));
    }
    static ZonePublisher::Options with_defaults(ZonePublisher::Options options) {
        options.zone = "gslb.test.";
        options.ownership_policy.owner = "site-1";
        return options;
    }
    /// Lets time pass in small steps, with all that can run then.
    asio::awaitable<void> pass(Duration time) {
        const auto end = clock.steady() + time;
        for (;;) {
            for (int i = 0; i < 15; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
            const auto left = end - clock.steady();
            if (left <= Duration{}) co_return;
            clock.advance(std::min<Duration>(left, std::clamp<Duration>(time / 40, 5ms, 250ms)));
        }
    }
    void want(RecordSets sets, const std::string& name = www) {
        publication.desire(name, {.sets = std::move(sets), .reason = "configured so"});
    }
    PublishState state(const std::string& name = www) const {
        const auto* status = publication.status(name);
        return status != nullptr ? status->state : PublishState::error;
    }
    std::string why(const std::string& name = www) const { return publication.status(name)->message; }
    asio::awaitable<void> stop() { co_await group.stop(); }

    VirtualClock clock;
    FakeDnsProvider service;
    FakeNameServers servers;
    std::vector<PublishStatus> statuses;
    TaskGroup group;
    ZonePublisher publication;
};

} // namespace

CO_TEST(ZonePublisher, PublishesDecisionsAndReportsTheDuration) {
    Path path(loop.get_executor());
    path.want(addresses({"192.0.2.2", "192.0.2.1"}));
    EXPECT_EQ(path.state(), PublishState::pending);
    co_await path.pass(100ms);
    EXPECT_THAT(path.service.log, ElementsAre("www.gslb.test. A 192.0.2.1 192.0.2.2 (ttl 30)"));
    EXPECT_EQ(path.state(), PublishState::in_sync);
    EXPECT_EQ(path.publication.status(www)->time_to_publish, std::optional<Duration>(20ms));
    EXPECT_EQ(ownership(path.service.zone[www][0], "site-1"), Ownership::ours);
    co_await path.stop();
}

CO_TEST(ZonePublisher, WritesOnlyDifferences) {
    Path path(loop.get_executor());
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(100ms);
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(5min);
    EXPECT_EQ(path.service.publishes, 1);
    EXPECT_GE(path.service.reads, 5) << "it is still read";
    co_await path.stop();

    // Nor after a restart.
    Path second(loop.get_executor());
    second.service.zone = path.service.zone;
    second.want(addresses({"192.0.2.1"}));
    co_await second.pass(100ms);
    EXPECT_EQ(second.service.publishes, 0);
    EXPECT_EQ(second.state(), PublishState::in_sync);
    co_await second.stop();
}

CO_TEST(ZonePublisher, ManyDecisionsAreOneWriteOfTheNewest) {
    Path path(loop.get_executor());
    for (int i = 1; i <= 50; ++i) path.want(addresses({"192.0.2." + std::to_string(i)}));
    for (int i = 0; i < 20; ++i) path.want(addresses({"192.0.2.1"}), "n" + std::to_string(i) + ".gslb.test.");
    co_await path.pass(100ms);
    EXPECT_EQ(path.service.publishes, 1);
    EXPECT_EQ(path.service.log.size(), 21U);
    EXPECT_EQ(text_of(path.service.zone[www]), "A 192.0.2.50 (ttl 30)");
    co_await path.stop();
}

CO_TEST(ZonePublisher, ADecisionDuringAWriteIsPublishedAfterIt) {
    Path path(loop.get_executor());
    path.want(addresses({"192.0.2.1"}));
    path.service.before_publish = [&] {
        path.service.before_publish = {};
        path.want(addresses({"192.0.2.2"}));
    };
    co_await path.pass(200ms);
    EXPECT_THAT(path.service.log, ElementsAre(HasSubstr("192.0.2.1"), HasSubstr("192.0.2.2")));
    EXPECT_EQ(path.state(), PublishState::in_sync);
    co_await path.stop();
}

CO_TEST(ZonePublisher, NeverRemovesAllRecordsUnlessTheDecisionIsEmpty) {
    Path path(loop.get_executor());
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(100ms);
    path.want({});
    co_await path.pass(100ms);
    EXPECT_EQ(text_of(path.service.zone[www]), "A 192.0.2.1 (ttl 30)");
    EXPECT_EQ(path.state(), PublishState::error);
    EXPECT_TRUE(path.publication.status(www)->withheld);
    EXPECT_THAT(path.why(), HasSubstr("the policy is not nodata"));
    path.publication.desire(www, {.sets = {}, .empty_is_meant = true});
    co_await path.pass(100ms);
    EXPECT_THAT(path.service.zone[www], IsEmpty());
    EXPECT_EQ(path.state(), PublishState::in_sync);
    co_await path.stop();
}

CO_TEST(ZonePublisher, ChangesOfOthersAreReportedAndKept) {
    Path path(loop.get_executor());
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(100ms);
    path.service.zone[www][0].values = {"203.0.113.9"};
    co_await path.pass(61s);
    EXPECT_EQ(path.state(), PublishState::drift);
    EXPECT_THAT(path.why(), HasSubstr("it is A 203.0.113.9 (ttl 30), we wrote A 192.0.2.1 (ttl 30)"));
    // Also where the decision changes.
    path.want(addresses({"192.0.2.2"}));
    co_await path.pass(200ms);
    EXPECT_EQ(path.state(), PublishState::drift);
    EXPECT_EQ(path.service.publishes, 1);
    // By hand, once.
    path.publication.repair(www);
    co_await path.pass(200ms);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    EXPECT_EQ(text_of(path.service.zone[www]), "A 192.0.2.2 (ttl 30)");
    path.service.zone.erase(www);
    co_await path.pass(61s);
    EXPECT_EQ(path.state(), PublishState::drift);
    EXPECT_THAT(path.why(), HasSubstr("removed by others"));
    co_await path.stop();
}

CO_TEST(ZonePublisher, ChangesOfOthersAreRevertedIfThePublisherIsConfiguredSo) {
    for (const bool ask : {false, true}) {
        Path path(loop.get_executor(), {.ownership_policy = {.repair = true}, .servers = {"ns1"}}, ask);
        path.want(addresses({"192.0.2.1"}));
        co_await path.pass(100ms);
        for (int again = 0; again < 3; ++again) {
            path.statuses.clear();
            path.service.zone[www][0].values = {"203.0.113.9"};
            co_await path.pass(61s);
            EXPECT_EQ(path.state(), PublishState::in_sync) << path.why();
            EXPECT_EQ(text_of(path.service.zone[www]), "A 192.0.2.1 (ttl 30)");
            EXPECT_TRUE(std::any_of(path.statuses.begin(), path.statuses.end(),
                                    [](const auto& one) { return one.message.starts_with("repair: "); }));
        }
        co_await path.stop();
    }
}

CO_TEST(ZonePublisher, ExistingRecordsAreAdoptedOnlyIfThePublisherIsConfiguredSo) {
    for (const bool adopt : {false, true}) {
        for (const bool anothers : {false, true}) {
            Path path(loop.get_executor(), {.ownership_policy = {.adopt = adopt}});
            path.service.zone[www] = addresses({"203.0.113.9"});
            if (anothers) path.service.zone[www] = marked_as("site-2", path.service.zone[www]);
            path.want(addresses({"192.0.2.1"}));
            co_await path.pass(100ms);
            EXPECT_EQ(path.state(), adopt ? PublishState::in_sync : PublishState::drift);
            EXPECT_EQ(text_of(path.service.zone[www]), adopt ? "A 192.0.2.1 (ttl 30)" : "A 203.0.113.9 (ttl 30)");
            co_await path.stop();
        }
    }
}

CO_TEST(ZonePublisher, OurEarlierAnswerIsReplacedAfterARestart) {
    Path path(loop.get_executor());
    path.service.zone[www] = marked_as("site-1", addresses({"192.0.2.1"}));
    path.want(addresses({"192.0.2.2"}));
    co_await path.pass(100ms);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    EXPECT_EQ(text_of(path.service.zone[www]), "A 192.0.2.2 (ttl 30)");
    co_await path.stop();
}

CO_TEST(ZonePublisher, DriftIsDetectedAtAServiceWithoutOwnerMarks) {
    Path path(loop.get_executor());
    path.service.drop_marks = true;
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(100ms);
    path.want(addresses({"192.0.2.2"}));
    co_await path.pass(100ms);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    path.service.zone[www][0].values = {"203.0.113.9"};
    co_await path.pass(61s);
    EXPECT_EQ(path.state(), PublishState::drift);
    co_await path.stop();
}

CO_TEST(ZonePublisher, AConcurrentChangeIsDetectedBeforeItIsOverwritten) {
    Path path(loop.get_executor());
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(100ms);
    path.service.before_publish = [&] { path.service.zone[www][0].values = {"203.0.113.9"}; };
    path.want(addresses({"192.0.2.2"}));
    co_await path.pass(3s);
    EXPECT_EQ(text_of(path.service.zone[www]), "A 203.0.113.9 (ttl 30)");
    EXPECT_EQ(path.state(), PublishState::drift);
    co_await path.stop();
}

CO_TEST(ZonePublisher, WhileTheServiceIsUnavailableTheNewestDecisionWaits) {
    Path path(loop.get_executor());
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(100ms);
    path.service.failing = Error{Code::unavailable, "connection refused"};
    path.want(addresses({"192.0.2.2"}));
    co_await path.pass(100ms);
    EXPECT_EQ(path.state(), PublishState::error);
    EXPECT_THAT(path.why(), HasSubstr("connection refused; the last answer stays"));
    const auto reads = path.service.reads;
    co_await path.pass(5min);
    EXPECT_LT(path.service.reads - reads, 20) << "it is asked ever more seldom";
    EXPECT_GT(path.service.reads - reads, 8);
    path.want(addresses({"192.0.2.3"}));
    co_await path.pass(1s);
    path.service.failing.reset();
    co_await path.pass(31s);
    EXPECT_THAT(path.service.log, ElementsAre(HasSubstr("192.0.2.1"), HasSubstr("192.0.2.3")));
    EXPECT_EQ(path.state(), PublishState::in_sync);
    EXPECT_THAT(path.publication.status(www)->last_error, IsEmpty());
    co_await path.stop();
}

CO_TEST(ZonePublisher, ANameThatIsInSyncStaysInSyncWhileTheServiceCannotBeRead) {
    Path path(loop.get_executor());
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(100ms);
    path.service.failing = Error{Code::unauthenticated, "the key is not taken"};
    co_await path.pass(2min);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    EXPECT_THAT(path.publication.status(www)->last_error, HasSubstr("the key is not taken"));
    co_await path.stop();
}

CO_TEST(ZonePublisher, AWriteWithALostAnswerIsReadBackAndRecognisedAsOurs) {
    Path path(loop.get_executor());
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(100ms);
    path.service.lost_answer = true;
    path.want(addresses({"192.0.2.2"}));
    co_await path.pass(100ms);
    EXPECT_EQ(path.state(), PublishState::error);
    path.service.lost_answer = false;
    co_await path.pass(3s);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    EXPECT_EQ(path.service.log.size(), 2U);
    co_await path.stop();
}

CO_TEST(ZonePublisher, ARefusedNameDoesNotBlockOthers) {
    Path path(loop.get_executor());
    path.service.refused.emplace("bad.gslb.test.", Error{Code::invalid, "a CNAME stands there"});
    path.want(addresses({"192.0.2.1"}), "bad.gslb.test.");
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(100ms);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    EXPECT_EQ(path.state("bad.gslb.test."), PublishState::error);
    EXPECT_THAT(path.why("bad.gslb.test."), HasSubstr("a CNAME stands there"));
    path.service.refused.clear();
    co_await path.pass(5s);
    EXPECT_EQ(path.state("bad.gslb.test."), PublishState::in_sync);
    co_await path.stop();
}

CO_TEST(ZonePublisher, RemovingANameRemovesOnlyOurRecords) {
    Path path(loop.get_executor());
    path.want(addresses({"192.0.2.1"}));
    path.want(addresses({"192.0.2.1"}), "two.gslb.test.");
    co_await path.pass(100ms);
    path.service.zone["two.gslb.test."] = addresses({"203.0.113.9"});
    path.publication.withdraw(www);
    path.publication.withdraw("two.gslb.test.");
    co_await path.pass(100ms);
    EXPECT_THAT(path.service.zone[www], IsEmpty());
    EXPECT_EQ(text_of(path.service.zone["two.gslb.test."]), "A 203.0.113.9 (ttl 30)");
    EXPECT_EQ(path.publication.status(www), nullptr);
    EXPECT_EQ(path.publication.counts().names, 0U);
    EXPECT_EQ(std::count_if(path.statuses.begin(), path.statuses.end(), [](const auto& status) { return status.removed; }), 2);
    co_await path.stop();
}

CO_TEST(ZonePublisher, IsInSyncWhenEveryNameServerAnswersWithTheNewRecords) {
    Path path(loop.get_executor(), {.servers = {"ns1", "ns2"}}, true);
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(1s);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    path.servers.behind["ns2"] = path.service.zone[www];
    path.want(addresses({"192.0.2.2"}));
    co_await path.pass(4s);
    EXPECT_EQ(path.state(), PublishState::pending);
    EXPECT_EQ(path.why(), "ns2 answers A 192.0.2.1 (ttl 30)");
    path.servers.behind.clear();
    co_await path.pass(6s);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    EXPECT_GT(path.publication.status(www)->time_to_publish, std::optional<Duration>(4s));
    // One that falls silent later is no evidence; one that answers something else is.
    path.servers.silent["ns1"] = true;
    co_await path.pass(61s);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    EXPECT_FALSE(path.publication.status(www)->servers[0].answered);
    path.servers.behind["ns2"] = {};
    co_await path.pass(61s);
    EXPECT_EQ(path.state(), PublishState::drift);
    EXPECT_THAT(path.why(), HasSubstr("ns2 answers nothing, although the service has the written records"));
    co_await path.stop();
}

CO_TEST(ZonePublisher, AWriteThatIsNeverServedBecomesAnError) {
    Path path(loop.get_executor(), {.servers = {"ns1"}}, true);
    path.servers.silent["ns1"] = true;
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(60s);
    EXPECT_EQ(path.state(), PublishState::pending);
    co_await path.pass(70s);
    EXPECT_EQ(path.state(), PublishState::error);
    EXPECT_THAT(path.why(), HasSubstr("ns1 does not answer"));
    EXPECT_LT(path.servers.rounds, 60);
    path.servers.silent.clear();
    co_await path.pass(11s);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    co_await path.stop();
}

CO_TEST(ZonePublisher, AnAsynchronousServiceIsPendingUntilItConfirms) {
    Path path(loop.get_executor());
    path.service.not_propagated = true;
    path.want(addresses({"192.0.2.1"}));
    co_await path.pass(5s);
    EXPECT_EQ(path.state(), PublishState::pending);
    path.service.error = "status ERROR";
    co_await path.pass(2s);
    EXPECT_EQ(path.state(), PublishState::error);
    EXPECT_THAT(path.why(), HasSubstr("status ERROR"));
    path.service.error.clear();
    path.service.not_propagated = false;
    co_await path.pass(6s);
    EXPECT_EQ(path.state(), PublishState::in_sync);
    co_await path.stop();
}

// After any sequence of failures the last decision is published, no name was ever empty, and no foreign record was
// overwritten.
CO_TEST(ZonePublisher, ConvergesAfterAnySequenceOfFailures) {
    for (unsigned seed = 0; seed < 5; ++seed) {
        std::mt19937 random(seed);
        Path path(loop.get_executor());
        std::map<std::string, std::string> last;
        for (int step = 0; step < 60; ++step) {
            const auto name = "n" + std::to_string(random() % 5) + ".gslb.test.";
            switch (random() % 6) {
            case 0: path.service.failing = Error{Code::unavailable, "away"}; break;
            case 1: path.service.failing.reset(); break;
            case 2: path.service.lost_answer = random() % 2 == 0; break;
            default: {
                const auto value = "192.0.2." + std::to_string(random() % 4);
                last[name] = value;
                path.want(addresses({value}), name);
            }
            }
            co_await path.pass(std::chrono::milliseconds(random() % 2000));
        }
        path.service.failing.reset();
        path.service.lost_answer = false;
        co_await path.pass(40s);
        for (const auto& [name, value] : last) {
            EXPECT_EQ(path.state(name), PublishState::in_sync) << seed << " " << name << " " << path.why(name);
            EXPECT_EQ(text_of(path.service.zone[name]), "A " + value + " (ttl 30)") << seed;
        }
        EXPECT_THAT(path.service.log, ::testing::Not(::testing::Contains(HasSubstr("nothing")))) << seed;
        co_await path.stop();
    }
}

} // namespace orrery::gslb
