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

TEST(Rest, RefusalsAreClassedByWhatToDoNext) {
    EXPECT_EQ(refusal("PowerDNS", 422, "bad\r\nrecord\n").text(), "invalid: PowerDNS answers 422: bad  record");
    EXPECT_EQ(refusal("x", 401, "").code, Code::unauthenticated);
    EXPECT_EQ(refusal("x", 429, "").code, Code::throttled);
    for (const int status : {500, 502, 503, 302, 200, 418}) EXPECT_EQ(refusal("x", status, "").code, Code::unavailable) << status;
    EXPECT_LT(refusal("x", 500, std::string(100000, 'a')).message.size(), 400U);
}

TEST(Rest, FieldsOfAnythingReadAsIfTheyWereNotThere) {
    const auto value = *read_answer("x", R"({"a": {"t": "text", "n": 5, "l": [1], "f": true, "big": 18446744073709551615}})");
    const auto* a = at(&value, "a");
    EXPECT_EQ(text_at(a, "t"), "text");
    EXPECT_EQ(number_at(a, "n", 0), 5);
    EXPECT_EQ(list_at(a, "l").size(), 1U);
    EXPECT_TRUE(flag_at(a, "f", false));
    for (const auto* key : {"t", "n", "l", "f", "big", "none"}) EXPECT_EQ(at(at(a, key), "x"), nullptr);
    EXPECT_EQ(text_at(a, "n"), "");
    EXPECT_EQ(number_at(a, "t", 7), 7);
    EXPECT_EQ(number_at(a, "big", 7), 7);
    EXPECT_TRUE(list_at(nullptr, "l").empty());
    EXPECT_EQ(read_answer("x", "<html>").error().code, Code::unavailable);
    EXPECT_EQ(read_answer("x", std::string(1000, '[')).error().code, Code::unavailable);
}

} // namespace orrery::drivers::rest_test
