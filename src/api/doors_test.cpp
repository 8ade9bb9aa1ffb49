#include "api/problem.h"
#include "api/stack_for_tests.h"

/// Knocks at every door: each route of the table, as anonymous and in every role, with good, empty and broken bodies.
namespace orrery::api::testing {

namespace {

std::string fill_pattern(std::string pattern, std::string_view name) {
    for (auto open = pattern.find('{'); open != std::string::npos; open = pattern.find('{', open))
        pattern.replace(open, pattern.find('}') - open + 1, name);
    return pattern;
}

/// A body that the route's kind would take.
std::string good_body(const Route& route) {
    if (route.pattern.starts_with("/v0.1/")) return R"({"name":"door","type":"TCP","fqdn":"door.test.org.","pools":["door"]})";
    if (route.kind != nullptr) {
        if (route.kind->name() == "Node") return R"({"name":"door","spec":{"address":"10.0.0.9"}})";
        if (route.kind->name() == "Secret") return R"({"name":"door","spec":{"values":{"a":"b"}}})";
        if (route.kind->name() == "User") return R"({"name":"door","spec":{"role":"viewer","password":"a long enough password"}})";
        if (route.kind->name() == "Job" &&
            (route.pattern == "/v1/jobs" || route.pattern == "/v1/jobs/{name}" || route.pattern == "/v1/job-plans"))
            return R"({"name":"door","spec":{"tasks":[{"name":"a"}]}})";
        if (route.kind->name() == "Job") return R"({"because":"of the door"})";
        if (route.kind->name() == "RollingRule") return R"({"name":"door","spec":{"limit":1}})";
        if (route.kind->name() == "Monitor") return R"({"name":"door","spec":{"kind":"tcp"}})";
        if (route.kind->name() == "Pool") return R"({"name":"door","spec":{"min_healthy":1}})";
        if (route.kind->name() == "Member" && route.pattern != "/v1/members/{name}/load")
            return R"({"name":"door","spec":{"pool":"door","addresses":["192.0.2.1"]}})";
        if (route.kind->name() == "Member") return R"({"load":5})";
        if (route.kind->name() == "LoadBalancer")
            return R"({"name":"door","spec":{"fqdn":"door.test.org","pools":[{"pool":"door"}]}})";
        if (route.kind->name() == "Zone") return R"({"name":"door","spec":{"origin":"test.org","nameservers":["ns.test.org"]}})";
        if (route.kind->name() == "Publisher")
            return R"({"name":"door","spec":{"driver":"externaldns","url":"http://127.0.0.1:1","zones":["test.org"]}})";
        if (route.kind->name() == "Cluster") return R"({"name":"door","spec":{"site":"ams","domains":["test.org"]}})";
        if (route.kind->name() == "Token") return R"({"name":"door","spec":{"role":"viewer"}})";
    }
    if (route.pattern == "/v1/login") return R"({"user":"nobody-here","password":"wrong"})";
    if (route.pattern == "/v1/store/migrate") return R"({"to":"etcd://127.0.0.1:1"})";
    return R"({"password":"a long enough password"})";
}

} // namespace

CO_STACK_TEST(Doors, OpenForWhomTheyShouldAndForNobodyElse) {
    struct Visitor {
        Role role;
        std::string token;
    };
    std::vector<Visitor> visitors = {{Role::nobody, ""},
                                     {Role::viewer, co_await stack.token_for("vera", "viewer")},
                                     {Role::operator_, co_await stack.token_for("otto", "operator")},
                                     {Role::admin, stack.admin_token}};
    const std::vector<std::string> bad_bodies = {
        "", "{", "null", "[]", "42", R"({"name":5,"spec":[]})", R"({"spec":{"unknown":1}})", "\xff\xfe", std::string(2000, '[')};
    int knocks = 0;
    for (const auto& route : stack.api->router().routes()) {
        if (route->pattern == "/v1/logout") continue; // ends the visitor's session; has a test of its own
        auto bodies = bad_bodies;
        bodies.push_back(good_body(*route));
        for (const auto& visitor : visitors)
            for (const auto& body : bodies)
                for (const auto* name : {"door", "no-such-thing", "%00", "UPPER", "..%2f..%2fetc"}) {
                    const bool named = route->pattern.find('{') != std::string::npos;
                    if (!named && std::string_view(name) != "door") continue;
                    const auto target = fill_pattern(route->pattern, name);
                    auto answer = co_await stack.call(route->method, target, route->method == "GET" ? "" : body, visitor.token);
                    ++knocks;
                    const auto what = fmt::format("{} {} as {} with {}: {} {}", route->method, target, name_of(visitor.role),
                                                  body.substr(0, 60), answer.status, answer.text.substr(0, 300));
                    EXPECT_GT(answer.status, 0) << what;
                    EXPECT_LT(answer.status, 500) << what;
                    const bool well_named = std::string_view(name) == "door" || std::string_view(name) == "no-such-thing";
                    if (visitor.role < route->role && well_named)
                        EXPECT_EQ(answer.status, visitor.role == Role::nobody ? 401 : 403) << what;
                    if (visitor.role == Role::admin && route->role != Role::nobody) EXPECT_NE(answer.status, 401) << what;
                    if (visitor.role == Role::admin && route->pattern.find("password") == std::string::npos)
                        EXPECT_NE(answer.status, 403) << what;
                    if (answer.status >= 400) EXPECT_FALSE(answer.code().empty()) << what;
                }
    }
    EXPECT_GT(knocks, 1000);
    // Whoever shows a wrong token is refused even where no token is asked for.
    auto wrong = co_await stack.call("GET", "/healthz", {}, "orr_wrong");
    EXPECT_EQ(wrong.status, 401);
}

CO_STACK_TEST(Doors, LogoutEndsTheSession) {
    auto bye = co_await stack.call("POST", "/v1/logout", {}, stack.admin_token);
    EXPECT_EQ(bye.status, 204) << bye.text;
    auto after = co_await stack.get("/v1/whoami");
    EXPECT_EQ(after.status, 401);
}

TEST(Problem, EveryCodeHasAStatus) {
    for (int code = 0; code <= static_cast<int>(Code::internal); ++code) {
        const auto status = status_of(Error{static_cast<Code>(code), "x"});
        EXPECT_GE(status, 400);
        EXPECT_LT(status, 600);
    }
}

} // namespace orrery::api::testing
