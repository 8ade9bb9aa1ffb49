#include "jobs/fake_executor.h"
#include "jobs/secrets.h"

#include <gtest/gtest.h>

namespace orrery::jobs {
namespace {

TEST(Masker, MasksValuesAndTheirBase64AtEveryOffset) {
    const Masker masker(Secrets{{"db.password", "canary-value-77"}});
    EXPECT_EQ(masker.mask("login canary-value-77 ok"), "login (secret) ok");
    // base64 of "canary-value-77", "xcanary-value-77y", "xycanary-value-77"
    for (const auto* text : {"Y2FuYXJ5LXZhbHVlLTc3", "eGNhbmFyeS12YWx1ZS03N3k=", "eHljYW5hcnktdmFsdWUtNzc="})
        EXPECT_NE(masker.mask(text).find("(secret)"), std::string::npos) << text;
    EXPECT_EQ(masker.mask("nothing here"), "nothing here");
}

TEST(Masker, MasksASecretThatArrivesInPieces) {
    const Masker masker(Secrets{{"a.b", "canary-value-77"}, {"a.c", "canary"}});
    const std::string text = "a canary-value-77 b canary c canary-val";
    for (std::size_t size = 1; size < text.size(); ++size) {
        std::string held, out;
        for (std::size_t at = 0; at < text.size(); at += size) out += masker.feed(held, std::string_view(text).substr(at, size));
        out += masker.finish(held);
        EXPECT_EQ(out, "a (secret) b (secret) c (secret)-val") << size;
    }
}

TEST(Masker, MasksEncodedFormsOfAValue) {
    const std::string value = "ca nary/\"q\" & 'x' \xc3\xa9 \\ \xf0\x9f\x90\xa6+end";
    const Masker masker(Secrets{{"a.b", value}});
    for (const std::string form : {
             R"(ca nary/\"q\" & 'x' é \\ 🐦+end)",                                      // JSON
             R"(ca nary/\"q\" & 'x' \u00e9 \\ \ud83d\udc26+end)",                       // in ASCII
             R"(ca nary\/\"q\" & 'x' é \\ 🐦+end)",                                     // with slashes escaped
             "ca%20nary%2F%22q%22%20%26%20%27x%27%20%C3%A9%20%5C%20%F0%9F%90%A6%2Bend", // URL
             "ca%20nary%2f%22q%22%20%26%20%27x%27%20%c3%a9%20%5c%20%f0%9f%90%a6%2bend",
             "ca%20nary/%22q%22%20%26%20%27x%27%20%C3%A9%20%5C%20%F0%9F%90%A6%2Bend", // a path
             "ca+nary%2F%22q%22+%26+%27x%27+%C3%A9+%5C+%F0%9F%90%A6%2Bend",           // a form
             "6361206e6172792f22712220262027782720c3a9205c20f09f90a62b656e64",        // hex
             "6361206E6172792F22712220262027782720C3A9205C20F09F90A62B656E64",
             "ca nary/&quot;q&quot; &amp; 'x' \xc3\xa9 \\ \xf0\x9f\x90\xa6+end", // XML
             "ca nary/\"q\" & '\\''x'\\'' \xc3\xa9 \\ \xf0\x9f\x90\xa6+end",     // in a shell's quotes
         })
        EXPECT_EQ(masker.mask("<" + form + ">"), "<(secret)>") << form;
}

TEST(Masker, MasksEscapedFormsOfASecret) {
    const Masker masker(Secrets{{"a.b", "x\"abcdefghij0123456789\"y"}});
    EXPECT_EQ(masker.mask("{\"body\":\"x\\\\\\\"abcdefghij0123456789\\\\\\\"y\"}"), "{\"body\":\"(secret)\"}")
        << "JSON within JSON";
    EXPECT_EQ(masker.mask("x**abcdefghij0123456789**y"), "x**(secret)**y");
}

TEST(Masker, MasksBase64ThatIsWrappedIntoLines) {
    std::string value;
    for (int i = 0; i < 40; ++i) value += "key" + std::to_string(i * 7919);
    const Masker masker(Secrets{{"a.b", value}});
    // printf %s VALUE | base64
    const std::string text = "a2V5MGtleTc5MTlrZXkxNTgzOGtleTIzNzU3a2V5MzE2NzZrZXkzOTU5NWtleTQ3NTE0a2V5NTU0\n"
                             "MzNrZXk2MzM1MmtleTcxMjcxa2V5NzkxOTBrZXk4NzEwOWtleTk1MDI4a2V5MTAyOTQ3a2V5MTEw\n";
    EXPECT_EQ(masker.mask(text), "(secret)\n(secret)\n");
}

TEST(Masker, MasksATruncatedSecret) {
    const Masker masker(Secrets{{"a.b", "canary-value-that-is-long"}});
    EXPECT_EQ(masker.mask_cut("no such user canary-value-tha... and so on"), "no such user (secret)... and so on");
    EXPECT_EQ(masker.mask_cut("no such user canary-"), "no such user (secret)");
    EXPECT_EQ(masker.mask_cut("the canary-yellow car"), "the canary-yellow car");
    EXPECT_EQ(masker.mask_cut("all of canary-value-that-is-long"), "all of (secret)");
}

TEST(MaskedTail, IsMaskedBeforeItIsTruncated) {
    MaskedTail tail(Secrets{{"a.b", "canary-value-that-is-long"}});
    tail.add("earlier\n" + std::string(280, 'x') + "canary-value-th");
    tail.add("at-is-long and more\n\n");
    EXPECT_EQ(tail.last_line(), std::string(280, 'x') + "(secret) and more");
    MaskedTail cut(Secrets{{"a.b", "canary-value-that-is-long"}});
    for (int i = 0; i < 1000; ++i) cut.add("canary-value-that-is-long");
    EXPECT_EQ(cut.text().find("nary"), std::string::npos);
}

TEST(Secrets, AreInsertedWhenTheTaskStarts) {
    const Secrets secrets{{"db.password", "p"}};
    EXPECT_EQ(with_secrets("a ${secret.db.password} ${secret.other.x} ${service.y} ${secret.", secrets),
              "a p ${secret.other.x} ${service.y} ${secret.");
    EXPECT_EQ(with_secrets("$$ $${secret.db.password} $$${secret.db.password}", secrets), "$ ${secret.db.password} $p")
        << "a doubled dollar sign is text";
    boost::json::value body{{"list", {"${secret.db.password}", 3}}};
    EXPECT_EQ(json_with_secrets(body, secrets), (boost::json::value{{"list", {"p", 3}}}));
}

} // namespace
} // namespace orrery::jobs
