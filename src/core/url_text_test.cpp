#include "core/url_text.h"

#include <gtest/gtest.h>

namespace orrery {

TEST(UrlText, MasksTheCredentialsOfEveryUrlInAText) {
    EXPECT_EQ(mask_userinfo("etcd://root:hunter2@h:2379"), "etcd://root:***@h:2379");
    EXPECT_EQ(mask_userinfo("https://hunter2@h/x"), "https://***@h/x");
    EXPECT_EQ(mask_userinfo("cannot reach \"http://a:hunter2@h/\" or http://b:hunter2@g?x=1"),
              "cannot reach \"http://a:***@h/\" or http://b:***@g?x=1");
    EXPECT_EQ(mask_userinfo("http://u:hunter2@evil@h/"), "http://u:***@h/");
    EXPECT_EQ(mask_userinfo("etcd://root:hun/ter2@h:2379"), "etcd://root:***@h:2379");
    EXPECT_EQ(mask_userinfo("http://:hunter2@h"), "http://:***@h");
}

TEST(UrlText, LeavesOtherTextUnchanged) {
    for (const auto* text : {"", "no URL", "http://h:80/a@b", "https://[::1]:8421/x@y", "etcd://a:1,b:2/prefix", "://", "a@b"})
        EXPECT_EQ(mask_userinfo(text), text);
    EXPECT_TRUE(has_userinfo("http://u@h"));
    EXPECT_TRUE(has_userinfo("u:p@h"));
    EXPECT_FALSE(has_userinfo("http://h:80/a@b"));
}

TEST(UrlText, OnlyLiteralAddressesAndLocalhostAreLoopback) {
    for (const auto* host : {"127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"})
        EXPECT_TRUE(is_loopback_host(host)) << host;
    for (const auto* host : {"10.0.0.1", "fe80::1", "localhost.example", "ip6-localhost", "", "0.0.0.0", "::", "::ffff:10.0.0.1"})
        EXPECT_FALSE(is_loopback_host(host)) << host;
}

} // namespace orrery
