#include "net/http_parser.h"

#include <boost/beast/http/basic_parser.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace orrery::net {

namespace beast_http = boost::beast::http;
using BeastError = boost::beast::error_code;
using BeastView = boost::beast::string_view;

namespace {
constexpr std::size_t max_fields = 256;
constexpr int max_empty_lines = 4;

bool is_token_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && std::strchr("!#$%&'*+-.^_`|~", c));
}

bool is_name(std::string_view name, std::string_view expected) {
    return name.size() == expected.size() && boost::beast::iequals({name.data(), name.size()}, {expected.data(), expected.size()});
}
} // namespace

struct MessageParser::Engine {
    virtual ~Engine() = default;
    virtual void reset(bool has_body) = 0;
    virtual std::size_t put(std::string_view bytes, BeastError& error) = 0;
    virtual void put_end(BeastError& error) = 0;
    virtual bool is_done() const = 0;
    virtual bool keep_alive() const = 0;
    virtual std::optional<std::uint64_t> remaining() const = 0;
    std::string* out = nullptr; // destination of the body during one step
};

template <bool is_request> struct MessageParser::BeastEngine final : Engine {
    struct Parser final : beast_http::basic_parser<is_request> {
        explicit Parser(BeastEngine& engine_) : engine(engine_) {
            this->body_limit(boost::none); // the readers count for themselves
            this->header_limit(0xffffffff);
            this->eager(false);
        }
        BeastEngine& engine;
        bool in_head = true;
        std::size_t fields = 0;

        void on_request_impl(beast_http::verb, BeastView method, BeastView target, int version, BeastError& error) override {
            engine.head.method.assign(method.data(), method.size());
            engine.head.target.assign(target.data(), target.size());
            engine.head.http_1_1 = version == 11;
            error = {};
        }
        void on_response_impl(int status, BeastView, int version, BeastError& error) override {
            engine.head.status = status;
            engine.head.http_1_1 = version == 11;
            error = {};
        }
        void on_field_impl(beast_http::field, BeastView name, BeastView value, BeastError& error) override {
            error = {};
            if (++fields > max_fields) {
                error = beast_http::error::header_limit;
                return;
            }
            // Trailers arrive here, too. No caller uses them, and they must not pass for validated fields.
            if (in_head) engine.head.headers.add({name.data(), name.size()}, {value.data(), value.size()});
        }
        void on_header_impl(BeastError& error) override {
            in_head = false;
            error = {};
        }
        void on_body_init_impl(const boost::optional<std::uint64_t>&, BeastError& error) override { error = {}; }
        std::size_t on_body_impl(BeastView body, BeastError& error) override {
            engine.out->append(body.data(), body.size());
            error = {};
            return body.size();
        }
        void on_chunk_header_impl(std::uint64_t, BeastView, BeastError& error) override { error = {}; }
        std::size_t on_chunk_body_impl(std::uint64_t, BeastView body, BeastError& error) override {
            return on_body_impl(body, error);
        }
        void on_finish_impl(BeastError& error) override { error = {}; }
    };

    explicit BeastEngine(MessageHead& head_) : head(head_) {}
    void reset(bool has_body) override {
        parser.emplace(*this);
        if (!has_body) parser->skip(true);
    }
    std::size_t put(std::string_view bytes, BeastError& error) override {
        return parser->put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
    }
    void put_end(BeastError& error) override { parser->put_eof(error); }
    bool is_done() const override { return parser->is_done(); }
    bool keep_alive() const override { return parser->keep_alive(); }
    std::optional<std::uint64_t> remaining() const override {
        auto left = parser->content_length_remaining();
        return left ? std::optional<std::uint64_t>(*left) : std::nullopt;
    }

    MessageHead& head;
    std::optional<Parser> parser;
};

MessageParser::MessageParser(Kind kind, std::size_t max_head) : kind_(kind), max_head_(max_head) {
    if (kind == Kind::request)
        engine_ = std::make_unique<BeastEngine<true>>(head_);
    else
        engine_ = std::make_unique<BeastEngine<false>>(head_);
    reset();
}
MessageParser::~MessageParser() = default;

void MessageParser::reset(bool has_body) {
    scanned_ = 0;
    empty_lines_ = 0;
    head_ = {};
    engine_->reset(has_body);
}

MessageParser::Step MessageParser::bad(int status, std::string message) {
    fault_ = {status, std::move(message)};
    return Step::bad;
}

