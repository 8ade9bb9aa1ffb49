#include "core/text.h"
#include "drivers/ssh/body.h"
#include "drivers/ssh/program_values.h"

#include <gmock/gmock.h>

namespace orrery::drivers::program_values_test {

namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

boost::json::value yaml(const std::string& text) { return parse_yaml(text)->front().value; }

} // namespace

TEST(ProgramValues, AScriptReadsItsValuesFromTheEnvironment) {
    auto out = separate_ssh_values(yaml("{script: \"set-pool web ${with.members} $${HOME}\"}"));
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(std::string_view(out->body.at("script").get_string()), "set-pool web \"$${ORRERY_VALUE_1}\" $${HOME}");
    EXPECT_THAT(out->environment, UnorderedElementsAre(Pair("ORRERY_VALUE_1", "${with.members}")));
}

TEST(ProgramValues, ATemplateReadsItsValuesByName) {
    auto out = separate_ssh_values(yaml("{blocks: [{template: {path: /x, content: \"a ${with.v} $${b} {{ c }}\"}}]}"));
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(std::string_view(out->body.at_pointer("/blocks/0/template/content").get_string()),
              "a {{ orrery_value_1 }} $${b} {{ c }}");
    EXPECT_THAT(out->values, UnorderedElementsAre(Pair("orrery_value_1", "${with.v}")));
    auto refused = separate_ssh_values(yaml("{blocks: [{template: {path: /x, content: \"{{ join(${with.v}, x) }}\"}}]}"));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().fields.front().path, "blocks[0].template.content");
}

TEST(ProgramValues, OtherFieldsKeepTheirReferences) {
    const auto body = yaml("{command: [echo, \"${with.v}\"]}");
    auto out = separate_ssh_values(body);
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(out->body, body);
}

TEST(ProgramValues, AProgramInAnotherLanguageMayHoldNone) {
    auto python = check_ssh_body(yaml("{shell: python3, script: \"print('${with.v}')\"}"));
    ASSERT_FALSE(python.ok());
    EXPECT_THAT(python.error().message, HasSubstr("a program for python3"));
    EXPECT_THAT(python.error().remedy, HasSubstr("env"));
    EXPECT_EQ(python.error().fields.front().path, "script");
    EXPECT_TRUE(check_ssh_body(yaml("{shell: python3, script: \"import os\"}")).ok());
    EXPECT_FALSE(check_ssh_body(yaml("{shell: ksh, script: \"[ ${with.v} -eq 1 ]\"}")).ok()) << "ksh evaluates it";
    EXPECT_TRUE(check_ssh_body(yaml("{shell: /bin/bash, script: \"echo ${with.v}\"}")).ok());
    EXPECT_FALSE(check_ssh_body(yaml("{script: \"echo '${with.v}'\"}")).ok());
}

TEST(ProgramValues, ABoundBodyIsAlwaysValidated) {
    EXPECT_TRUE(check_ssh_body(yaml("{push: {to: \"${with.v}\", content: x}}")).ok());
    EXPECT_FALSE(check_ssh_body(yaml("{push: {to: \"${with.v}\", content: x}}"), BodyStage::bound).ok());
}

} // namespace orrery::drivers::program_values_test
