#include "core/test_fixture.h"
#include "health/probe_spec.h"
#include "health/probes/programs.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

namespace {

json::object spec_of(std::string_view text) { return parse_json(text)->get_object(); }

std::string first_wrong(std::string_view text) {
    const auto errors = validate_probe(spec_of(text), "spec", {"interval"});
    return errors.empty() ? std::string() : errors.front().path + " " + errors.front().message;
}

} // namespace

TEST(ProbeSpec, AcceptsTheFieldsOfEachKind) {
    for (const auto* good : {
             R"({"kind":"tcp","interval":"1s"})",
             R"({"kind":"tcp","port":25,"send":"QUIT\r\n","matches":"^2[0-9]+"})",
             R"({"kind":"tls","host":"www.example","min_certificate_lifetime":"14d","verify":false})",
             R"({"kind":"http","path":"/healthz?x=1","method":"HEAD","headers":{"Host":"a.example"},"expect":"200-299,301"})",
             R"({"kind":"https","host":"www.example","contains":"ok","reuse":false})",
             R"({"kind":"grpc","port":5,"service":"x","secure":true})",
             R"({"kind":"icmp"})",
             R"({"kind":"udp","port":5,"send":"x"})",
             R"({"kind":"dns","name":"www.example","type":"AAAA","rcode":3,"authoritative":true})",
             R"({"kind":"plugin","command":["check_tcp","-H","$HOSTADDRESS$"]})",
             R"({"kind":"exec","command":["mine"]})",
         })
        EXPECT_EQ(first_wrong(good), "") << good;
}

TEST(ProbeSpec, NamesTheInvalidField) {
    const std::pair<const char*, const char*> bad[] = {
        {R"({})", "spec.kind must be one of tcp, tls"},
        {R"({"kind":"gopher"})", "spec.kind"},
        {R"({"kind":"tcp","path":"/"})", "spec.path is not a field of a probe of kind tcp"},
        {R"({"kind":"tcp","port":0})", "spec.port"},
        {R"({"kind":"tcp","port":70000})", "spec.port must be between 1 and 65535"},
        {R"({"kind":"tcp","port":"80"})", "spec.port must be a whole number"},
        {R"({"kind":"tcp","matches":"("})", "spec.matches"},
        {R"({"kind":"tcp","colour":"red"})", "spec.colour"},
        {R"({"kind":"http","path":"x"})", "spec.path must begin with /"},
        {R"({"kind":"http","path":"/\r\nx: y"})", "spec.path must be one line"},
        {R"({"kind":"http","expect":"200-"})", "spec.expect"},
        {R"({"kind":"http","headers":{"X":"a\r\nb"}})", "spec.headers"},
        {R"({"kind":"http","headers":{"X Y":"a"}})", "spec"},
        {R"({"kind":"http","method":"G ET"})", "spec"},
        {R"({"kind":"https","min_certificate_lifetime":"soon"})", "spec.min_certificate_lifetime"},
        {R"({"kind":"dns"})", "spec.name"},
        {R"({"kind":"dns","name":"a..b"})", "spec"},
        {R"({"kind":"udp","port":1})", "spec.send"},
        {R"({"kind":"plugin"})", "spec.command"},
        {R"({"kind":"plugin","command":["/bin/sh","-c","x"]})", "spec.command must begin with the name"},
        {R"({"kind":"plugin","command":["../sh"]})", "spec.command"},
        {R"({"kind":"plugin","command":"check_tcp"})", "spec.command must be a list"},
    };
    for (const auto& [text, expected] : bad) EXPECT_THAT(first_wrong(text), HasSubstr(expected)) << text;
}

TEST(ProbeSpec, PicksAddressAndPort) {
    EXPECT_EQ((*probe_from(spec_of(R"({"kind":"tcp","port":7})"), "192.0.2.1", 9, {}))->program()->port, 7);
    EXPECT_EQ((*probe_from(spec_of(R"({"kind":"tcp"})"), "192.0.2.1", 9, {}))->program()->port, 9);
    EXPECT_FALSE(probe_from(spec_of(R"({"kind":"tcp"})"), "192.0.2.1", 0, {}).ok());
    const auto web = *probe_from(spec_of(R"({"kind":"https","host":"www.example","path":"/x"})"), "2001:db8::1", 0, {});
    EXPECT_EQ(web->program()->port, 443);
    EXPECT_EQ(web->program()->host, "2001:db8::1");
    EXPECT_EQ(web->program()->server_name, "www.example");
    EXPECT_THAT(web->program()->request, HasSubstr("GET /x HTTP/1.1\r\nHost: www.example\r\n"));
    const auto plain = *probe_from(spec_of(R"({"kind":"http"})"), "2001:db8::1", 0, {});
    EXPECT_THAT(plain->program()->request, HasSubstr("Host: [2001:db8::1]"));
}

CO_TEST(ProbeSpec, RunsProgramsOfItsFoldersOnly) {
    testing::TemporaryFolder folder;
    const auto path = folder / "check_it";
    std::ofstream(path) << "#!/bin/sh\necho \"$1 $2\"\n[ \"$1\" = 192.0.2.7:81 ]\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    Programs programs(loop.get_executor());
    const ProbeDeps deps{.tls = nullptr, .programs = &programs, .plugin_folders = {folder.path().string()}};
    const auto spec = spec_of(R"J({"kind":"plugin","command":["check_it","$HOSTADDRESS$:$PORT$","a b;$(c)"]})J");
    const auto probe = probe_from(spec, "192.0.2.7", 81, deps);
    CO_ASSERT_OK(probe);
    const auto seen = co_await (*probe)->run(Context::background().with_deadline(real_clock().steady() + 10s));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    EXPECT_THAT(seen.text, HasSubstr("192.0.2.7:81 a b;$(c)"));
    // One that is named may be installed later: whether it can be run shows when it is.
    const ProbeDeps named{.tls = nullptr, .programs = &programs, .program_paths = {{"check_later", "/no/such/program"}}};
    auto later = probe_from(spec_of(R"({"kind":"plugin","command":["check_later"]})"), "192.0.2.7", 81, named);
    CO_ASSERT_OK(later);
    const auto unable = co_await (*later)->run(Context::background().with_deadline(real_clock().steady() + 10s));
    EXPECT_EQ(unable.outcome, Outcome::local_error);
    EXPECT_EQ(unable.text, "/no/such/program: there is no program /no/such/program; install it, or correct its path");
    EXPECT_EQ(probe_from(spec_of(R"({"kind":"plugin","command":["check_other"]})"), "192.0.2.7", 81, deps).error().code,
              Code::unsupported);
    EXPECT_EQ(probe_from(spec, "192.0.2.7", 81, {}).error().code, Code::unsupported);
}

} // namespace orrery::health
