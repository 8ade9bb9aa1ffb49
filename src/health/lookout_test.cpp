#include "core/testing.h"
#include "health/joined.h"
#include "health/lookout.h"
#include "net/http_server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

namespace {

Wanted tcp_wanted(std::uint16_t port, Duration interval = 10s) {
    return {.look = json::object{{"kind", "tcp"}},
            .address = "127.0.0.1",
            .port = port,
            .interval = interval,
            .timeout = 5s,
            .thresholds = {.rise = 1, .fall = 2}};
}

json::object report_of(std::string_view key, std::string_view standing, std::string_view outcome, int failures = 0) {
    return {{"key", key}, {"standing", standing}, {"class", outcome}, {"ms", 3}, {"n_fail", failures}, {"age_ms", 0}};
}

json::object told_by(std::string_view vantage, json::array reports, bool fit = true) {
    return {{"vantage", vantage}, {"fit", fit}, {"because", fit ? "" : "2 of 2 canaries fail"}, {"reports", std::move(reports)}};
}

/// A lookout that does not look by itself: nobody runs it.
struct Still {
    explicit Still(asio::io_context& loop)
        : lookout(loop.get_executor(), clock, {}, [this](const std::string& key, const Finding& finding) {
              said.push_back(fmt::format("{} {}{}", key, name_of(finding.standing), finding.stale ? " stale" : ""));
          }) {}
    VirtualClock clock;
    std::vector<std::string> said;
    Lookout lookout;
};

/// Runs on this machine what would run on a node.
class LocalNode final : public CommandRunner {
public:
    explicit LocalNode(asio::any_io_executor executor) : programs_(std::move(executor)) {}
    Task<Ended> run(Context ctx, std::string node, std::vector<std::string> argv) override {
        if (node == "gone") co_return Error{Code::unavailable, "there is no way to it"};
        argv.insert(argv.begin(), {"/usr/bin/timeout", "-k", "1", "5"});
        CO_TRY(auto ended, co_await programs_.run(ctx, std::move(argv), {{"PATH", "/usr/bin:/bin"}}));
        co_return Ended{ended.exit_code, std::move(ended.output)};
    }

private:
    Programs programs_;
};

asio::awaitable<Observation> look_from_node(CommandRunner& node, Wanted wanted, std::string name = "n1") {
    auto probe = node_probe(node, name, wanted);
    if (!probe.ok()) co_return Observation{.outcome = Outcome::failed, .text = probe.error().text()};
    co_return co_await (*probe)->look(Context::background().with_deadline(real_clock().steady() + 10s));
}

/// What the server's API does with a lookout.
Task<Unit> serve_checkers(Lookout& lookout, Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
    if (request.target.path == "/v1/health/assignments") {
        const auto epoch = request.target.param("epoch").value_or("");
        const auto after = std::stoull(request.target.param("after").value_or("0"));
        auto answer = lookout.assignments(epoch, after);
        if (answer.at("set").get_array().empty() && answer.at("removed").get_array().empty() && !answer.at("reset").get_bool()) {
            std::ignore = co_await lookout.assignments_changed(ctx.with_deadline(real_clock().steady() + 1s), after);
            answer = lookout.assignments(epoch, after);
        }
        co_return co_await out.send(ctx, net::Response{200, {}, to_json_text(answer)});
    }
    CO_TRY(auto text, co_await net::read_all(ctx, body, 1 << 20));
    CO_TRY(auto told, parse_json(text));
    const auto taken = lookout.take(told);
    co_return co_await out.send(ctx, net::Response{taken.ok() ? 200 : 400, {}, taken.ok() ? "{}" : taken.error().text()});
}

} // namespace

