#include "core/test_fixture.h"
#include "drivers/octavia/octavia.h"
#include "drivers/octavia/octavia_messages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

namespace orrery::drivers::octavia_test {

using namespace std::chrono_literals;
using health::Outcome;
using Operating = health::BalancerState::Operating;
using ::testing::HasSubstr;

namespace {

// As Octavia 11 answers.
constexpr std::string_view recorded_tree =
    R"({"statuses": {"loadbalancer": {"id": "lb1", "name": "web", "operating_status": "DEGRADED", "provisioning_status": "ACTIVE", "listeners": [
 {"id": "l1", "name": "http", "operating_status": "DEGRADED", "provisioning_status": "ACTIVE", "l7policies": [], "pools": [
  {"id": "p1", "name": "", "operating_status": "DEGRADED", "provisioning_status": "ACTIVE", "healthmonitor": {}, "members": [
   {"id": "m1", "name": "", "operating_status": "ONLINE", "provisioning_status": "ACTIVE", "address": "10.0.0.1", "protocol_port": 80},
   {"id": "m2", "name": "", "operating_status": "ERROR", "provisioning_status": "ACTIVE", "address": "10.0.0.2", "protocol_port": 80},
   {"id": "m3", "name": "", "operating_status": "OFFLINE", "provisioning_status": "ACTIVE", "address": "10.0.0.3", "protocol_port": 80}]}]},
 {"id": "l2", "operating_status": "OFFLINE", "provisioning_status": "ACTIVE", "pools": [
  {"id": "p2", "operating_status": "ONLINE", "provisioning_status": "ACTIVE", "members": [{"id": "m4", "operating_status": "ONLINE"}]}]}],
 "pools": [{"id": "p1", "operating_status": "DEGRADED", "members": [{"id": "m1", "operating_status": "ONLINE"}, {"id": "m2", "operating_status": "ERROR"}]}]}}})";

/// Octavia behind a session that has logged in; tests/conformance/octavia asks the real one.
class FakeOctavia final : public OpenstackSession {
public:
    Task<net::ClientResponse> send(Context, Call call) override {
        seen.push_back(call.path);
        if (fail) co_return *fail;
        if (call.path.find("?fields=") != std::string::npos) {
            std::string list;
            for (const auto& [id, status] : balancers)
                if (!hidden.contains(id))
                    list += fmt::format(R"({}{{"id":"{}","operating_status":"{}","provisioning_status":"ACTIVE"}})",
                                        list.empty() ? "" : ",", id, status);
            co_return net::ClientResponse{200, {}, fmt::format(R"({{"loadbalancers":[{}],"loadbalancers_links":[]}})", list)};
        }
        if (call.path.ends_with("/status")) {
            if (no_trees) co_return net::ClientResponse{500, {}, "boom"};
            co_return net::ClientResponse{200, {}, std::string(recorded_tree)};
        }
        const auto id = call.path.substr(call.path.rfind('/') + 1);
        if (!balancers.contains(id))
            co_return net::ClientResponse{
                404,
                {},
                strange_404 ? "<html>not here</html>"
                            : R"({"faultcode":"Client","faultstring":"Load Balancer not found.","debuginfo":null})"};
        co_return net::ClientResponse{
            200,
            {},
            fmt::format(R"({{"loadbalancer":{{"id":"{}","operating_status":"{}","provisioning_status":"ACTIVE"}}}})", id,
                        balancers[id])};
    }
    std::map<std::string, std::string> balancers;
    std::set<std::string> hidden;
    std::vector<std::string> seen;
    std::optional<Result<net::ClientResponse>> fail;
    bool no_trees = false, strange_404 = false;
};

} // namespace

TEST(OctaviaMessages, ATreeHasTheMembersThatCount) {
    const auto state = read_octavia_tree(recorded_tree);
    ASSERT_TRUE(state.ok()) << state.error().text();
    EXPECT_EQ(state->operating, Operating::degraded);
    ASSERT_EQ(state->members.size(), 3U) << "the one that is switched off does not count";
    EXPECT_TRUE(state->members[0].reachable);
    EXPECT_FALSE(state->members[2].reachable) << "behind a listener that is switched off";
    const auto reading = health::judge(*state, 1);
    EXPECT_EQ(reading.outcome, Outcome::warning);
    EXPECT_EQ(health::judge(*state, 2).outcome, Outcome::failed);
}