MessageParser::Step MessageParser::read_head(std::string_view& bytes) {
    if (scanned_ == 0) {
        // RFC 9112 2.2: ignore at least one empty line before a request; old clients send one after a body.
        while (kind_ == Kind::request && bytes.starts_with("\r\n")) {
            if (++empty_lines_ > max_empty_lines) return bad(400, "there are only empty lines where a request should be");
            bytes.remove_prefix(2);
        }
        if (bytes.empty() || bytes == "\r") return Step::need_more;
        if (!is_token_character(bytes.front())) return bad(400, "the bytes are not HTTP");
    }
    const auto visible = bytes.substr(0, max_head_);
    std::size_t head_size = 0;
    while (head_size == 0) {
        const auto newline = visible.find('\n', scanned_);
        if (newline == std::string_view::npos) {
            scanned_ = visible.size();
            break;
        }
        if (newline == 0 || visible[newline - 1] != '\r') return bad(400, "a line of the head does not end with CR LF");
        if (newline + 1 == visible.size()) { // the next byte decides; scan this one again
            if (newline >= 3 && visible.substr(newline - 3, 4) == "\r\n\r\n")
                head_size = newline + 1;
            else
                scanned_ = newline;
            break;
        }
        if (newline >= 3 && visible.substr(newline - 3, 4) == "\r\n\r\n") {
            head_size = newline + 1;
            break;
        }
        // RFC 9112 5.2: a server refuses folded fields.
        if (kind_ == Kind::request && (visible[newline + 1] == ' ' || visible[newline + 1] == '\t'))
            return bad(400, "a header field is folded over several lines");
        scanned_ = newline + 1;
    }
    if (head_size == 0) {
        if (bytes.size() >= max_head_) return bad(431, fmt::format("the head is longer than {} bytes", max_head_));
        return Step::need_more;
    }

    BeastError error;
    const auto taken = engine_->put(bytes.substr(0, head_size), error);
    if (error == beast_http::error::header_limit) return bad(431, fmt::format("the head has more than {} fields", max_fields));
    if (error == beast_http::error::bad_version) return bad(505, "the message is not HTTP/1.0 or HTTP/1.1");
    if (error) return bad(400, fmt::format("the head is malformed: {}", error.message()));
    if (taken != head_size) return bad(400, "the head is malformed");
    bytes.remove_prefix(head_size);
    head_.keep_alive = engine_->keep_alive();
    return kind_ == Kind::request ? check_request_head() : Step::done;
}

/// What Beast lets pass and a peer before or behind us might read another way (request smuggling).
MessageParser::Step MessageParser::check_request_head() {
    int hosts = 0, lengths = 0, encodings = 0;
    for (const auto& [name, value] : head_.headers) {
        if (is_name(name, "host")) {
            ++hosts;
        } else if (is_name(name, "content-length")) {
            ++lengths;
            if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos)
                return bad(400, "Content-Length is not a number");
        } else if (is_name(name, "transfer-encoding")) {
            ++encodings;
            if (!is_name(value, "chunked")) return bad(501, "the only transfer encoding understood is chunked");
        }
    }
    if (lengths > 1) return bad(400, "Content-Length is given twice");
    if (encodings > 1) return bad(400, "Transfer-Encoding is given twice");
    if (lengths > 0 && encodings > 0) return bad(400, "Content-Length and Transfer-Encoding exclude each other");
    if (encodings > 0 && !head_.http_1_1) return bad(400, "HTTP/1.0 has no Transfer-Encoding");
    if (hosts > 1) return bad(400, "Host is given twice");
    if (hosts == 0 && head_.http_1_1) return bad(400, "the Host field is missing");
    return Step::done;
}

MessageParser::Step MessageParser::read_body(std::string_view& bytes, std::string& out) {
    const auto before = out.size();
    engine_->out = &out;
    while (!engine_->is_done()) {
        if (bytes.empty()) return out.size() > before ? Step::some : Step::need_more;
        BeastError error;
        const auto taken = engine_->put(bytes, error);
        bytes.remove_prefix(taken);
        if (error == beast_http::error::need_more) return out.size() > before ? Step::some : Step::need_more;
        if (error) return bad(400, fmt::format("the body is malformed: {}", error.message()));
    }
    return out.size() > before ? Step::some : Step::done;
}

MessageParser::Step MessageParser::end() {
    if (engine_->is_done()) return Step::done;
    BeastError error;
    engine_->put_end(error);
    if (error) return bad(400, "the message broke off");
    return Step::done;
}

bool MessageParser::is_done() const { return engine_->is_done(); }
std::optional<std::uint64_t> MessageParser::remaining() const { return engine_->remaining(); }

} // namespace orrery::net
