#include "core/text.h"
#include "core/truncate.h"
#include "core/yaml_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace orrery {

namespace {

using ::testing::HasSubstr;

/// The only document of a YAML text, as one line of JSON; or the error.
std::string yaml_as_json(std::string_view text) {
    const auto documents = parse_yaml(text);
    if (!documents.ok()) return documents.error().message;
    if (documents->size() != 1) return std::to_string(documents->size()) + " documents";
    return to_json_text(documents->front().value);
}

std::string json_again(std::string_view text) {
    const auto value = parse_json(text);
    return value.ok() ? to_json_text(*value) : value.error().message;
}

std::string nested(std::size_t depth, char open, char close) { return std::string(depth, open) + std::string(depth, close); }

class RandomValues {
public:
    explicit RandomValues(unsigned seed) : random_(seed) {}
    json::value value(int depth) {
        switch (pick(depth > 0 ? 8 : 6)) {
        case 0: return nullptr;
        case 1: return pick(2) == 0;
        case 2: return static_cast<std::int64_t>(random_()) >> pick(64);
        case 3: return random_() >> pick(64);
        case 4: return std::ldexp(static_cast<double>(static_cast<std::int64_t>(random_())), static_cast<int>(pick(60)) - 80);
        case 5: return json::string(text());
        case 6: {
            json::array array;
            for (auto count = pick(4); count > 0; --count) array.push_back(value(depth - 1));
            return array;
        }
        default: {
            json::object object;
            for (auto count = pick(4); count > 0; --count) object[text()] = value(depth - 1);
            return object;
        }
        }
    }

private:
    std::uint64_t pick(std::uint64_t below) { return random_() % below; }
    /// Pieces that YAML gives a meaning to, where they are not quoted.
    std::string text() {
        static const std::vector<std::string> pieces = {"a",          "Z9",
                                                        " ",          "  ",
                                                        "\n",         "\n\n",
                                                        "\t",         ":",
                                                        ": ",         "#",
                                                        " #",         "-",
                                                        "- ",         "---",
                                                        "...",        "?",
                                                        "!",          "&",
                                                        "*",          "{",
                                                        "}",          "[",
                                                        "]",          ",",
                                                        "'",          "\"",
                                                        "\\",         "|",
                                                        ">",          "%",
                                                        "@",          "`",
                                                        "~",          "null",
                                                        "1",          "0",
                                                        "0x1",        "1e",
                                                        ".",          "_",
                                                        "true",       "yes",
                                                        "=",          "<<",
                                                        "\x7f",       "\x01",
                                                        "\r",         "é",
                                                        "日",         "😀",
                                                        "\u0085",     "\u2028",
                                                        "\ufeff",     "+",
                                                        ".inf",       "$",
                                                        "2026-01-01", "long words with spaces in them, and more"};
        std::string out;
        for (auto count = pick(5); count > 0; --count) out += pieces[pick(pieces.size())];
        if (pick(200) == 0) out.append(1200, 'k');
        return out;
    }
    std::mt19937_64 random_;
};

TEST(YamlLines, NamesTheLineOfAFieldOrOfItsNearestParent) {
    const std::string_view text =
        "kind: Node\nname: a\n---\nkind: Job\nname: b\nspec:\n  tasks:\n    - name: x\n      on: db\n    - {name: y,\n"
        "       after: [x,\n               z]}\n";
    const auto documents = parse_yaml(text);
    ASSERT_TRUE(documents.ok());
    const auto lines = yaml_lines(text, documents->at(1).line,
                                  {"spec.tasks[0].on", "spec.tasks[1].after[1]", "spec.tasks[1].run.ssh", "spec.done", "nothing"});
    ASSERT_EQ(lines.size(), 5u);
    EXPECT_EQ(lines[0], 9);
    EXPECT_EQ(lines[1], 12);
    EXPECT_EQ(lines[2], 10) << "the task, which has no such field";
    EXPECT_EQ(lines[3], 6);
    EXPECT_EQ(lines[4], 4) << "the document";
    EXPECT_EQ(yaml_lines("{\n\t\"a\": [", 1, {"a"}).front(), std::nullopt);
}

} // namespace

