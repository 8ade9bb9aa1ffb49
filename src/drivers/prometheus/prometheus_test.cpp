#include "drivers/prometheus/prometheus_messages.h"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::drivers {

TEST(Prometheus, ParsesVectorsAndScalars) {
    const auto answer = read_prometheus_answer(
        R"({"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"instance":"192.0.2.1:9100","job":"node"},"value":[1700000000.1,"1"]},
            {"metric":{"instance":"[2001:db8::1]:9100"},"value":[1700000000.1,"NaN"]},
            {"metric":{"instance":"192.0.2.2"},"value":[1700000000.1,"+Inf"]}]}})");
    ASSERT_TRUE(answer.ok()) << answer.error().text();
    const auto value = [&](std::string_view target) {
        const auto* sample = prometheus_sample(*answer, "instance", target);
        return sample == nullptr ? -1.0 : sample->value;
    };
    EXPECT_EQ(value("192.0.2.1:9100"), 1);
    EXPECT_EQ(value("192.0.2.1:80"), 1); // another port of the same host
    EXPECT_EQ(value("192.0.2.1"), 1);
    EXPECT_EQ(value("192.0.2.2:80"), HUGE_VAL);
    EXPECT_TRUE(std::isnan(value("[2001:db8::1]:80")));
    EXPECT_TRUE(std::isnan(value("2001:db8::1")));
    EXPECT_EQ(value("192.0.2.11:9100"), -1);
    EXPECT_EQ(prometheus_sample(*answer, "host", "192.0.2.1"), nullptr);

    const auto scalar = read_prometheus_answer(R"({"status":"success","data":{"resultType":"scalar","result":[1,"0.25"]}})");
    ASSERT_TRUE(scalar.ok());
    EXPECT_EQ(scalar->scalar, 0.25);
}

TEST(Prometheus, ThePortSelectsAmongSeveralSeries) {
    const auto answer = read_prometheus_answer(
        R"({"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"instance":"192.0.2.1:9100"},"value":[1,"1"]},{"metric":{"instance":"192.0.2.1:80"},"value":[1,"2"]}]}})");
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(prometheus_sample(*answer, "instance", "192.0.2.1:80")->value, 2);
}

TEST(Prometheus, MalformedBodiesAreErrors) {
    const auto bad = read_prometheus_answer(R"({"status":"error","errorType":"bad_data","error":"parse error at char 3"})");
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.error().code, Code::invalid);
    EXPECT_EQ(bad.error().message, "Prometheus: parse error at char 3");
    for (const auto* body : {"", "<html>", "{}", "[]", R"({"status":"success","data":{"resultType":"matrix","result":[]}})",
                             R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1]}]}})",
                             R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}})",
                             R"({"status":"error","errorType":"timeout","error":"too long"})"}) {
        const auto read = read_prometheus_answer(body);
        ASSERT_FALSE(read.ok()) << body;
        EXPECT_EQ(read.error().code, Code::unavailable) << body;
    }
}

} // namespace orrery::drivers