TEST(OctaviaMessages, TruncatedOrMalformedAnswersAreUnavailable) {
    for (std::size_t length = 0; length < recorded_tree.size(); ++length)
        ASSERT_EQ(read_octavia_tree(recorded_tree.substr(0, length)).error().code, Code::unavailable) << length;
    for (const auto* odd :
         {"null", "[]", "{}", R"({"loadbalancers": {}})", R"({"loadbalancer": []})", R"({"statuses": {"loadbalancer": 5}})"}) {
        EXPECT_FALSE(read_octavia_list(odd).ok()) << odd;
        EXPECT_FALSE(read_octavia_balancer(odd).ok()) << odd;
        EXPECT_FALSE(read_octavia_tree(odd).ok()) << odd;
    }
    EXPECT_TRUE(read_octavia_list(R"({"loadbalancers": [5, null, {"id": 7}, {"id": "x", "operating_status": []}]})").ok());
}

CO_TEST(Octavia, ManyBalancersAreOneListAndOnlyUnhealthyOnesAreReadInDetail) {
    auto session = std::make_shared<FakeOctavia>();
    std::vector<std::string> ids;
    for (int i = 0; i < 50; ++i) {
        ids.push_back(fmt::format("lb{}", i));
        session->balancers[ids.back()] = i == 1   ? "DEGRADED"
                                         : i == 2 ? "ERROR"
                                         : i == 3 ? "NO_MONITOR"
                                         : i == 4 ? "OFFLINE"
                                                  : "ONLINE";
    }
    auto source = octavia_source(session, {});
    auto readings = co_await source->read(Context::background(), ids);
    CO_ASSERT_OK(readings);
    EXPECT_EQ(session->seen.size(), 2U);
    EXPECT_EQ(readings->size(), 50U);
    EXPECT_EQ(readings->at("lb0").outcome, Outcome::ok);
    EXPECT_EQ(readings->at("lb1").outcome, Outcome::warning);
    EXPECT_EQ(readings->at("lb2").outcome, Outcome::failed);
    EXPECT_EQ(readings->at("lb3").outcome, Outcome::local_error);
    EXPECT_EQ(readings->at("lb4").outcome, Outcome::failed);
}

CO_TEST(Octavia, ADeletedBalancerIsDownOnlyIfOctaviaReportsIt) {
    auto session = std::make_shared<FakeOctavia>();
    for (int i = 0; i < 6; ++i) session->balancers[fmt::format("lb{}", i)] = "ONLINE";
    session->hidden = {"lb1"};
    auto source = octavia_source(session, {});
    auto readings = co_await source->read(Context::background(), {"lb0", "lb1", "lb2", "lb3", "gone"});
    CO_ASSERT_OK(readings);
    EXPECT_EQ(readings->at("lb1").outcome, Outcome::ok) << "not in the list, and it exists";
    EXPECT_EQ(readings->at("gone").outcome, Outcome::failed);
    session->strange_404 = true;
    auto lost = co_await source->read(Context::background(), {"lb0", "gone"});
    CO_ASSERT_OK(lost);
    EXPECT_FALSE(lost->contains("gone")) << "no evidence";
}

CO_TEST(Octavia, AnUnavailableApiIsNoEvidence) {
    auto session = std::make_shared<FakeOctavia>();
    session->balancers = {{"a", "DEGRADED"}, {"b", "ONLINE"}};
    auto source = octavia_source(session, {});
    session->no_trees = true;
    auto half = co_await source->read(Context::background(), {"a", "b"});
    CO_ASSERT_OK(half);
    EXPECT_FALSE(half->contains("a"));
    EXPECT_EQ(half->at("b").outcome, Outcome::ok);
    for (const int status : {500, 503, 403, 404, 200}) {
        session->fail = Result<net::ClientResponse>(net::ClientResponse{status, {}, "<html>"});
        auto readings = co_await source->read(Context::background(), {"a", "b", "c", "d"});
        EXPECT_FALSE(readings.ok()) << status;
    }
    session->fail = Result<net::ClientResponse>(Error{Code::timeout, "no answer in time"});
    auto readings = co_await source->read(Context::background(), {"a"});
    CO_ASSERT(!readings.ok());
    EXPECT_EQ(readings.error().code, Code::timeout);
}

} // namespace orrery::drivers::octavia_test
