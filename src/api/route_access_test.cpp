#include "api/problem.h"
#include "api/server_fixture.h"

/// Requests every route of the table, anonymously and in every role, with valid, empty and malformed bodies.
namespace orrery::api::testing {

namespace {

std::string fill_pattern(std::string pattern, std::string_view name) {
    for (auto open = pattern.find('{'); open != std::string::npos; open = pattern.find('{', open))
        pattern.replace(open, pattern.find('}') - open + 1, name);
    return pattern;
}

/// A valid body for the kind of the route.
std::string good_body(const Route& route) {
    if (route.pattern.starts_with("/v0.1/"))
        return R"({"name":"sample","type":"TCP","fqdn":"sample.test.org.","pools":["sample"]})";
    if (route.kind != nullptr) {
        if (route.kind->name() == "Node") return R"({"name":"sample","spec":{"address":"10.0.0.9"}})";
        if (route.kind->name() == "Secret") return R"({"name":"sample","spec":{"values":{"a":"b"}}})";
        if (route.kind->name() == "User")
            return R"({"name":"sample","spec":{"role":"viewer","password":"a long enough password"}})";
        if (route.kind->name() == "Job" &&
            (route.pattern == "/v1/jobs" || route.pattern == "/v1/jobs/{name}" || route.pattern == "/v1/job-plans"))
            return R"({"name":"sample","spec":{"tasks":[{"name":"a"}]}})";
        if (route.kind->name() == "Job") return R"({"reason":"of the test"})";
        if (route.kind->name() == "JobTemplate" && route.pattern.starts_with("/v1/jobtemplates/{name}/"))
            return R"({"parameters":{}})";
        if (route.kind->name() == "JobTemplate") return R"({"name":"sample","spec":{"job":{"tasks":[{"name":"a"}]}}})";
        if (route.kind->name() == "RollingRule") return R"({"name":"sample","spec":{"limit":1}})";
        if (route.kind->name() == "Monitor") return R"({"name":"sample","spec":{"kind":"tcp"}})";
        if (route.kind->name() == "Pool") return R"({"name":"sample","spec":{"min_healthy":1}})";
        if (route.kind->name() == "Member" && route.pattern != "/v1/members/{name}/load")
            return R"({"name":"sample","spec":{"pool":"sample","addresses":["192.0.2.1"]}})";
        if (route.kind->name() == "Member") return R"({"load":5})";
        if (route.kind->name() == "LoadBalancer")
            return R"({"name":"sample","spec":{"fqdn":"sample.test.org","pools":[{"pool":"sample"}]}})";
        if (route.kind->name() == "Zone") return R"({"name":"sample","spec":{"origin":"test.org","nameservers":["ns.test.org"]}})";
        if (route.kind->name() == "Publisher")
            return R"({"name":"sample","spec":{"driver":"externaldns","url":"http://127.0.0.1:1","zones":["test.org"]}})";
        if (route.kind->name() == "Cluster") return R"({"name":"sample","spec":{"site":"ams","domains":["test.org"]}})";
        if (route.pattern == "/v1/fleet/import")
            return R"([{"name":"sample","pm_type":"ipmi","pm_addr":"192.0.2.7","pm_user":"a","pm_password":"b"}])";
        if (route.kind->name() == "Machine") return R"({"name":"sample","spec":{"bmc":{"driver":"ipmi","address":"192.0.2.7"}}})";
        if (route.kind->name() == "Facts")
            return R"({"name":"sample","spec":{"machine":"sample","facts":[["cpu","logical","number","4"]]}})";
        if (route.kind->name() == "Benchmark")
            return R"({"name":"sample","spec":{"machine":"sample","measured_at":"2026-11-16T08:00:00Z","results":[["cpu","logical","bogomips","4"]]}})";
        if (route.kind->name() == "Flavor") return R"({"name":"sample","spec":{"mode":"any"}})";
        if (route.kind->name() == "Image") return R"({"name":"sample","spec":{"glance":"debian"}})";
        if (route.kind->name() == "Role") return R"({"name":"sample","spec":{"flavor":"sample"}})";
        if (route.kind->name() == "Plan") return R"({"name":"sample","spec":{"roles":[{"role":"sample"}]}})";
        if (route.kind->name() == "Token") return R"({"name":"sample","spec":{"role":"viewer"}})";
    }
    if (route.pattern == "/v1/login") return R"({"user":"nobody-here","password":"wrong"})";
    if (route.pattern == "/v1/store/migrate") return R"({"to":"etcd://127.0.0.1:1"})";
    return R"({"password":"a long enough password"})";
}

} // namespace

CO_SERVER_TEST(RouteAccess, EveryRouteIsOpenOnlyToItsRoles) {
    struct Visitor {
        Role role;
        std::string token;
    };
    std::vector<Visitor> visitors = {{Role::nobody, ""},
                                     {Role::viewer, co_await server.token_for("vera", "viewer")},
                                     {Role::operator_, co_await server.token_for("otto", "operator")},
                                     {Role::admin, server.admin_token}};
    const std::vector<std::string> bad_bodies = {
        "", "{", "null", "[]", "42", R"({"name":5,"spec":[]})", R"({"spec":{"unknown":1}})", "\xff\xfe", std::string(2000, '[')};
    int requests = 0;
    for (const auto& route : server.api->router().routes()) {
        if (route->pattern == "/v1/logout") continue; // ends the visitor's session; has a test of its own
        auto bodies = bad_bodies;
        bodies.push_back(good_body(*route));
        for (const auto& visitor : visitors)
            for (const auto& body : bodies)
                for (const auto* name : {"sample", "no-such-thing", "%00", "UPPER", "..%2f..%2fetc"}) {
                    const bool named = route->pattern.find('{') != std::string::npos;
                    if (!named && std::string_view(name) != "sample") continue;
                    const auto target = fill_pattern(route->pattern, name);
                    auto answer = co_await server.call(route->method, target, route->method == "GET" ? "" : body, visitor.token);
                    ++requests;
                    const auto what = fmt::format("{} {} as {} with {}: {} {}", route->method, target, name_of(visitor.role),
                                                  body.substr(0, 60), answer.status, answer.text.substr(0, 300));
                    EXPECT_GT(answer.status, 0) << what;
                    EXPECT_LT(answer.status, 500) << what;
                    const bool well_named = std::string_view(name) == "sample" || std::string_view(name) == "no-such-thing";
                    if (visitor.role < route->role && well_named)
                        EXPECT_EQ(answer.status, visitor.role == Role::nobody ? 401 : 403) << what;
                    if (visitor.role == Role::admin && route->role != Role::nobody) EXPECT_NE(answer.status, 401) << what;
                    if (visitor.role == Role::admin && route->pattern.find("password") == std::string::npos)
                        EXPECT_NE(answer.status, 403) << what;
                    if (answer.status >= 400) EXPECT_FALSE(answer.code().empty()) << what;
                }
    }
    EXPECT_GT(requests, 1000);
    // An invalid token is refused on routes that require none, too.
    auto wrong = co_await server.call("GET", "/healthz", {}, "orr_wrong");
    EXPECT_EQ(wrong.status, 401);
}

CO_SERVER_TEST(RouteAccess, LogoutEndsTheSession) {
    auto bye = co_await server.call("POST", "/v1/logout", {}, server.admin_token);
    EXPECT_EQ(bye.status, 204) << bye.text;
    auto after = co_await server.get("/v1/whoami");
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
