#include "jobs/fake_executor.h"
#include "jobs/secrets.h"

#include <gtest/gtest.h>

namespace orrery::jobs {
namespace {

TEST(Masker, TakesOutValuesAndTheirBase64FromEveryPosition) {
    const Masker masker(Secrets{{"db.password", "canary-value-77"}});
    EXPECT_EQ(masker.mask("login canary-value-77 ok"), "login (secret) ok");
    // base64 of "canary-value-77", "xcanary-value-77y", "xycanary-value-77"
    for (const auto* text : {"Y2FuYXJ5LXZhbHVlLTc3", "eGNhbmFyeS12YWx1ZS03N3k=", "eHljYW5hcnktdmFsdWUtNzc="})
        EXPECT_NE(masker.mask(text).find("(secret)"), std::string::npos) << text;
    EXPECT_EQ(masker.mask("nothing here"), "nothing here");
}

TEST(Masker, FindsASecretThatComesInPieces) {
    const Masker masker(Secrets{{"a.b", "canary-value-77"}, {"a.c", "canary"}});
    const std::string text = "a canary-value-77 b canary c canary-val";
    for (std::size_t size = 1; size < text.size(); ++size) {
        std::string held, out;
        for (std::size_t at = 0; at < text.size(); at += size) out += masker.feed(held, std::string_view(text).substr(at, size));
        out += masker.finish(held);
        EXPECT_EQ(out, "a (secret) b (secret) c (secret)-val") << size;
    }
}

TEST(Secrets, ArePutInAtTheLastMoment) {
    const Secrets secrets{{"db.password", "p"}};
    EXPECT_EQ(with_secrets("a ${secret.db.password} ${secret.other.x} ${service.y} ${secret.", secrets),
              "a p ${secret.other.x} ${service.y} ${secret.");
    boost::json::value body{{"list", {"${secret.db.password}", 3}}};
    EXPECT_EQ(json_with_secrets(body, secrets), (boost::json::value{{"list", {"p", 3}}}));
}

} // namespace
} // namespace orrery::jobs
