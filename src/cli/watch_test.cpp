#include "cli/cli_fixture.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <csignal>
#include <thread>

namespace orrery::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string change(int revision, std::string_view what, std::string_view name, std::string_view address = "192.0.2.1") {
    return fmt::format(
        "id: {0}-s\nevent: {1}\ndata: "
        "{{\"revision\":{0},\"object\":{{\"kind\":\"Node\",\"name\":\"{2}\",\"labels\":{{}},\"spec\":{{\"address\":\"{3}\"}},"
        "\"created_at\":\"2026-11-16T11:00:00.000Z\"}}}}\n\n",
        revision, what, name, address);
}

class Watch : public CliTest {
protected:
    void add_node(std::string_view name) {
        api.put("nodes",
                {{"kind", "Node"}, {"name", name}, {"labels", json::object{}}, {"spec", json::object{{"address", "192.0.2.1"}}}});
    }
};

TEST_F(Watch, PrintsOneLineForEachChangeAfterTheList) {
    add_node("n0");
    api.streams = {"retry: 1000\nid: 11-s\nevent: started\ndata: {\"revision\":11}\n\n" + change(12, "created", "n1") +
                   ": heartbeat\n\n" + change(13, "removed", "n1")};
    EXPECT_EQ(run({"watch", "nodes", "--count", "2"}), 0) << err;
    EXPECT_EQ(out, "12:00:00Z  node/n1 created  ADDRESS=192.0.2.1  LABELS=-\n12:00:00Z  node/n1 removed\n");
    EXPECT_THAT(api.lines(), ElementsAre("GET /v1/nodes?limit=500", "GET /v1/nodes?watch=11"));
}

TEST_F(Watch, ResumesAfterALostConnection) {
    api.streams = {change(12, "created", "n1") + "id: 15-s\n: heartbeat\n\n", change(16, "updated", "n1")};
    EXPECT_EQ(run({"watch", "nodes", "-l", "role=compute", "--count", "2", "-o", "name"}), 0) << err;
    EXPECT_EQ(out, "node/n1 created\nnode/n1 updated\n");
    EXPECT_THAT(api.lines(),
                ElementsAre("GET /v1/nodes?limit=500&labels=role=compute", "GET /v1/nodes?watch=10&labels=role=compute",
                            "GET /v1/nodes?watch=15-s&labels=role=compute"));
    EXPECT_EQ(api.seen().back().headers.get("Last-Event-ID"), "15-s");
}

TEST_F(Watch, ListsAgainAfterCompaction) {
    bool refused = false;
    api.intercept = [&](const net::Request& request, const std::string&) -> std::optional<net::Response> {
        if (!request.target.param("watch") || refused) return {};
        refused = true;
        return FakeApi::problem(410, "compacted", "those changes are no longer kept", "list again");
    };
    add_node("n0");
    api.streams = {"event: error\ndata: {\"code\":\"compacted\",\"detail\":\"too slow\"}\n\n", change(12, "created", "n1")};
    EXPECT_EQ(run({"watch", "nodes", "--count", "1", "-o", "json"}), 0) << err;
    const std::string listed = R"({"event":"listed","object":{"kind":"Node","name":"n0")";
    std::size_t times = 0;
    for (auto at = out.find(listed); at != std::string::npos; at = out.find(listed, at + 1)) ++times;
    EXPECT_EQ(times, 3U) << out;
    EXPECT_THAT(out, HasSubstr("{\"event\":\"created\",\"id\":\"12-s\",\"object\":{\"kind\":\"Node\",\"name\":\"n1\""));
}

TEST_F(Watch, EndsWithTheErrorOfTheServer) {
    api.streams = {"event: error\ndata: {\"code\":\"denied\",\"detail\":\"your role changed\",\"remedy\":\"ask an admin\"}\n\n"};
    EXPECT_EQ(run({"watch", "nodes"}), exit_code::denied);
    EXPECT_EQ(err, "error: your role changed\nremedy: ask an admin\n");
}

TEST_F(Watch, DrawsATableInPlaceOnATerminal) {
    terminal = true;
    width = 80;
    environment.emplace_back("NO_COLOR", "1");
    add_node("n1");
    api.streams = {change(12, "created", "n2", "192.0.2.2") + change(13, "removed", "n1")};
    EXPECT_EQ(run({"watch", "nodes", "--count", "2"}), 0) << err;
    EXPECT_EQ(out, "NAME  ADDRESS    LABELS  AGE\nn1    192.0.2.1  -       60m\n"
                   "\x1b[2A\x1b[JNAME  ADDRESS    LABELS  AGE\nn1    192.0.2.1  -       60m\nn2    192.0.2.2  -       60m\n"
                   "\x1b[3A\x1b[JNAME  ADDRESS    LABELS  AGE\nn2    192.0.2.2  -       60m\n");
}