TEST(Wanted, GoesToAnotherProcessAndBack) {
    auto wanted = tcp_wanted(80, 1500ms);
    wanted.look["contains"] = "hello";
    const auto again = Wanted::from_json(wanted.to_json());
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_TRUE(*again == wanted);
    for (const auto& [field, value] : {std::pair<const char*, json::value>{"interval", "1ms"},
                                       {"interval", 5},
                                       {"timeout", "2d"},
                                       {"address", ""},
                                       {"look", "tcp"},
                                       {"look", json::object{{"kind", "tcp"}, {"path", "/"}}}}) {
        auto broken = wanted.to_json();
        broken[field] = value;
        const auto read = Wanted::from_json(broken);
        ASSERT_FALSE(read.ok()) << field;
        EXPECT_THAT(read.error().message, HasSubstr(field));
    }
}

CO_TEST(Lookout, BelievesMostOfItsVantages) {
    Still still(loop);
    CO_ASSERT_OK(still.lookout.set("a", tcp_wanted(80), {}, Standing::up));
    EXPECT_TRUE(still.lookout.finding("a")->stale);
    for (const auto* name : {"one", "two", "three"}) CO_ASSERT_OK(still.lookout.take(told_by(name, {report_of("a", "up", "ok")})));
    EXPECT_EQ(still.lookout.finding("a")->standing, Standing::up);
    EXPECT_FALSE(still.lookout.finding("a")->stale);
    CO_ASSERT_OK(still.lookout.take(told_by("one", {report_of("a", "down", "refused", 2)})));
    EXPECT_EQ(still.lookout.finding("a")->standing, Standing::up);
    EXPECT_TRUE(still.lookout.finding("a")->decision.withheld);
    EXPECT_EQ(still.lookout.finding("a")->decision.words, "1 of 3 down, need 2");
    CO_ASSERT_OK(still.lookout.take(told_by("two", {report_of("a", "down", "refused", 2)})));
    EXPECT_EQ(still.lookout.finding("a")->standing, Standing::down);
    EXPECT_EQ(still.lookout.finding("a")->rtt.at("three"), 3);
    co_return;
}

CO_TEST(Lookout, LeavesOutWhoIsSilentOrSetAside) {
    Still still(loop);
    CO_ASSERT_OK(still.lookout.set("a", tcp_wanted(80)));
    EXPECT_EQ(still.lookout.finding("a")->standing, Standing::unknown);
    TaskGroup group(loop.get_executor());
    for (const auto* name : {"one", "two", "three"}) CO_ASSERT_OK(still.lookout.take(told_by(name, {report_of("a", "up", "ok")})));
    // Two are cut off and see everything down; they know it, and do not count.
    for (const auto* name : {"one", "two"})
        CO_ASSERT_OK(still.lookout.take(told_by(name, {report_of("a", "down", "timeout_connect", 3)}, false)));
    EXPECT_EQ(still.lookout.finding("a")->standing, Standing::up);
    EXPECT_THAT(to_json_text(still.lookout.finding("a")->decision.evidence), HasSubstr("2 of 2 canaries fail"));
    const auto vantages = to_json_text(still.lookout.vantages());
    EXPECT_THAT(vantages, HasSubstr(R"({"name":"one","kind":"checker","fit":false)"));
    // Then nobody is heard of any more: what was known stays, and is stale.
    still.clock.advance(2min);
    CO_ASSERT_OK(still.lookout.set("a", tcp_wanted(80)));
    EXPECT_EQ(still.lookout.finding("a")->standing, Standing::up);
    EXPECT_TRUE(still.lookout.finding("a")->stale);
    EXPECT_EQ(still.lookout.finding("a")->decision.words, "no vantage has fresh evidence");
    co_return;
}

