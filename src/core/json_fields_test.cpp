#include "core/digest.h"
#include "core/json_fields.h"
#include "core/text.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(JsonFields, AFieldOfTheWrongTypeCountsAsMissing) {
    const auto document = parse_json(R"({"text": 1, "integer": 1.5, "number": "1", "flag": "yes", "object": [], "array": {},
        "texts": ["a", 1, "b"], "map": {"a": "x", "b": 2}, "duration": "never", "time": "yesterday"})");
    ASSERT_TRUE(document.ok());
    const auto& object = document->as_object();
    EXPECT_EQ(text_at(object, "text", "none"), "none");
    EXPECT_EQ(integer_at(object, "integer", 7), 7);
    EXPECT_EQ(number_at(object, "number", 7), 7);
    EXPECT_TRUE(flag_at(object, "flag", true));
    EXPECT_THAT(object_at(object, "object"), IsEmpty());
    EXPECT_THAT(array_at(object, "array"), IsEmpty());
    EXPECT_THAT(texts_at(object, "texts"), ElementsAre("a", "b"));
    EXPECT_THAT(text_map_at(object, "map"), ElementsAre(Pair("a", "x")));
    EXPECT_EQ(duration_at(object, "duration", 3s), 3s);
    EXPECT_FALSE(time_at(object, "time"));
    EXPECT_EQ(text_at(object, "absent"), "");
}

TEST(JsonFields, NumbersThatDoNotFitAreBounded) {
    const json::object object{{"negative", -5}, {"large", std::uint64_t(1) << 63U}, {"half", 2.5}, {"forty", 40}};
    EXPECT_EQ(count_at(object, "negative", 7), 0U);
    EXPECT_EQ(count_at(object, "large", 7, 100), 100U);
    EXPECT_EQ(count_at(object, "half", 7), 2U);
    EXPECT_EQ(count_at(object, "forty", 7, 30), 30U);
    EXPECT_EQ(count_at(object, "absent", 7), 7U);
    EXPECT_EQ(integer_at(object, "large", -1), -1);
    EXPECT_EQ(integer_at(object, "negative"), -5);
}

TEST(Digest, MatchesPublishedVectors) {
    EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256_hex("abc", 16), "ba7816bf8f01cfea");
    EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325U);
    EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8U);
    EXPECT_EQ(mix_bits(0), 0xe220a8397b1dcdafU);
    EXPECT_EQ(to_hex(std::string_view("\x00\xaf", 2)), "00af");
    EXPECT_EQ(to_hex(std::string_view("\xaf", 1), HexCase::upper), "AF");
}

TEST(Digest, TheBoundariesOfFieldsChangeTheDigest) {
    EXPECT_NE(Fnv1a().add("a").end_field().add("bc").value(), Fnv1a().add("ab").end_field().add("c").value());
}

} // namespace orrery
