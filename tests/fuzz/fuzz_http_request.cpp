// Bytes of a client through the server's whole HTTP session, over a connection in memory: nothing crashes or hangs, every answer is
// HTTP, and answers do not depend on how the bytes are split.
#include "core/log.h"
#include "net/http_parser.h"
#include "net/http_session.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace {

using namespace orrery;
using namespace orrery::net;

class MemoryStream final : public ByteStream {
public:
    MemoryStream(std::string_view bytes, std::size_t piece, std::string& answers)
        : bytes_(bytes), piece_(piece), answers_(answers) {}
    asio::awaitable<Io> read_some(char* data, std::size_t size) override {
        if (closed_) co_return Io{asio::error::bad_descriptor, 0};
        const auto taken = bytes_.copy(data, std::min(size, piece_));
        bytes_.remove_prefix(taken);
        if (taken == 0) co_return Io{asio::error::eof, 0};
        co_return Io{{}, taken};
    }
    Io write_now(std::string_view head, std::string_view body) override {
        answers_.append(head).append(body);
        return {{}, head.size() + body.size()};
    }
    asio::awaitable<Io> write_some(std::string_view head, std::string_view body) override { co_return write_now(head, body); }
    asio::awaitable<void> finish() override { co_return; }
    void cancel() override {}
    void close() override { closed_ = true; }
    int descriptor() const override { return -1; }

private:
    std::string_view bytes_;
    std::size_t piece_;
    std::string& answers_;
    bool closed_ = false;
};

/// Does by the path what handlers do: reads all, reads some, reads nothing, streams, fails.
Task<Unit> handle(Context ctx, Request& request, BodyReader& body, ResponseWriter& out) {
    const char what = request.target.path.size() > 1 ? request.target.path[1] : 'a';
    if (what == 'n') co_return co_await out.send(ctx, Response{200, {{"X-Path", request.target.path}}, "unread"});
    if (what == 'f') co_return Error{Code::not_found, request.target.path};
    if (what == 's') {
        CO_TRY(std::ignore, co_await out.begin(ctx, 200, {{"X-Method", request.method}}));
        CO_TRY(std::ignore, co_await out.write(ctx, request.target.path));
        co_return co_await out.finish(ctx);
    }
    CO_TRY(auto text, co_await read_all(ctx, body, 1 << 20));
    for (const auto& [name, value] : request.target.query) text += name + value;
    co_return co_await out.send(ctx, Response{what == 'e' ? 204 : 200, {}, std::move(text)});
}

std::string serve(std::string_view bytes, std::size_t piece) {
    static asio::io_context loop(1);
    static const auto shared = [] {
        auto made = std::make_shared<ServerShared>();
        made->options.max_head = 1024;
        made->options.max_body = 2048;
        made->handler = handle;
        made->date_field = "Date: now\r\n";
        return made;
    }();
    std::string answers;
    auto session = std::make_shared<HttpSession>(shared, std::make_unique<MemoryStream>(bytes, piece, answers), "fuzz", false);
    asio::co_spawn(loop, session->run(), [session](std::exception_ptr exception) {
        if (exception) std::abort();
    });
    loop.restart();
    loop.run();
    return answers;
}

/// Statuses and bodies of the answers; aborts if they are not HTTP. HEAD answers have no body, so reading stops there.
std::vector<std::string> read_answers(std::string_view answers, bool& has_head) {
    std::vector<std::string> read;
    MessageParser parser(MessageParser::Kind::response, 1 << 20);
    while (!answers.empty() && !has_head) {
        parser.reset();
        if (parser.read_head(answers) != MessageParser::Step::done) std::abort();
        if (!parser.head().headers.has("X-Request-Id") && parser.head().status != 100) std::abort();
        std::string body;
        auto step = MessageParser::Step::some;
        while (step == MessageParser::Step::some && !parser.is_done()) step = parser.read_body(answers, body);
        if (step == MessageParser::Step::bad) std::abort();
        if (parser.head().status >= 200) read.push_back(std::to_string(parser.head().status) + " " + body);
    }
    return read;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const bool quiet = [] {
        log::configure({.level = log::Level::error, .fd = -1});
        return true;
    }();
    std::ignore = quiet;
    if (size == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    // Answers to HEAD and to clients that see the end of the connection as the end of the body cannot be told apart from outside.
    bool opaque = bytes.find("HEAD ") != std::string_view::npos || bytes.find("HTTP/1.0") != std::string_view::npos;
    const auto whole = serve(bytes, bytes.size() + 1);
    const auto cut = serve(bytes, static_cast<std::size_t>(data[0]) + 1);
    const auto from_whole = read_answers(whole, opaque), from_cut = read_answers(cut, opaque);
    if (from_whole != from_cut) {
        std::fprintf(stderr, "whole:\n%s\ncut:\n%s\n", whole.c_str(), cut.c_str());
        std::abort();
    }
    return 0;
}