TEST_F(Watch, FollowsOneByName) {
    add_node("n1");
    api.streams = {change(12, "updated", "n1")};
    EXPECT_EQ(run({"watch", "node/n1", "--count", "1", "-o", "name"}), 0) << err;
    EXPECT_THAT(api.lines(), ElementsAre("GET /v1/nodes?limit=1", "GET /v1/nodes/n1", "GET /v1/nodes/n1?watch=11"));
    EXPECT_EQ(run({"watch", "node", "nope"}), exit_code::not_found);
}

TEST_F(Watch, AnInterruptEndsItCleanly) {
    std::thread user([this] {
        // As soon as the stream is open, and again should it have come too early to be noticed.
        while (api.lines().empty() || api.lines().back().find("watch=") == std::string::npos) std::this_thread::yield();
        ::raise(SIGINT); // NOLINT: what the terminal does
    });
    struct sigaction before{};
    ::sigaction(SIGINT, nullptr, &before);
    EXPECT_EQ(run({"watch", "nodes"}), exit_code::interrupted);
    EXPECT_EQ(err, "");
    user.join();
}

class Events : public CliTest {
protected:
    void add_event(std::string_view name, std::string_view subject, std::string_view what, std::string_view because = "") {
        api.put("events", {{"kind", "Event"},
                           {"name", name},
                           {"spec", json::object{{"subject", subject},
                                                 {"action", what},
                                                 {"actor", "admin"},
                                                 {"context", "c1"},
                                                 {"reason", because},
                                                 {"at", "2026-11-16T11:00:00.000Z"}}}});
    }
};

TEST_F(Events, AreShownOldestFirst) {
    add_event("e1", "Node/n1", "created", "rack 12 arrived");
    add_event("e2", "Node/n2", "updated");
    EXPECT_EQ(run({"events"}), 0) << err;
    EXPECT_EQ(out,
              "2026-11-16T11:00:00Z  Node/n1 created by admin: rack 12 arrived\n2026-11-16T11:00:00Z  Node/n2 updated by admin\n");
    EXPECT_EQ(run({"events", "--subject", "no/n2", "--since", "1h", "--actor", "admin"}), 0) << err;
    EXPECT_EQ(out, "2026-11-16T11:00:00Z  Node/n2 updated by admin\n");
    EXPECT_EQ(api.lines().back(),
              "GET /v1/events?limit=500&order=newest&subject=Node/n2&actor=admin&since=2026-11-16T11:00:00.000Z");
    EXPECT_EQ(run({"events", "--limit", "1"}), 0);
    EXPECT_EQ(out, "2026-11-16T11:00:00Z  Node/n2 updated by admin\n");
    EXPECT_THAT(err, HasSubstr("only the newest 1 are shown"));
    terminal = true;
    environment.emplace_back("NO_COLOR", "1");
    EXPECT_EQ(run({"events"}), 0);
    EXPECT_EQ(out, "TIME     SUBJECT  ACTION   ACTOR  REASON\n60m ago  Node/n1  created  admin  rack 12 arrived\n60m ago  Node/n2 "
                   " updated  admin  -\n");
    EXPECT_EQ(run({"events", "--since", "yesterday"}), exit_code::usage);
    EXPECT_EQ(run({"events", "--subject", "n1"}), exit_code::usage);
}

TEST_F(Events, FollowContinuesAfterTheList) {
    add_event("e1", "Node/n1", "created");
    const auto event = [](int revision, std::string_view subject, std::string_view what = "created") {
        return fmt::format(
            "id: {0}-s\nevent: {2}\ndata: "
            "{{\"object\":{{\"name\":\"f{0}\",\"spec\":{{\"subject\":\"{1}\",\"action\":\"updated\",\"actor\":\"bob\","
            "\"at\":\"2026-11-16T11:59:00.000Z\"}}}}}}\n\n",
            revision, subject, what);
    };
    api.streams = {event(12, "Node/other") + event(13, "Node/n1", "removed") + event(14, "Node/n1")};
    EXPECT_EQ(run({"events", "--follow", "--subject", "node/n1", "--count", "1"}), 0) << err;
    EXPECT_EQ(out, "2026-11-16T11:00:00Z  Node/n1 created by admin\n2026-11-16T11:59:00Z  Node/n1 updated by bob\n");
    EXPECT_EQ(api.lines().back(), "GET /v1/events?watch=11");
}

} // namespace
} // namespace orrery::cli