CO_TEST(Lookout, TellsCheckersWhatChanged) {
    Still still(loop);
    auto& lookout = still.lookout;
    for (int i = 0; i < 2500; ++i) CO_ASSERT_OK(lookout.set(fmt::format("t{}", i), tcp_wanted(80)));
    auto answer = lookout.assignments("", 0);
    EXPECT_TRUE(answer.at("reset").get_bool());
    const std::string epoch{std::string_view(answer.at("epoch").get_string())};
    std::size_t count = answer.at("set").get_array().size();
    while (answer.at("more").get_bool()) {
        answer = lookout.assignments(epoch, answer.at("revision").to_number<std::uint64_t>());
        EXPECT_FALSE(answer.at("reset").get_bool());
        count += answer.at("set").get_array().size();
    }
    EXPECT_EQ(count, 2500U);
    const auto seen = answer.at("revision").to_number<std::uint64_t>();
    EXPECT_EQ(lookout.assignments(epoch, seen).at("set").get_array().size(), 0U);
    lookout.remove("t7");
    CO_ASSERT_OK(lookout.set("t8", tcp_wanted(81)));
    CO_ASSERT_OK(lookout.set("t9", tcp_wanted(80))); // as before
    answer = lookout.assignments(epoch, seen);
    EXPECT_EQ(to_json_text(answer.at("removed")), R"(["t7"])");
    EXPECT_EQ(answer.at("set").get_array().size(), 1U);
    EXPECT_TRUE(lookout.assignments("another", seen).at("reset").get_bool());
    // What was found by the earlier way to look is not taken for the later one.
    auto late = report_of("t8", "down", "refused", 2);
    late["revision"] = 9;
    CO_ASSERT_OK(lookout.take(told_by("one", {late})));
    EXPECT_EQ(lookout.finding("t8")->standing, Standing::unknown);
    co_return;
}

CO_TEST(Lookout, RefusesWhatIsNoReport) {
    Still still(loop);
    CO_ASSERT_OK(still.lookout.set("a", tcp_wanted(80)));
    for (const auto* bad : {"[]", "{}", R"({"vantage":"","fit":true,"reports":[]})", R"({"vantage":"x","reports":[]})",
                            R"({"vantage":"x","fit":true})", R"({"vantage":"x","fit":true,"reports":[1]})",
                            R"({"vantage":"x","fit":true,"reports":[{"standing":"down"}]})",
                            R"({"vantage":"server","fit":true,"reports":[]})", R"({"vantage":"a\nb","fit":true,"reports":[]})"})
        EXPECT_FALSE(still.lookout.take(*parse_json(bad)).ok()) << bad;
    EXPECT_EQ(still.lookout.vantages().size(), 1U);
    for (int i = 0; i < 64; ++i)
        CO_ASSERT_OK(still.lookout.take(told_by(fmt::format("v{}", i), {report_of("gone", "down", "ok")})));
    EXPECT_EQ(still.lookout.take(told_by("v64", {})).error().code, Code::throttled);
    EXPECT_FALSE(still.lookout.set("b\nc", tcp_wanted(80)).ok());
    EXPECT_FALSE(still.lookout.set("b", tcp_wanted(0)).ok());
    co_return;
}

CO_TEST(NodeProbe, LooksWithWhatEveryNodeHas) {
    LocalNode node(loop.get_executor());
    asio::ip::tcp::acceptor open(loop, {asio::ip::make_address("127.0.0.1"), 0});
    asio::ip::tcp::acceptor closed(loop, {asio::ip::make_address("127.0.0.1"), 0});
    const auto closed_port = closed.local_endpoint().port();
    closed.close();
    auto seen = co_await look_from_node(node, tcp_wanted(open.local_endpoint().port()));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    seen = co_await look_from_node(node, tcp_wanted(closed_port));
    EXPECT_EQ(seen.outcome, Outcome::refused) << seen.text;
    seen = co_await look_from_node(node, tcp_wanted(closed_port), "gone");
    EXPECT_EQ(seen.outcome, Outcome::local_error) << seen.text;

    net::HttpServer server(loop.get_executor(), {},
                           [](Context ctx, net::Request& request, net::BodyReader&, net::ResponseWriter& out) -> Task<Unit> {
                               const bool good = request.target.path == "/ok" && request.headers.get("host") == "www.example:1234";
                               co_return co_await out.send(ctx, net::Response{good ? 200 : 503, {}, "x"});
                           });
    CO_ASSERT_OK(server.start());
    auto web = tcp_wanted(server.port());
    web.look = {{"kind", "http"}, {"path", "/ok"}, {"headers", json::object{{"Host", "www.example:1234"}}}};
    seen = co_await look_from_node(node, web);
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    web.look["path"] = "/other";
    seen = co_await look_from_node(node, web);
    EXPECT_EQ(seen.outcome, Outcome::bad_status) << seen.text;
    web.look["expect"] = "503";
    seen = co_await look_from_node(node, web);
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    web.port = closed_port;
    seen = co_await look_from_node(node, web);
    EXPECT_EQ(seen.outcome, Outcome::refused) << seen.text;
    for (auto look : {json::object{{"kind", "udp"}, {"send", "x"}}, json::object{{"kind", "tcp"}, {"contains", "x"}},
                      json::object{{"kind", "http"}, {"headers", json::object{{"@/etc/passwd", "x"}}}}}) {
        auto other = tcp_wanted(80);
        other.look = look;
        EXPECT_EQ(node_probe(node, "n1", other).error().code, Code::unsupported);
    }
    co_await server.stop(0s);
}

