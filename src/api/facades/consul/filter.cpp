#include "api/facades/consul/facade_state.h"

#include <fmt/format.h>

#include <algorithm>

/// The filter language of Consul (go-bexpr): ==, !=, in, not in, contains, not contains, is empty, is not empty, and, or, not,
/// parentheses.
namespace orrery::api::consul {

namespace {

using Predicate = std::function<bool(const json::value&)>;
constexpr std::size_t max_filter = 4096, deepest_filter = 50;

struct Token {
    enum class Kind { word, text, sign, end };
    Kind kind = Kind::end;
    std::string text;
};

/// The value that a selector selects; null: none.
const json::value* follow(const json::value& from, const std::vector<std::string>& path) {
    const auto* at = &from;
    for (const auto& step : path) {
        if (!at->is_object()) return nullptr;
        at = at->get_object().if_contains(step);
        if (at == nullptr) return nullptr;
    }
    return at;
}

std::string as_text(const json::value& value) {
    if (value.is_string()) return std::string(std::string_view(value.get_string()));
    if (value.is_int64()) return std::to_string(value.get_int64());
    if (value.is_uint64()) return std::to_string(value.get_uint64());
    if (value.is_bool()) return value.get_bool() ? "true" : "false";
    return {};
}

bool is_empty(const json::value* value) {
    if (value == nullptr || value->is_null()) return true;
    if (value->is_array()) return value->get_array().empty();
    if (value->is_object()) return value->get_object().empty();
    return value->is_string() && value->get_string().empty();
}

bool holds(const json::value* value, const std::string& wanted) {
    if (value == nullptr) return false;
    if (value->is_array())
        return std::any_of(value->get_array().begin(), value->get_array().end(),
                           [&](const json::value& item) { return as_text(item) == wanted; });
    if (value->is_object()) return value->get_object().contains(wanted);
    return value->is_string() && std::string_view(value->get_string()).find(wanted) != std::string_view::npos;
}

class Parser {
public:
    explicit Parser(std::string_view text) : text_(text) {}

    Result<Predicate> parse() {
        TRY(std::ignore, advance());
        TRY(auto out, either(0));
        if (token_.kind != Token::Kind::end) return wrong(fmt::format("\"{}\" was not expected", token_.text));
        return out;
    }

private:
    Error wrong(std::string_view why) const {
        return {Code::invalid, fmt::format("Failed to create boolean expression evaluator: at {}: {}", at_, why)};
    }

    Result<Unit> advance() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
        if (at_ == text_.size()) {
            token_ = {};
            return Unit{};
        }
        const char c = text_[at_];
        if (c == '"' || c == '`') {
            std::string out;
            for (++at_; at_ < text_.size() && text_[at_] != c; ++at_) {
                if (c == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
                out += text_[at_];
            }
            if (at_ == text_.size()) return wrong("a text does not end");
            ++at_;
            token_ = {Token::Kind::text, std::move(out)};
            return Unit{};
        }
        for (const auto* sign : {"==", "!=", "(", ")"})
            if (text_.substr(at_).starts_with(sign)) {
                at_ += std::string_view(sign).size();
                token_ = {Token::Kind::sign, sign};
                return Unit{};
            }
        const auto begin = at_;
        const auto part_of_word = [](char x) {
            return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z') || (x >= '0' && x <= '9') || x == '_' || x == '-' || x == '.' ||
                   x == '/' || x == ':' || x == '[' || x == ']';
        };
        // A selector may contain quoted parts: Meta["a b"].
        while (at_ < text_.size() && (part_of_word(text_[at_]) || (text_[at_] == '"' && at_ > begin && text_[at_ - 1] == '['))) {
            if (text_[at_] == '"') {
                for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
                }
                if (at_ == text_.size()) return wrong("a text does not end");
            }
            ++at_;
        }
        if (at_ == begin) return wrong(fmt::format("'{}' was not expected", c));
        token_ = {Token::Kind::word, std::string(text_.substr(begin, at_ - begin))};
        return Unit{};
    }

    bool is_word(std::string_view word) const { return token_.kind == Token::Kind::word && token_.text == word; }

    Result<Predicate> either(std::size_t depth) {
        if (depth > deepest_filter) return wrong("it nests too deep");
        TRY(auto left, both(depth));
        while (is_word("or")) {
            TRY(std::ignore, advance());
            TRY(auto right, both(depth));
            left = [left, right](const json::value& value) { return left(value) || right(value); };
        }
        return left;
    }

    Result<Predicate> both(std::size_t depth) {
        TRY(auto left, negated(depth));
        while (is_word("and")) {
            TRY(std::ignore, advance());
            TRY(auto right, negated(depth));
            left = [left, right](const json::value& value) { return left(value) && right(value); };
        }
        return left;
    }

