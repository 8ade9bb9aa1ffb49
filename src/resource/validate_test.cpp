#include "core/text.h"
#include "resource/kinds.h"
#include "resource/object.h"
#include "resource/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::resource {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Kind sample_kind() {
    Kind kind("Sample", "samples", "For tests.");
    kind.spec(text("title", "A title.").required().between(1, 5))
        .spec(text("mode", "A mode.").one_of({"fast", "safe"}).default_value("safe"))
        .spec(integer("count", "How many.").between(1, 10))
        .spec(number("ratio", "A ratio.").between(0, 1))
        .spec(boolean("active", "Whether."))
        .spec(duration("wait", "How long.").between(1, 60))
        .spec(time("since", "Since when."))
        .spec(list("addresses", "Where.", text("address", "One.").format(Format::address)).between(0, 3))
        .spec(map("limits", "By name.", integer("limit", "One.").between(0, 9)))
        .spec(object("deep", "Nested.").with(object("er", "More.").with(integer("level", "L.").default_value(3))))
        .spec(object("strict", "Nested.").with(text("must", "M.").required()).with(text("may", "M.").default_value("x")))
        .spec(text("url", "A url.").format(Format::url))
        .spec(text("data", "Any.").format(Format::data))
        .spec(text("host", "A host.").format(Format::host))
        .spec(text("line", "A line.").format(Format::one_line))
        .spec(text("fixed", "Once.").immutable())
        .spec(text("hidden", "A secret.").secret().between(4, 99))
        .spec(any("free", "Anything."));
    return kind;
}

/// The errors for a spec given as JSON, "path: message" each.
std::vector<std::string> errors_of(std::string_view spec) {
    const auto kind = sample_kind();
    auto document = parse_json(std::string(R"({"kind":"Sample","name":"a","spec":)") + std::string(spec) + "}");
    if (!document.ok()) return {document.error().text()};
    auto read = read_object(kind, "", *document);
    std::vector<std::string> out;
    if (!read.ok())
        for (const auto& field : read.error().fields) out.push_back(field.path + ": " + field.message);
    return out;
}

} // namespace

