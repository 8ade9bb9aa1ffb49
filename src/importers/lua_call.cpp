#include "importers/lua_call.h"

#include <cctype>
#include <utility>

namespace orrery::importers {

namespace {

constexpr std::size_t max_arguments = 16, max_items = 1024;
constexpr int max_depth = 8;

class LuaReader {
public:
    explicit LuaReader(std::string_view text) : text_(text) {}

    std::optional<LuaCall> call() {
        skip();
        if (remaining().starts_with(';')) ++at_;
        skip();
        if (remaining().starts_with("return ")) at_ += 7;
        const auto name = identifier();
        if (name.empty() || !accept('(')) return std::nullopt;
        std::vector<LuaValue> out;
        if (accept(')')) return finish(name, std::move(out));
        while (out.size() < max_arguments) {
            auto one = value(0);
            if (!one) return std::nullopt;
            out.push_back(std::move(*one));
            if (accept(')')) return finish(name, std::move(out));
            if (!accept(',')) return std::nullopt;
        }
        return std::nullopt;
    }

private:
    std::optional<LuaCall> finish(const std::string& name, std::vector<LuaValue> out) {
        skip();
        if (at_ != text_.size()) return std::nullopt; // more than one call
        return LuaCall{name, std::move(out)};
    }
    std::string_view remaining() const { return text_.substr(at_); }
    void skip() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    }
    bool accept(char c) {
        skip();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    std::string identifier() {
        skip();
        const auto begin = at_;
        while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) ++at_;
        return std::string(text_.substr(begin, at_ - begin));
    }

    std::optional<LuaValue> value(int depth) {
        skip();
        if (at_ >= text_.size() || depth > max_depth) return std::nullopt;
        const char c = text_[at_];
        if (c == '\'' || c == '"') return quoted(c);
        if (c == '{') return table(depth);
        if (c == '-' || std::isdigit(static_cast<unsigned char>(c)) != 0) {
            const auto begin = at_++;
            while (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '.')) ++at_;
            return LuaValue{LuaValue::Kind::number, std::string(text_.substr(begin, at_ - begin))};
        }
        const auto name = identifier();
        if (name == "true" || name == "false") return LuaValue{LuaValue::Kind::text, name};
        return std::nullopt;
    }

    std::optional<LuaValue> quoted(char quote) {
        LuaValue out{LuaValue::Kind::text, {}};
        for (++at_; at_ < text_.size(); ++at_) {
            if (text_[at_] == quote) {
                ++at_;
                return out;
            }
            if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
            out.text += text_[at_];
        }
        return std::nullopt;
    }

    std::optional<LuaValue> table(int depth) {
        LuaValue out{LuaValue::Kind::table, {}};
        ++at_;
        while (!accept('}')) {
            const auto before = at_;
            const auto name = identifier();
            if (!name.empty() && accept('=')) {
                auto one = value(depth + 1);
                if (!one) return std::nullopt;
                out.named.insert_or_assign(name, std::move(*one));
            } else {
                at_ = before;
                auto one = value(depth + 1);
                if (!one || out.items.size() >= max_items) return std::nullopt;
                out.items.push_back(std::move(*one));
            }
            if (!accept(',') && !accept(';')) {
                if (accept('}')) return out;
                return std::nullopt;
            }
        }
        return out;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

} // namespace

std::optional<LuaCall> parse_lua_call(std::string_view program) { return LuaReader(program).call(); }

} // namespace orrery::importers