    Result<Predicate> negated(std::size_t depth) {
        if (depth > deepest_filter) return wrong("it nests too deep");
        if (is_word("not")) {
            TRY(std::ignore, advance());
            TRY(auto inner, negated(depth + 1));
            return Predicate([inner](const json::value& value) { return !inner(value); });
        }
        if (token_.kind == Token::Kind::sign && token_.text == "(") {
            TRY(std::ignore, advance());
            TRY(auto inner, either(depth + 1));
            if (token_.kind != Token::Kind::sign || token_.text != ")") return wrong("a ) is missing");
            TRY(std::ignore, advance());
            return inner;
        }
        return match();
    }

    Result<std::vector<std::string>> selector(const std::string& text) const {
        std::vector<std::string> out;
        std::string part;
        for (std::size_t i = 0; i < text.size(); ++i) {
            if (text[i] == '.') {
                if (!part.empty()) out.push_back(std::exchange(part, {}));
            } else if (text[i] == '[') {
                if (!part.empty()) out.push_back(std::exchange(part, {}));
                const auto close = text.find(']', i);
                if (close == std::string::npos) return wrong("a ] is missing");
                auto inside = text.substr(i + 1, close - i - 1);
                if (inside.size() >= 2 && inside.front() == '"' && inside.back() == '"')
                    inside = inside.substr(1, inside.size() - 2);
                out.push_back(inside);
                i = close;
            } else {
                part += text[i];
            }
        }
        if (!part.empty()) out.push_back(part);
        if (out.empty()) return wrong("a selector is missing");
        return out;
    }

    Result<Predicate> match() {
        if (token_.kind == Token::Kind::end) return wrong("it ends too early");
        if (token_.kind == Token::Kind::sign) return wrong(fmt::format("\"{}\" was not expected", token_.text));
        const auto first = token_;
        TRY(std::ignore, advance());
        if (token_.kind == Token::Kind::sign && (token_.text == "==" || token_.text == "!=")) {
            const bool equal = token_.text == "==";
            TRY(std::ignore, advance());
            TRY(auto path, selector(first.text));
            TRY(auto wanted, operand());
            return Predicate([path, wanted, equal](const json::value& value) {
                const auto* at = follow(value, path);
                return (at != nullptr && as_text(*at) == wanted) == equal;
            });
        }
        bool negate = false;
        if (is_word("not")) {
            negate = true;
            TRY(std::ignore, advance());
        }
        if (is_word("in")) {
            TRY(std::ignore, advance());
            if (token_.kind != Token::Kind::word) return wrong("a selector must follow in");
            TRY(auto path, selector(token_.text));
            TRY(std::ignore, advance());
            return Predicate([path, wanted = first.text, negate](const json::value& value) {
                return holds(follow(value, path), wanted) != negate;
            });
        }
        if (is_word("contains")) {
            TRY(std::ignore, advance());
            TRY(auto path, selector(first.text));
            TRY(auto wanted, operand());
            return Predicate(
                [path, wanted, negate](const json::value& value) { return holds(follow(value, path), wanted) != negate; });
        }
        // Regular expressions are refused: a pattern can block the loop thread for a long time.
        if (is_word("matches")) return wrong("patterns (matches) are not supported here");
        if (is_word("is")) {
            TRY(std::ignore, advance());
            if (is_word("not")) {
                negate = true;
                TRY(std::ignore, advance());
            }
            if (!is_word("empty")) return wrong("empty must follow is");
            TRY(std::ignore, advance());
            TRY(auto path, selector(first.text));
            return Predicate([path, negate](const json::value& value) { return is_empty(follow(value, path)) != negate; });
        }
        return wrong("an operator is missing");
    }

    Result<std::string> operand() {
        if (token_.kind != Token::Kind::word && token_.kind != Token::Kind::text) return wrong("a value is missing");
        auto out = token_.text;
        TRY(std::ignore, advance());
        return out;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    Token token_;
};

} // namespace

Result<Filter> Filter::parse(std::string_view text) {
    Filter out;
    if (text.empty()) return out;
    if (text.size() > max_filter) return Error{Code::invalid, fmt::format("a filter has at most {} characters", max_filter)};
    TRY(out.matches_, Parser(text).parse());
    return out;
}

void Filter::apply(json::value& list) const {
    if (!matches_) return;
    if (list.is_array()) {
        auto& array = list.get_array();
        json::array kept;
        for (auto& item : array)
            if (matches_(item)) kept.push_back(std::move(item));
        array = std::move(kept);
    } else if (list.is_object()) {
        json::object kept;
        for (auto& [key, item] : list.get_object())
            if (!item.is_object() || matches_(item)) kept[key] = std::move(item);
        list = std::move(kept);
    }
}

} // namespace orrery::api::consul
