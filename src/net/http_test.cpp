#include "net/http.h"
#include "net/http_client.h"
#include "net/http_parser.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::net {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Headers, NamesAreCaseInsensitive) {
    Headers headers{{"Content-Type", "a"}, {"Accept", "b"}, {"ACCEPT", "c"}};
    EXPECT_EQ(headers.get("content-type"), "a");
    EXPECT_EQ(headers.get("accept"), "b");
    EXPECT_TRUE(headers.has("aCCept"));
    EXPECT_FALSE(headers.has("Accep"));
    headers.set("accept", "d");
    EXPECT_EQ(headers.get("Accept"), "d");
    EXPECT_EQ(std::distance(headers.begin(), headers.end()), 2);
    headers.remove("ACCEPT");
    EXPECT_FALSE(headers.has("accept"));
    EXPECT_EQ(headers.get("accept"), "");
}

TEST(Target, IsParsedDecodedAndNormalised) {
    const std::vector<std::pair<std::string, std::string>> paths = {
        {"/", "/"},           {"/v1/nodes", "/v1/nodes"},
        {"/a/", "/a/"},       {"/a//b", "/a//b"},
        {"/a/./b", "/a/b"},   {"/a/../b", "/b"},
        {"/a/..", "/"},       {"/a/.", "/a/"},
        {"/.", "/"},          {"/a%20b", "/a b"},
        {"/a%2Fb", "/a/b"},   {"/a/%2e%2E/b", "/b"},
        {"/.hid", "/.hid"},   {"/...", "/..."},
        {"/a/..b", "/a/..b"}, {"/caf%C3%A9", "/caf\xc3\xa9"},
        {"/a+b", "/a+b"},     {"/x?", "/x"},
    };
    for (const auto& [text, path] : paths) {
        const auto target = parse_target(text);
        ASSERT_TRUE(target.ok()) << text;
        EXPECT_EQ(target->path, path) << text;
    }
    const auto target = parse_target("/x?a=1&b&&c=&d=x%26y+z=&a=2&%61=3&=v");
    ASSERT_TRUE(target.ok());
    EXPECT_THAT(target->query, ElementsAre(Pair("a", "1"), Pair("b", ""), Pair("c", ""), Pair("d", "x&y z="), Pair("a", "2"),
                                           Pair("a", "3"), Pair("", "v")));
    EXPECT_EQ(target->param("a"), "1");
    EXPECT_EQ(target->param("b"), "");
    EXPECT_EQ(target->param("e"), std::nullopt);
}

TEST(Target, IsRefusedIfItIsMalformedOrLeavesTheRoot) {
    for (const std::string text : {"",
                                   "x",
                                   "*",
                                   "http://h/",
                                   "/..",
                                   "/../a",
                                   "/a/../..",
                                   "/a/../../b",
                                   "/%2e%2e",
                                   "/%2e./b",
                                   "/a%2f..%2f..%2fb",
                                   "/%",
                                   "/%1",
                                   "/%zz",
                                   "/%00",
                                   "/?a=%00",
                                   "/a b",
                                   "/a#b",
                                   "/\x7f",
                                   "/\xc3\xa9",
                                   "/%ff",
                                   "/%c0%af",
                                   "/%ed%a0%80",
                                   "/%f5%80%80%80",
                                   "/?x=%e2%82",
                                   "/a\r\nb"})
        EXPECT_FALSE(parse_target(text).ok()) << text;
}

TEST(Target, SurvivesARoundTrip) {
    std::string all;
    for (int c = 1; c < 128; ++c) all.push_back(static_cast<char>(c));
    all += "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
    const auto target = parse_target("/x?" + percent_encode(all) + "=" + percent_encode(all));
    ASSERT_TRUE(target.ok());
    EXPECT_THAT(target->query, ElementsAre(Pair(all, all)));
    EXPECT_EQ(percent_encode("aZ9-._~ /"), "aZ9-._~%20%2F");
}

TEST(Url, IsParsed) {
    struct Case {
        std::string text, scheme, host;
        int port;
        std::string target, again;
    };
    const std::vector<Case> cases = {
        {"http://example.org", "http", "example.org", 80, "/", "http://example.org/"},
        {"HTTPS://Example.ORG:443/A?b#c", "https", "example.org", 443, "/A?b", "https://example.org/A?b"},
        {"https://h:8400/x", "https", "h", 8400, "/x", "https://h:8400/x"},
        {"http://h?q=1", "http", "h", 80, "/?q=1", "http://h/?q=1"},
        {"http://[::1]:8080/", "http", "::1", 8080, "/", "http://[::1]:8080/"},
        {"http://[FE80::0:1]", "http", "fe80::1", 80, "/", "http://[fe80::1]/"},
        {"http://127.0.0.1:1", "http", "127.0.0.1", 1, "/", "http://127.0.0.1:1/"},
        {"http://h:/", "http", "h", 80, "/", "http://h/"},
    };
    for (const auto& each : cases) {
        const auto url = parse_url(each.text);
        ASSERT_TRUE(url.ok()) << each.text << ": " << url.error().text();
        EXPECT_EQ(url->scheme, each.scheme);
        EXPECT_EQ(url->host, each.host);
        EXPECT_EQ(url->port, each.port);
        EXPECT_EQ(url->target, each.target);
        EXPECT_EQ(url->text(), each.again);
    }
}

