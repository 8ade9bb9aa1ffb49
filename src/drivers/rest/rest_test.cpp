#include "drivers/rest/rest.h"

#include <gtest/gtest.h>

namespace orrery::drivers::rest_test {

TEST(Rest, TheBaseOfAnApiIsCheckedAndNormalised) {
    EXPECT_EQ(api_base("url", "https://dns.example.org:8081/api/", false)->text(), "https://dns.example.org:8081/api");
    EXPECT_EQ(api_base("url", "http://127.0.0.1:8081", false)->target, "");
    for (const auto* bad : {"", "dns.example.org", "http://dns.example.org", "ftp://127.0.0.1", "http://127.0.0.1/?x=1"}) {
        const auto base = api_base("publishers.url", bad, false);
        ASSERT_FALSE(base.ok()) << bad;
        EXPECT_EQ(base.error().code, Code::invalid);
        EXPECT_EQ(base.error().fields.at(0).path, "publishers.url");
    }
    EXPECT_TRUE(api_base("url", "http://dns.example.org", true).ok());
}

TEST(Rest, RefusalsAreClassifiedByTheRequiredReaction) {
    EXPECT_EQ(refusal("PowerDNS", 422, "bad\r\nrecord\n").text(), "invalid: PowerDNS answers 422: bad  record");
    EXPECT_EQ(refusal("x", 401, "").code, Code::unauthenticated);
    EXPECT_EQ(refusal("x", 429, "").code, Code::throttled);
    for (const int status : {500, 502, 503, 302, 200, 418}) EXPECT_EQ(refusal("x", status, "").code, Code::unavailable) << status;
    EXPECT_LT(refusal("x", 500, std::string(100000, 'a')).message.size(), 400U);
}

TEST(Rest, BodiesThatAreNotJsonAreUnavailableAndOtherTypesReadAsEmptyObjects) {
    const auto value = *read_answer("x", R"({"a": {"t": "text"}, "l": [1]})");
    EXPECT_EQ(text_at(object_at(as_object(value), "a"), "t"), "text");
    for (const auto* other : {"[1]", "null", "5", "\"text\"", "true"})
        EXPECT_TRUE(as_object(*read_answer("x", other)).empty()) << other;
    EXPECT_EQ(read_answer("x", "<html>").error().code, Code::unavailable);
    EXPECT_EQ(read_answer("x", std::string(1000, '[')).error().code, Code::unavailable);
}

} // namespace orrery::drivers::rest_test
