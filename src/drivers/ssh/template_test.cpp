#include "core/text.h"
#include "drivers/ssh/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::drivers::template_test {

namespace {
using ::testing::HasSubstr;

std::string rendered(std::string_view text, std::string_view values) {
    auto out = render_template(text, parse_json(values)->get_object());
    return out.ok() ? *out : "error: " + out.error().message;
}
} // namespace

TEST(Template, InsertsValues) {
    EXPECT_EQ(rendered("port {{ mysql.port }}\n", R"({"mysql":{"port":3306}})"), "port 3306\n");
    EXPECT_EQ(rendered("{{a}}{{ b }}", R"({"a":"x","b":[1,"2"]})"), "x[1,\"2\"]");
    EXPECT_EQ(rendered("{{ mysql.addresses }}", R"({"mysql.addresses":"10.0.0.1"})"), "10.0.0.1");
    EXPECT_EQ(rendered("{{ join(l, \", \") }}", R"({"l":["a","b",3]})"), "a, b, 3");
    EXPECT_EQ(rendered("no braces } { here", "{}"), "no braces } { here");
    EXPECT_EQ(rendered("{{ x }}", R"({"x":"{{ y }} {% if %}"})"), "{{ y }} {% if %}"); // a value is no template
}

TEST(Template, LoopsAndConditions) {
    EXPECT_EQ(rendered("backend\n{% for m in members %}\n  server {{ m.node }} {{ m.address }}:{{ port }}\n{% endfor %}\nend\n",
                       R"({"port":80,"members":[{"node":"a","address":"10.0.0.1"},{"node":"b","address":"10.0.0.2"}]})"),
              "backend\n  server a 10.0.0.1:80\n  server b 10.0.0.2:80\nend\n");
    const auto* text = "{% if tls %}yes{% else %}no{% endif %}";
    for (const auto* no : {"{}", R"({"tls":false})", R"({"tls":""})", R"({"tls":[]})", R"({"tls":null})", R"({"tls":0})"})
        EXPECT_EQ(rendered(text, no), "no") << no;
    for (const auto* yes : {R"({"tls":true})", R"({"tls":"x"})", R"({"tls":[1]})", R"({"tls":0.5})"})
        EXPECT_EQ(rendered(text, yes), "yes") << yes;
    EXPECT_EQ(rendered("{% if not a %}{% for x in l %}{{ x }}{% endfor %}{% endif %}", R"({"l":["1","2"]})"), "12");
}

TEST(Template, ErrorsNameTheirLine) {
    EXPECT_THAT(rendered("a\n{{ nothing }}", "{}"), HasSubstr("\"nothing\" in line 2"));
    EXPECT_THAT(rendered("a\n\n{{ x", "{}"), HasSubstr("line 3"));
    EXPECT_THAT(rendered("{% for x in l %}", R"({"l":[]})"), HasSubstr("endfor"));
    EXPECT_THAT(rendered("{% endif %}", "{}"), HasSubstr("ends nothing"));
    EXPECT_THAT(rendered("{% include x %}", "{}"), HasSubstr("is not for, endfor, if, else or endif"));
    EXPECT_THAT(rendered("{{ 1 + 1 }}", "{}"), HasSubstr("not the name of a value"));
    EXPECT_THAT(rendered("{% for x in l %}{% endfor %}", R"({"l":"text"})"), HasSubstr("is not a list"));
    std::string deep;
    for (int i = 0; i < 1000; ++i) deep += "{% if a %}";
    EXPECT_THAT(rendered(deep, "{}"), HasSubstr("too deep"));
    EXPECT_FALSE(check_template("{% if a %}").ok());
    EXPECT_TRUE(check_template("{{ a.b }}").ok());
}

TEST(Template, OutputIsLimited) {
    EXPECT_THAT(rendered("{% for a in l %}{% for b in l %}{% for c in l %}{{ t }}{% endfor %}{% endfor %}{% endfor %}",
                         R"({"t":")" + std::string(1000, 'x') +
                             R"(","l":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25]})"),
                HasSubstr("longer than"));
}

} // namespace orrery::drivers::template_test
