#include "core/test_fixture.h"
#include "drivers/ldap/ldap.h"
#include "drivers/ldap/ldap_text.h"

#include <gmock/gmock.h>

namespace orrery::drivers::ldap_test {

namespace {

LdapOptions sound_options() {
    LdapOptions options;
    options.url = "ldaps://directory.example.org";
    options.user_base = "ou=people,dc=example,dc=org";
    options.group_base = "ou=groups,dc=example,dc=org";
    options.roles = {{"admins", identity::Role::admin}};
    return options;
}

std::string first_wrong_field(LdapOptions options) {
    const auto source = ldap_source(std::move(options));
    return source.ok() ? "none" : source.error().fields.front().path;
}

} // namespace

TEST(LdapText, SyntaxInAValueIsEscaped) {
    EXPECT_EQ(escape_filter("alice"), "alice");
    EXPECT_EQ(escape_filter("a*"), "a\\2a");
    EXPECT_EQ(escape_filter("a)(uid=*"), "a\\29\\28uid=\\2a");
    EXPECT_EQ(escape_filter("back\\slash"), "back\\5cslash");
    EXPECT_EQ(escape_filter(std::string_view("a\0b", 3)), "a\\00b");
    EXPECT_EQ(escape_filter("ä"), "\\c3\\a4");
    EXPECT_EQ(escape_filter("\n\x7f"), "\\0a\\7f");
    // Whatever is given, the outcome has no character that a filter gives a meaning to, other than the backslash of an escape.
    for (int byte = 0; byte < 256; ++byte) {
        const auto escaped = escape_filter(std::string(1, static_cast<char>(byte)));
        EXPECT_EQ(escaped.find_first_of("()*"), std::string::npos) << byte;
        EXPECT_TRUE(escaped.size() == 1 || (escaped.size() == 3 && escaped[0] == '\\')) << byte;
    }
}

TEST(LdapText, ReplacesPlaceholdersOnce) {
    EXPECT_EQ(fill_filter("(uid={user})", "alice", ""), "(uid=alice)");
    EXPECT_EQ(fill_filter("(|(uid={user})(mail={user}))", "a*", ""), "(|(uid=a\\2a)(mail=a\\2a))");
    EXPECT_EQ(fill_filter("(member={dn})", "alice", "uid=alice,dc=example"), "(member=uid=alice,dc=example)");
    EXPECT_EQ(fill_filter("(uid={user})", "{dn}", "uid=x"), "(uid={dn})");
    EXPECT_EQ(fill_filter("(member={dn})", "x", "cn={user}"), "(member=cn={user})");
    EXPECT_EQ(fill_filter("{", "x", "y"), "{");
}

TEST(LdapText, FindsTheFirstValueOfAName) {
    EXPECT_EQ(first_value("cn=ops,ou=groups,dc=example"), "ops");
    EXPECT_EQ(first_value("cn=ops"), "ops");
    EXPECT_EQ(first_value("cn=a\\,b,dc=x"), "a\\,b");
    EXPECT_EQ(first_value("cn=a+uid=b,dc=x"), "a");
    EXPECT_EQ(first_value("cn=tail\\"), "tail\\");
    EXPECT_EQ(first_value("cn="), "");
    EXPECT_EQ(first_value(""), "");
    EXPECT_EQ(first_value("nothing"), "");
}

TEST(LdapSource, RefusesInvalidOptions) {
    EXPECT_EQ(first_wrong_field(sound_options()), "none");
    auto options = sound_options();
    options.url = "http://directory";
    EXPECT_EQ(first_wrong_field(options), "identity.ldap.url");
    options = sound_options();
    options.url = "ldaps://";
    EXPECT_EQ(first_wrong_field(options), "identity.ldap.url");
    options = sound_options();
    options.url = "ldaps://one ldap://two";
    EXPECT_EQ(first_wrong_field(options), "identity.ldap.url");
    options = sound_options();
    options.user_base.clear();
    EXPECT_EQ(first_wrong_field(options), "identity.ldap.user_base");
    options = sound_options();
    options.user_filter = "(uid=alice)";
    EXPECT_EQ(first_wrong_field(options), "identity.ldap.user_filter");
    options = sound_options();
    options.group_filter = "(objectClass=*)";
    EXPECT_EQ(first_wrong_field(options), "identity.ldap.group_filter");
    options = sound_options();
    options.roles.clear();
    EXPECT_EQ(first_wrong_field(options), "identity.ldap.roles");
    options = sound_options();
    options.bind_dn = "cn=search,dc=example,dc=org";
    EXPECT_EQ(first_wrong_field(options), "identity.ldap.bind_dn");
}

TEST(LdapSource, AllowsPlaintextOnLoopbackOnly) {
    auto options = sound_options();
    options.plain_on_loopback = true;
    for (const auto* url : {"ldap://127.0.0.1:389", "ldap://[::1]:389", "ldap://localhost", "ldap://127.1.2.3/"}) {
        options.url = url;
        EXPECT_EQ(first_wrong_field(options), "none") << url;
    }
    for (const auto* url :
         {"ldap://192.0.2.1", "ldap://127.0.0.1.example.org", "ldap://localhost.example.org", "ldap://[2001:db8::1]"}) {
        options.url = url;
        EXPECT_EQ(first_wrong_field(options), "identity.ldap.url") << url;
    }
}

CO_TEST(LdapSource, RefusesAnEmptyPasswordWithoutAQuery) {
    auto options = sound_options();
    options.url = "ldaps://127.0.0.1:1";
    auto source = ldap_source(options);
    CO_ASSERT_OK(source);
    auto refused = co_await (*source)->check(Context::background(), "alice", "");
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::unauthenticated);
    auto nobody = co_await (*source)->check(Context::background(), "", "password");
    CO_ASSERT(!nobody.ok());
    EXPECT_EQ(nobody.error().code, Code::unauthenticated);
}

CO_TEST(LdapSource, ReportsAPortWithoutAListener) {
    auto options = sound_options();
    options.url = "ldap://127.0.0.1:1";
    options.plain_on_loopback = true;
    auto source = ldap_source(options);
    CO_ASSERT_OK(source);
    auto down = co_await (*source)->check(Context::background(), "alice", "password");
    CO_ASSERT(!down.ok());
    EXPECT_EQ(down.error().code, Code::unavailable) << down.error().text();
}

} // namespace orrery::drivers::ldap_test