TEST(Validation, NamesTheFieldAndAValidValue) {
    const struct {
        const char* spec;
        const char* error;
    } table[] = {
        {R"({})", "spec.title: must be given"},
        {R"({"title":null})", "spec.title: must be given"},
        {R"({"title":"abcdef"})", "spec.title: must have between 1 and 5 characters, got 6"},
        {R"({"title":1.1})", "spec.title: must be a text, got the number 1.1: put it in quotes"},
        {R"({"title":true})", "spec.title: must be a text, got true: put it in quotes"},
        {R"({"title":[]})", "spec.title: must be a text, got a list"},
        {"{\"title\":\"a\\u0001\"}", "spec.title: must not have control characters"},
        {R"({"title":"a","mode":"fats"})", "spec.mode: must be one of fast, safe, got the text \"fats\""},
        {R"({"title":"a","count":70000})", "spec.count: must be between 1 and 10, got 70000"},
        {R"({"title":"a","count":"7"})", "spec.count: must be a whole number, got the text \"7\": leave out the quotes"},
        {R"({"title":"a","count":1.5})", "spec.count: must be a whole number, got the number 1.5"},
        {R"({"title":"a","count":18446744073709551615})", "spec.count: is too large a number: 18446744073709551615"},
        {R"({"title":"a","ratio":2})", "spec.ratio: must be between 0 and 1, got 2"},
        {R"({"title":"a","active":"yes"})", "spec.active: must be true or false, got the text \"yes\""},
        {R"({"title":"a","wait":30})",
         "spec.wait: must be a duration with its unit, as in 250ms, 30s, 15m, 2h30m or 7d, got the number 30"},
        {R"({"title":"a","wait":"2h"})", "spec.wait: must be between 1s and 1m, got 2h"},
        {R"({"title":"a","since":"yesterday"})",
         "spec.since: must be a time such as 2026-11-16T04:42:52Z, got the text \"yesterday\""},
        {R"({"title":"a","addresses":["10.0.0.1","::1","nope"]})", "spec.addresses[2]: must be an IP address, got \"nope\""},
        {R"({"title":"a","addresses":["10.0.0.1","10.0.0.1","10.0.0.1","10.0.0.1"]})",
         "spec.addresses: must have between 0 and 3 items, got 4"},
        {R"({"title":"a","limits":{"x":10}})", "spec.limits.x: must be between 0 and 9, got 10"},
        {R"({"title":"a","limits":{"":1}})", "spec.limits.: is not a good key: 1 to 128 characters on one line"},
        {R"({"title":"a","deep":{"er":{"levl":4}}})", "spec.deep.er.levl: unknown field; did you mean \"level\"?"},
        {R"({"title":"a","strict":{}})", "spec.strict.must: must be given"},
        {R"({"title":"a","url":"ftp://x"})", "spec.url: must be an address that begins with http:// or https://, got \"ftp://x\""},
        {R"({"title":"a","host":"10.0.0.300"})", "spec.host: must be an IP address or a host name, got \"10.0.0.300\""},
        {"{\"title\":\"a\",\"data\":\"a\\u0000b\"}", "spec.data: must not have a NUL character"},
        {R"({"title":"a","host":"fe80::1%{{ x }}"})", "spec.host: must be an IP address or a host name, got \"fe80::1%{{ x }}\""},
        {R"({"title":"a","host":"fe80::1%0;id"})", "spec.host: must be an IP address or a host name, got \"fe80::1%0;id\""},
        {R"({"title":"a","host":"::1%"})", "spec.host: must be an IP address or a host name, got \"::1%\""},
        {R"({"title":"a","addresses":["::1%a b"]})", "spec.addresses[0]: must be an IP address, got \"::1%a b\""},
        {R"({"title":"a","host":"-a.b"})", "spec.host: must be an IP address or a host name, got \"-a.b\""},
        {R"({"title":"a","line":"a\nb"})", "spec.line: must be one line, got \"a\nb\""},
        {R"({"title":"a","hidden":"abc"})", "spec.hidden: must have between 4 and 99 characters, got 3"},
        {R"({"title":"a","hidden":123456})", "spec.hidden: must be a text, got a value that is not a text: put it in quotes"},
        {R"({"title":"a","hidden":{"$sealed":"v1:x"}})", "spec.hidden: must be a text, got an object"},
        {R"({"title":"a","tilte":"b"})", "spec.tilte: unknown field; did you mean \"title\"?"},
    };
    for (const auto& row : table) EXPECT_THAT(errors_of(row.spec), ElementsAre(row.error)) << row.spec;
}

TEST(Validation, ReportsAllErrorsAtOnce) {
    EXPECT_THAT(errors_of(R"({"count":0,"mode":"x","nonsense":1})").size(), 4U); // and the title is missing
}

TEST(Validation, AcceptsValidValues) {
    for (const auto* spec :
         {R"({"title":"a"})", R"({"title":"äöüäö"})", R"({"title":"a","count":3.0})", R"({"title":"a","url":"https://x/y?z"})",
          R"({"title":"a","host":"db-1.example.org"})", R"({"title":"a","host":"::1"})", R"({"title":"a","host":"fe80::1%eth0"})",
          R"~({"title":"a","hidden":"(sealed)"})~", R"({"title":"a","free":{"any":[1,null]}})", R"({"title":"a","strict":null})",
          "{\"title\":\"a\",\"data\":\"\\u0001\\u001b[2J\\n\"}"})
        EXPECT_THAT(errors_of(spec), IsEmpty()) << spec;
}

TEST(Validation, FillsDefaultsAlsoInNestedObjects) {
    const auto kind = sample_kind();
    auto read = read_object(kind, "a", *parse_json(R"({"spec":{"since":"2026-01-01T01:00:00+01:00","title":"a"}})"));
    ASSERT_TRUE(read.ok()) << read.error().text();
    // In the order of the declaration; "strict" is not made, because its defaults do not complete it.
    EXPECT_EQ(to_json_text(read->spec),
              R"({"title":"a","mode":"safe","since":"2026-01-01T00:00:00.000Z","deep":{"er":{"level":3}}})");
}

TEST(Validation, NeverRepeatsASecret) {
    for (const auto* spec :
         {R"({"title":"a","hidden":"cnr"})", R"({"title":"a","hidden":["cnr"]})", R"({"title":"a","hidden":"cnr\u0001canary"})"})
        for (const auto& error : errors_of(spec)) EXPECT_THAT(error, ::testing::Not(HasSubstr("cnr"))) << spec;
    for (const auto* spec : {R"("cnr")", R"({"values":"cnr"})", R"({"values":["cnr"]})", R"({"values":{"a":{"b":"cnr"}}})"}) {
        const auto read = read_object(secret_kind(), "a", json::object{{"spec", *parse_json(spec)}});
        ASSERT_FALSE(read.ok()) << spec;
        EXPECT_THAT(read.error().text(), ::testing::Not(HasSubstr("cnr"))) << spec;
        for (const auto& error : read.error().fields) EXPECT_THAT(error.message, ::testing::Not(HasSubstr("cnr"))) << spec;
    }
}

TEST(ReadObject, ChecksTheEnvelope) {
    const auto kind = sample_kind();
    const auto first_error = [&](std::string_view path_name, std::string_view text) {
        auto read = read_object(kind, path_name, *parse_json(text));
        return read.ok()                     ? std::string("ok")
               : read.error().fields.empty() ? read.error().message
                                             : read.error().fields[0].path + ": " + read.error().fields[0].message;
    };
    EXPECT_EQ(first_error("", R"([])"), "a Sample must be an object with kind, name, labels and spec");
    EXPECT_EQ(first_error("", R"({"spec":{"title":"a"}})"), "name: must be given");
    EXPECT_EQ(first_error("", R"({"name":5,"spec":{"title":"a"}})"), "name: must be a text: put it in quotes");
    EXPECT_EQ(first_error("b", R"({"name":"a","spec":{"title":"a"}})"), "name: must be b, as in the address");
    EXPECT_THAT(first_error("", R"({"name":"A b","spec":{"title":"a"}})"), HasSubstr("name: must be 1 to 253 of a-z"));
    EXPECT_EQ(first_error("a", R"({"kind":"Node","spec":{"title":"a"}})"), "kind: must be Sample here");
    EXPECT_EQ(first_error("a", R"({"metadata":{},"spec":{"title":"a"}})"),
              "metadata: unknown field; name and labels belong at the top level");
    EXPECT_EQ(first_error("a", R"({"lables":{},"spec":{"title":"a"}})"), "lables: unknown field; did you mean \"labels\"?");
    EXPECT_EQ(first_error("a", R"({"labels":{"zone":1},"spec":{"title":"a"}})"),
              "labels.zone: must be a text, got the number 1: put it in quotes");
    EXPECT_THAT(first_error("a", R"({"labels":{"zo ne":"1"},"spec":{"title":"a"}})"),
                HasSubstr("labels.zo ne: is not a good label"));
    EXPECT_EQ(first_error("a", R"({"spec":[]})"), "spec: must be an object");
    // What was read can be sent back.
    EXPECT_EQ(
        first_error(
            "a",
            R"({"kind":"Sample","name":"a","labels":{"x":"y"},"spec":{"title":"a"},"status":{"s":1},"revision":7,"created_at":"x","updated_at":"y"})"),
        "ok");
}

TEST(ReadObject, ValidatesNames) {
    for (const auto* good : {"a", "n1", "a.b-c", "0"}) EXPECT_TRUE(is_valid_name(good)) << good;
    for (const auto* bad : {"", "A", "-a", "a-", ".a", "a_b", "a/b", "ä"}) EXPECT_FALSE(is_valid_name(bad)) << bad;
    EXPECT_TRUE(is_valid_name(std::string(253, 'a')));
    EXPECT_FALSE(is_valid_name(std::string(254, 'a')));
}

TEST(ImmutableFields, MayNotChange) {
    const auto kind = sample_kind();
    std::vector<FieldError> errors;
    check_immutable(kind.spec(), {{"fixed", "a"}}, {{"fixed", "b"}}, "spec", errors);
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_EQ(errors[0].message, "cannot change once it is set; it is the text \"a\"");
    errors.clear();
    check_immutable(kind.spec(), {{"fixed", "a"}, {"title", "x"}}, {{"fixed", "a"}, {"title", "y"}}, "spec", errors);
    EXPECT_THAT(errors, IsEmpty());
}

TEST(MergePatch, FollowsTheExamplesOfRfc7396) {
    const char* table[][3] = {{R"({"a":"b"})", R"({"a":"c"})", R"({"a":"c"})"},
                              {R"({"a":"b"})", R"({"b":"c"})", R"({"a":"b","b":"c"})"},
                              {R"({"a":"b"})", R"({"a":null})", R"({})"},
                              {R"({"a":"b","b":"c"})", R"({"a":null})", R"({"b":"c"})"},
                              {R"({"a":["b"]})", R"({"a":"c"})", R"({"a":"c"})"},
                              {R"({"a":"c"})", R"({"a":["b"]})", R"({"a":["b"]})"},
                              {R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})", R"({"a":{"b":"d"}})"},
                              {R"({"a":[{"b":"c"}]})", R"({"a":[1]})", R"({"a":[1]})"},
                              {R"(["a","b"])", R"(["c","d"])", R"(["c","d"])"},
                              {R"({"a":"b"})", R"(["c"])", R"(["c"])"},
                              {R"({"a":"foo"})", R"(null)", R"(null)"},
                              {R"({"a":"foo"})", R"("bar")", R"("bar")"},
                              {R"({"e":null})", R"({"a":1})", R"({"e":null,"a":1})"},
                              {R"([1,2])", R"({"a":"b","c":null})", R"({"a":"b"})"},
                              {R"({})", R"({"a":{"bb":{"ccc":null}}})", R"({"a":{"bb":{}}})"}};
    for (const auto& row : table) {
        auto target = *parse_json(row[0]);
        merge_patch(target, *parse_json(row[1]));
        EXPECT_EQ(target, *parse_json(row[2])) << row[0] << " with " << row[1];
    }
}