CO_TEST(JoinedChecker, LooksForAServerAndIsBelieved) {
    asio::ip::tcp::acceptor target(loop, {asio::ip::make_address("127.0.0.1"), 0});
    asio::ip::tcp::acceptor gateway(loop, {asio::ip::make_address("127.0.0.1"), 0});
    Notifier changed(loop.get_executor());
    Lookout lookout(loop.get_executor(), real_clock(), {},
                    [&changed](const std::string&, const Finding&) { changed.notify_all(); });
    net::HttpServer server(loop.get_executor(), {},
                           [&lookout](Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
                               return serve_checkers(lookout, ctx, request, body, out);
                           });
    CO_ASSERT_OK(server.start());
    const auto until = Context::background().with_deadline(real_clock().steady() + 60s);
    const auto standing_of = [&](const std::string& key) { return lookout.finding(key)->standing; };
    CO_ASSERT_OK(lookout.set("a", tcp_wanted(target.local_endpoint().port(), 100ms)));

    TaskGroup group(loop.get_executor());
    JoinedChecker checker(loop.get_executor(), real_clock(),
                          {.server = *net::parse_url(fmt::format("http://127.0.0.1:{}/", server.port())),
                           .token = "secret",
                           .name = "elsewhere",
                           .tools = {},
                           .rule = {},
                           .canaries = {tcp_wanted(gateway.local_endpoint().port(), 100ms)},
                           .tls = nullptr,
                           .refresh = 200ms,
                           .patience = 2s,
                           .longest_pause = 200ms});
    const auto run = [](JoinedChecker& one, Result<Unit>& into) -> asio::awaitable<void> {
        into = co_await one.run(Context::make("test"));
    };
    Result<Unit> ended;
    group.spawn(run(checker, ended));
    while (standing_of("a") != Standing::up) CO_ASSERT_OK(co_await changed.wait(until));
    // Another target while it runs; then the first one goes.
    asio::ip::tcp::acceptor second(loop, {asio::ip::make_address("127.0.0.1"), 0});
    CO_ASSERT_OK(lookout.set("b", tcp_wanted(second.local_endpoint().port(), 100ms)));
    while (standing_of("b") != Standing::up) CO_ASSERT_OK(co_await changed.wait(until));
    target.close();
    while (standing_of("a") != Standing::down) CO_ASSERT_OK(co_await changed.wait(until));
    EXPECT_EQ(standing_of("b"), Standing::up);
    EXPECT_THAT(to_json_text(lookout.finding("a")->decision.evidence), HasSubstr(R"("vantage":"elsewhere","class":"refused")"));
    // Its way out fails, and with it all it sees: it says so, and nothing falls.
    gateway.close();
    while (checker.counts().fit) CO_ASSERT_OK(co_await real_clock().sleep(20ms));
    second.close();
    const auto told = checker.counts().told;
    while (checker.counts().told < told + 6) CO_ASSERT_OK(co_await real_clock().sleep(20ms));
    EXPECT_EQ(standing_of("b"), Standing::up);
    EXPECT_TRUE(lookout.finding("b")->stale);
    lookout.remove("a");
    while (checker.counts().targets != 1) CO_ASSERT_OK(co_await real_clock().sleep(20ms));
    co_await group.stop();
    co_await server.stop(0s);
}

