#include "health/engine/pattern.h"

#include <fmt/format.h>

#include <re2/re2.h>

namespace orrery::health {

struct Pattern::Parts {
    std::string text, expression;
    std::unique_ptr<re2::RE2> compiled;
};

Result<Pattern> Pattern::make(std::string text, std::string expression) {
    Pattern out;
    if (text.empty() && expression.empty()) return out;
    auto parts = std::make_shared<Parts>();
    if (!expression.empty()) {
        re2::RE2::Options options;
        options.set_encoding(re2::RE2::Options::EncodingLatin1); // any bytes
        options.set_log_errors(false);
        options.set_max_mem(1 << 20);
        options.set_dot_nl(true);
        parts->compiled = std::make_unique<re2::RE2>(expression, options);
        if (!parts->compiled->ok())
            return Error{Code::invalid,
                         fmt::format("\"{}\" is not a valid regular expression: {}", expression, parts->compiled->error()),
                         "write it in the syntax of RE2, which has no lookaround and no back-references"};
    }
    parts->text = std::move(text);
    parts->expression = std::move(expression);
    out.parts_ = std::move(parts);
    return out;
}

bool Pattern::is_in(std::string_view bytes) const {
    if (!parts_) return true;
    if (!parts_->text.empty() && bytes.find(parts_->text) == std::string_view::npos) return false;
    return !parts_->compiled || re2::RE2::PartialMatch(re2::StringPiece(bytes.data(), bytes.size()), *parts_->compiled);
}

std::string Pattern::description() const {
    if (!parts_) return "anything";
    std::string out;
    if (!parts_->text.empty()) out = fmt::format("\"{}\"", parts_->text);
    if (parts_->compiled) out += fmt::format("{}/{}/", out.empty() ? "" : " and ", parts_->expression);
    return out;
}

std::string Pattern::identity() const {
    return parts_ ? fmt::format("{}:{} {}:{}", parts_->text.size(), parts_->text, parts_->expression.size(), parts_->expression)
                  : std::string();
}

} // namespace orrery::health