TEST(Differences, NameEachPathAndMaskSecrets) {
    const auto kind = sample_kind();
    const auto found = differences(
        kind, {{"labels", {{"a", "1"}}}, {"spec", {{"title", "x"}, {"hidden", "old"}, {"deep", {{"er", {{"level", 3}}}}}}}},
        {{"labels", json::object()},
         {"spec", {{"title", "x"}, {"hidden", "new"}, {"deep", {{"er", {{"level", 4}}}}}, {"addresses", {"::1"}}}}});
    std::vector<std::string> lines;
    for (const auto& one : found) lines.push_back(one.path + " " + to_json_text(one.before) + " " + to_json_text(one.after));
    EXPECT_THAT(lines, ElementsAre("labels.a \"1\" null", R"~(spec.hidden "(secret)" "(secret)")~", "spec.deep.er.level 3 4",
                                   R"(spec.addresses null ["::1"])"));
}

TEST(Registry, FindsKindsByAnyOfTheirNamesAndChecksDeclarations) {
    Registry registry;
    registry.add(node_kind());
    EXPECT_THAT(registry.check().error().text(), HasSubstr("refers to kind \"Secret\", which does not exist"));
    registry.add(secret_kind());
    registry.add(event_kind());
    EXPECT_TRUE(registry.check().ok()) << registry.check().error().text();
    for (const auto* name : {"Node", "node", "nodes", "no", "NODES"}) EXPECT_NE(registry.find(name), nullptr) << name;
    EXPECT_EQ(registry.get("nods").error().remedy, "did you mean nodes?");
    registry.add(node_kind());
    EXPECT_FALSE(registry.check().ok());
}