TEST(Json, SurvivesARoundTrip) {
    for (const auto* text : {"null", "true", "-1", "18446744073709551615", "1.5", "[]", "{}", R"({"a":[1,{"b":"c"}],"d":""})",
                             R"("\"\\\n\u0001é")", "1.0", "1e+300"})
        EXPECT_EQ(json_again(text), text);
    EXPECT_EQ(json_again(" [1 , 2]\n"), "[1,2]");
    EXPECT_EQ(to_pretty_json(*parse_json(R"({"a":[1,2],"b":{},"c":[]})")),
              "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {},\n  \"c\": []\n}");
}

TEST(Json, ErrorsNameTheirPosition) {
    const struct {
        const char* text;
        const char* error;
    } table[] = {
        {"", "line 1, column 1: it ends too early"},
        {"{\"a\":\n 1,}", "line 2, column 4"},
        {"[1] x", "line 1, column 5: something follows after the end"},
        {"{\"a\":1,\n\"a\":2}", "line 2, column 3: the key \"a\" occurs twice"},
        {"[123456789012345678901234567890]", "a whole number has more digits than can be kept"},
        {"[1e999]", "a number is too large"},
        {"[NaN]", "line 1, column 2"},
        {"\"\xff\"", "line 1"},
    };
    for (const auto& row : table) EXPECT_THAT(json_again(row.text), HasSubstr(row.error)) << row.text;
}

TEST(Json, IsBoundedInDepthAndSize) {
    EXPECT_TRUE(parse_json(nested(max_depth, '[', ']')).ok());
    EXPECT_THAT(json_again(nested(max_depth + 1, '[', ']')), HasSubstr("nests deeper"));
    EXPECT_THAT(json_again(std::string(1'000'000, '[')), HasSubstr("nests deeper"));
    EXPECT_EQ(parse_json(std::string(max_text_size + 1, ' ')).error().code, Code::too_large);
}

TEST(Json, EveryTruncationIsRefused) {
    const std::string text = R"({"a":[1,2.5e3,"x\u00e9\n",true,null],"b":{"c":-7}})";
    ASSERT_TRUE(parse_json(text).ok());
    for (std::size_t size = 0; size < text.size(); ++size)
        EXPECT_FALSE(parse_json(std::string_view(text).substr(0, size)).ok()) << size;
}

TEST(Yaml, TypesScalarsByTheCoreSchema) {
    const char* table[][2] = {{"null", "0 documents"},
                              {"a: ~", R"({"a":null})"},
                              {"a:", R"({"a":null})"},
                              {"a: yes", R"({"a":"yes"})"},
                              {"a: on", R"({"a":"on"})"},
                              {"a: True", R"({"a":true})"},
                              {"a: 'true'", R"({"a":"true"})"},
                              {"a: 12", R"({"a":12})"},
                              {"a: -3", R"({"a":-3})"},
                              {"a: 0x1f", R"({"a":31})"},
                              {"a: 0o17", R"({"a":15})"},
                              {"a: 0644", R"({"a":"0644"})"},
                              {"a: 1.10", R"({"a":1.1})"},
                              {"a: \"1.10\"", R"({"a":"1.10"})"},
                              {"a: 1e3", R"({"a":1000.0})"},
                              {"a: 5.", R"({"a":5.0})"},
                              {"a: -.5", R"({"a":-0.5})"},
                              {"a: 1.2.3", R"({"a":"1.2.3"})"},
                              {"a: +7", R"({"a":7})"},
                              {"1: x", R"({"1":"x"})"},
                              {"a: 2026-01-01", R"({"a":"2026-01-01"})"},
                              {"- a\n- [b, {c: d}]", R"(["a",["b",{"c":"d"}]])"},
                              {"a: |\n  x\n  y\n", R"({"a":"x\ny\n"})"},
                              {"{\n\t\"a\": 1\n}", R"({"a":1})"}};
    for (const auto& row : table) EXPECT_EQ(yaml_as_json(row[0]), row[1]) << row[0];
}

TEST(Yaml, RefusesUnsupportedSyntax) {
    const char* table[][2] = {{"a: &x 1\nb: *x", "line 1, column 4: anchors (&name) are not read"},
                              {"a: *x", "line 1"},
                              {"a: !!int 3", "tags (!name) are not read"},
                              {"a: 1\nb: 2\na: 3", "line 3, column 1: the key \"a\" occurs twice"},
                              {"? [a]\n: b", "a key must be a text"},
                              {"a: .inf", "cannot be kept"},
                              {"a: 123456789012345678901234567890", "more digits than can be kept"},
                              {"a: [1, 2", "line 1"},
                              {", a: 1", "line 1, column 1: no document can begin here"},
                              {"a: b: c", "line 1"},
                              {"a: \x01", "control character"},
                              {"a: \xff", "not UTF-8"}};
    for (const auto& row : table) EXPECT_THAT(yaml_as_json(row[0]), HasSubstr(row[1])) << row[0];
}

TEST(Yaml, IsBoundedInDepthAndSize) {
    EXPECT_THAT(yaml_as_json(nested(max_depth + 1, '[', ']')), HasSubstr("nests deeper"));
    EXPECT_FALSE(parse_yaml("a: " + std::string(100'000, '[')).ok());
    EXPECT_FALSE(parse_yaml("a: " + std::string(100'000, '{')).ok());
    std::string steps;
    for (std::size_t depth = 0; depth < 200; ++depth) steps += std::string(depth, ' ') + "a:\n";
    EXPECT_FALSE(parse_yaml(steps).ok());
    std::string dashes;
    for (int i = 0; i < 2000; ++i) dashes += "- ";
    EXPECT_FALSE(parse_yaml(dashes).ok());
    EXPECT_EQ(parse_yaml(std::string(max_text_size + 1, ' ')).error().code, Code::too_large);
}

TEST(Yaml, SeparatesDocumentsAndKeepsTheirLines) {
    const auto documents = parse_yaml("# first\n---\na: 1\n---\n---\nb: 2\n...\n");
    ASSERT_TRUE(documents.ok()) << documents.error().text();
    ASSERT_EQ(documents->size(), 2U);
    EXPECT_EQ(to_json_text((*documents)[1].value), R"({"b":2})");
    EXPECT_GE((*documents)[1].line, 5);
}

TEST(Yaml, WritesReadableYaml) {
    const auto value = *parse_json(
        R"({"kind":"Node","name":"n1","labels":{},"spec":{"address":"192.0.2.1","version":"1.10","on":"yes","key":"a\nb\n","list":["x",{"y":1,"z":[]}],
        "odd":": #","n":null,"f":1.5,"t":"true"}})");
    EXPECT_EQ(to_yaml(value), "kind: Node\nname: n1\nlabels: {}\nspec:\n  address: 192.0.2.1\n  version: \"1.10\"\n  on: yes\n  "
                              "key: |\n    a\n    b\n  list:\n    - x\n"
                              "    - y: 1\n      z: []\n  odd: \": #\"\n  n: null\n  f: 1.5\n  t: \"true\"\n");
}

TEST(Yaml, EveryValueSurvivesARoundTrip) {
    for (unsigned seed = 0; seed < 4000; ++seed) {
        RandomValues random(seed);
        const json::value value = json::object{{"value", random.value(4)}};
        const auto text = to_yaml(value);
        const auto back = parse_yaml(text);
        ASSERT_TRUE(back.ok()) << "seed " << seed << ": " << back.error().text() << "\n" << text;
        ASSERT_EQ(back->size(), 1U) << "seed " << seed << "\n" << text;
        ASSERT_EQ(to_json_text(back->front().value), to_json_text(value)) << "seed " << seed << "\n" << text;
        const auto json_back = parse_json(to_pretty_json(value));
        ASSERT_TRUE(json_back.ok());
        ASSERT_EQ(to_json_text(*json_back), to_json_text(value));
    }
}

TEST(Yaml, ScalarDocumentsSurviveARoundTrip) {
    for (unsigned seed = 0; seed < 2000; ++seed) {
        RandomValues random(seed);
        const auto value = random.value(0);
        const auto back = parse_yaml(to_yaml(value));
        ASSERT_TRUE(back.ok()) << to_yaml(value);
        if (value.is_null()) continue;
        ASSERT_EQ(back->size(), 1U) << to_yaml(value);
        ASSERT_EQ(to_json_text(back->front().value), to_json_text(value)) << to_yaml(value);
    }
}

TEST(Yaml, EscapesThatWouldBecomeBytesOutsideUtf8AreRefused) {
    for (const auto* text : {"a: \"x\\Ny\"", "a: \"x\\_y\"", "\"k\\Nk\": 1"}) {
        const auto refused = parse_yaml(text);
        ASSERT_FALSE(refused.ok()) << text;
        EXPECT_NE(refused.error().message.find("u0085"), std::string::npos) << refused.error().message;
    }
    const auto written = parse_yaml("a: \"x\\u0085\\xa0y\"");
    ASSERT_TRUE(written.ok()) << written.error().text();
    EXPECT_EQ(written->front().value.at("a"), "x\xc2\x85\xc2\xa0y");
}

TEST(Truncate, NeverCutsACharacter) {
    EXPECT_EQ(truncate("short", 64), "short");
    EXPECT_EQ(truncate("abc", 2), "ab");
    const std::string smile = "\xf0\x9f\x98\x80";
    EXPECT_EQ(truncate("a" + smile, 5), "a" + smile);
    for (std::size_t bytes = 1; bytes < 5; ++bytes) EXPECT_EQ(truncate("a" + smile, bytes), "a") << bytes;
    EXPECT_EQ(truncate("\x80\x80", 1), "") << "what is not UTF-8 does not make it read too far";
}

} // namespace orrery