TEST(Url, InvalidUrlsAreRefused) {
    for (const std::string text : {"",
                                   "example.org",
                                   "/x",
                                   "ftp://h/",
                                   "http:/h",
                                   "http://",
                                   "http:///x",
                                   "http://u@h/",
                                   "http://u:p@h/",
                                   "http://h:0/",
                                   "http://h:65536/",
                                   "http://h:1x/",
                                   "http://h:-1/",
                                   "http://[::1",
                                   "http://[zz]/",
                                   "http://[::1]x/",
                                   "http://a b/",
                                   "http://h/a b",
                                   "http://h\r\n/",
                                   "http://h\\x/",
                                   "http://a:b:c/",
                                   "http://::1/"})
        EXPECT_FALSE(parse_url(text).ok()) << text;
    EXPECT_FALSE(parse_url("http://h/" + std::string(10'000, 'x')).ok());
}

namespace {

struct Parsed {
    MessageParser::Step step = MessageParser::Step::need_more;
    std::string text;
    bool operator==(const Parsed&) const = default;
};

/// What the parser makes of the bytes when they come in pieces of that size.
Parsed parse_in_pieces(MessageParser::Kind kind, std::string_view bytes, std::size_t size) {
    MessageParser parser(kind, 4096);
    Parsed parsed;
    std::string body, buffer;
    bool in_body = false;
    for (std::size_t at = 0;; at += size) {
        buffer += bytes.substr(std::min(at, bytes.size()), size);
        for (;;) {
            std::string_view rest(buffer);
            parsed.step = in_body ? parser.read_body(rest, body) : parser.read_head(rest);
            buffer.erase(0, buffer.size() - rest.size());
            if (parsed.step == MessageParser::Step::bad) {
                parsed.text = parser.fault().message;
                return parsed;
            }
            if (!in_body && parsed.step == MessageParser::Step::done) {
                in_body = true;
                continue;
            }
            if (parsed.step != MessageParser::Step::some) break;
        }
        if (in_body && parser.is_done()) break;
        if (at >= bytes.size()) break;
    }
    parsed.text = fmt::format("{} {} {} {} {}", parser.head().method, parser.head().target, parser.head().status, body, buffer);
    for (const auto& [name, value] : parser.head().headers) parsed.text += fmt::format(" {}={}", name, value);
    return parsed;
}

const std::vector<std::string> sample_requests = {
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "\r\nPOST /v1/nodes?dry_run HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n{\"a\": true}",
    "PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nA;ext=\"v\"\r\n0123456789\r\n0\r\nTrailer: "
    "t\r\n\r\n",
};
const std::vector<std::string> sample_responses = {
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: text/plain\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n",
};

} // namespace

TEST(MessageParser, GivesTheSameResultForEverySplitOfAMessage) {
    const auto check = [](MessageParser::Kind kind, const std::string& bytes) {
        const auto whole = parse_in_pieces(kind, bytes, bytes.size());
        EXPECT_EQ(whole.step, MessageParser::Step::done) << bytes << whole.text;
        for (std::size_t size = 1; size < bytes.size(); ++size)
            EXPECT_EQ(parse_in_pieces(kind, bytes, size), whole) << size << " " << bytes;
    };
    for (const auto& bytes : sample_requests) check(MessageParser::Kind::request, bytes);
    for (const auto& bytes : sample_responses) check(MessageParser::Kind::response, bytes);
}

TEST(MessageParser, NeedsMoreOfEveryTruncatedMessage) {
    const auto check = [](MessageParser::Kind kind, const std::string& bytes) {
        for (std::size_t length = 0; length < bytes.size(); ++length)
            EXPECT_EQ(parse_in_pieces(kind, std::string_view(bytes).substr(0, length), 7).step, MessageParser::Step::need_more)
                << length << " " << bytes;
    };
    for (const auto& bytes : sample_requests) check(MessageParser::Kind::request, bytes);
    for (const auto& bytes : sample_responses) check(MessageParser::Kind::response, bytes);
}

} // namespace orrery::net