TEST(Kinds, TheirOwnExamplesAreValid) {
    for (const auto& kind : {node_kind(), secret_kind()}) {
        const auto documents = parse_yaml(kind.example());
        ASSERT_TRUE(documents.ok()) << documents.error().text();
        ASSERT_EQ(documents->size(), 1U);
        const auto read = read_object(kind, "", documents->front().value);
        EXPECT_TRUE(read.ok()) << read.error().text();
    }
}

TEST(Kinds, ANodeReadsItsSpec) {
    const auto documents =
        parse_yaml("name: n1\nspec: {address: 10.0.0.1, ssh: {key: k, port: 2222}, maintenance: {enabled: true, reason: disk}}");
    const auto node = Node::from(*read_object(node_kind(), "", documents->front().value));
    EXPECT_EQ(node.name, "n1");
    EXPECT_EQ(node.address, "10.0.0.1");
    EXPECT_EQ(node.ssh_user, "root");
    EXPECT_EQ(node.ssh_port, 2222);
    EXPECT_EQ(node.ssh_key, "k");
    EXPECT_TRUE(node.maintenance);
    EXPECT_EQ(node.maintenance_reason, "disk");
}

TEST(OpenApi, DescribesDeclaredFields) {
    const auto schema = schema_of(sample_kind().spec(), Side::request);
    const auto& properties = schema.at("properties").get_object();
    EXPECT_EQ(to_json_text(schema.at("required")), R"(["title"])");
    EXPECT_EQ(to_json_text(properties.at("count")),
              R"({"type":["integer","null"],"format":"int64","minimum":1,"maximum":10,"description":"How many."})");
    EXPECT_EQ(to_json_text(properties.at("mode")),
              R"({"type":["string","null"],"enum":["fast","safe",null],"description":"A mode.","default":"safe"})");
    EXPECT_TRUE(properties.at("hidden").at("x-sealed").get_bool());
    const auto answer = schema_of(sample_kind().spec(), Side::answer);
    EXPECT_EQ(answer.at("properties").at("hidden").at("const").as_string(), sealed_mark) << "what answers really carry";
    EXPECT_EQ(to_json_text(answer.at("properties").at("count").at("type")), R"("integer")");
    EXPECT_FALSE(schema.at("additionalProperties").get_bool());
    EXPECT_TRUE(response_schema(node_kind()).at("properties").get_object().contains("status"));
    EXPECT_EQ(to_json_text(request_schema(node_kind()).at("required")), R"(["name","spec"])");
    EXPECT_EQ(to_json_text(replacement_schema(node_kind()).at("required")), R"(["spec"])");
}