CO_TEST(Lookout, OtherServersTellWhatTheyDoNotFindWell) {
    Still still(loop);
    auto& lookout = still.lookout;
    std::map<std::string, std::uint64_t> how;
    lookout.tell_others([&](const std::string& key, const Word* word) { how[key] = word == nullptr ? 0 : word->how; }, {});
    CO_ASSERT_OK(lookout.set("a", tcp_wanted(80), {}, Standing::up));
    const auto says = [&](Standing standing) {
        Word word{.report = {.standing = standing, .last = Outcome::refused}, .how = how.at("a")};
        return word;
    };
    for (const auto* name : {"s2", "s3"}) lookout.set_peer(name, {.ready = true});
    EXPECT_TRUE(lookout.finding("a")->stale) << "nobody has had the time to look at it";
    still.clock.advance(26s);
    lookout.set_peer("s2", {.ready = false});
    lookout.set_peer("s2", {.ready = true});
    EXPECT_FALSE(lookout.finding("a")->stale) << "two do not mention it: they find it well";
    EXPECT_EQ(lookout.finding("a")->decision.counted, 2);
    lookout.set_peer_word("s2", "a", says(Standing::down));
    EXPECT_EQ(lookout.finding("a")->standing, Standing::up);
    EXPECT_TRUE(lookout.finding("a")->decision.withheld);
    lookout.set_peer_word("s3", "a", says(Standing::down));
    EXPECT_EQ(lookout.finding("a")->standing, Standing::down);
    // One that is set aside, and a word about another way to look, count for nothing.
    lookout.set_peer_word("s3", "a", std::nullopt);
    EXPECT_EQ(lookout.finding("a")->standing, Standing::up);
    lookout.set_peer("s2", {.fit = false, .because = "2 of 2 canaries fail", .reason = "canaries", .ready = true});
    EXPECT_FALSE(lookout.finding("a")->decision.withheld);
    EXPECT_EQ(lookout.finding("a")->decision.counted, 1);
    CO_ASSERT_OK(lookout.set("a", tcp_wanted(81)));
    lookout.set_peer("s2", {.ready = true});
    EXPECT_EQ(lookout.finding("a")->decision.counted, 0);
    still.clock.advance(26s);
    lookout.set_peer("s3", {.ready = true, .targets = 1});
    lookout.hear_peers(false);
    EXPECT_TRUE(lookout.finding("a")->stale) << "those that are not heard are not counted on";
    EXPECT_EQ(lookout.finding("a")->standing, Standing::up);
    lookout.hear_peers(true);
    EXPECT_EQ(lookout.finding("a")->decision.counted, 2);
    lookout.remove_peer("s3");
    EXPECT_EQ(lookout.finding("a")->decision.counted, 1);
    lookout.remove("a");
    EXPECT_EQ(how.at("a"), 0U);
    co_return;
}

CO_TEST(Lookout, WhoWaitsForAssignmentsIsLetGoWhenTheServerStops) {
    Still still(loop);
    TaskGroup group(loop.get_executor());
    bool let_go = false;
    const auto wait = [](Still& of, bool& done) -> asio::awaitable<void> {
        done = (co_await of.lookout.assignments_changed(Context::background(), 0)).ok();
    };
    group.spawn(wait(still, let_go));
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    EXPECT_FALSE(let_go);
    still.lookout.close();
    co_await group.join();
    EXPECT_TRUE(let_go);
    still.lookout.rest("this server looks at nothing");
    EXPECT_FALSE(still.lookout.take(told_by("ams", {})).ok());
}

} // namespace orrery::health