TEST(OpenApi, DescribesTheFormsOfAnAnyField) {
    Kind kind("Sample", "samples", "For tests.");
    kind.spec(any("on", "Where.").forms({text("on", "A role."), object("on", "More.").with(text("role", "The role.").required())}));
    const auto schema = schema_of(kind.spec(), Side::request);
    const auto& forms = schema.at("properties").at("on").at("anyOf").get_array();
    ASSERT_EQ(forms.size(), 2U);
    EXPECT_EQ(forms[0].at("type").as_string(), "string");
    EXPECT_EQ(to_json_text(forms[1].at("required")), R"(["role"])");
    const auto about = describe_kind(kind);
    EXPECT_EQ(to_json_text(about.at("fields").at(0).at("forms")), R"(["text","object"])");
    EXPECT_EQ(about.at("fields").at(1).at("path").as_string(), "spec.on.role");
}

TEST(OpenApi, DescribesAKindForTheCommandLine) {
    const auto about = describe_kind(node_kind());
    EXPECT_EQ(to_json_text(about.at("names")), R"(["node","no"])");
    EXPECT_EQ(to_json_text(about.at("verbs")), R"(["create","read","update","remove"])");
    bool port = false;
    for (const auto& field : about.at("fields").get_array())
        if (field.at("path") == "spec.ssh.port") port = field.at("type") == "integer" && field.at("default") == 22;
    EXPECT_TRUE(port);
    EXPECT_EQ(to_json_text(describe_kind(event_kind()).at("indexed")), R"(["subject","actor","context"])");
}

} // namespace orrery::resource
