#include "drivers/ssh/template.h"

#include "core/text.h"
#include "core/truncate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace orrery::drivers {

namespace json = boost::json;

namespace {

constexpr std::size_t max_rendered = 4u << 20;

struct TemplatePart {
    enum class Type { text, value, loop, condition } type = Type::text;
    std::string text;     // of a text; the path of the others
    std::string name;     // of a loop's variable; the separator of a join
    bool negated = false; // of a condition
    bool joined = false;  // of a value
    int line = 1;
    std::vector<TemplatePart> body, else_body;
};

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

bool is_path(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
    });
}

class TemplateReader {
public:
    explicit TemplateReader(std::string_view text) : text_(text) {}

    Result<std::vector<TemplatePart>> read() {
        std::string ended_by;
        TRY(auto parts, parts_until(ended_by, 0));
        if (!ended_by.empty()) return wrong(fmt::format("{{% {} %}} ends nothing", ended_by));
        return parts;
    }

private:
    Error wrong(std::string_view message) const {
        return Error{Code::invalid, fmt::format("the template is wrong in line {}: {}", line_, message)};
    }

    /// Until the end of the text, or an end tag, which it returns.
    Result<std::vector<TemplatePart>> parts_until(std::string& ended_by, int depth) {
        std::vector<TemplatePart> parts;
        if (depth > 20) return wrong("nested too deep");
        while (at_ < text_.size()) {
            const auto open = std::min(text_.find("{{", at_), text_.find("{%", at_));
            if (open != at_) plain(parts, open == std::string_view::npos ? text_.size() : open);
            if (at_ >= text_.size()) break;
            const bool value = text_[at_ + 1] == '{';
            const auto close = text_.find(value ? "}}" : "%}", at_ + 2);
            if (close == std::string_view::npos) return wrong("the tag is not closed");
            const auto inside = trimmed(text_.substr(at_ + 2, close - at_ - 2));
            const bool alone = !value && stands_alone(close + 2);
            TemplatePart part;
            part.line = line_;
            at_ = close + 2;
            if (alone) drop_line(parts);
            if (value) {
                part.type = TemplatePart::Type::value;
                TRY(std::ignore, read_value(inside, part));
                parts.push_back(std::move(part));
                continue;
            }
            if (inside == "endfor" || inside == "endif" || inside == "else") {
                ended_by = inside;
                return parts;
            }
            TRY(std::ignore, read_block(inside, part, depth));
            parts.push_back(std::move(part));
        }
        return parts;
    }

    void plain(std::vector<TemplatePart>& parts, std::size_t until) {
        TemplatePart part;
        part.text = text_.substr(at_, until - at_);
        line_ += static_cast<int>(std::count(part.text.begin(), part.text.end(), '\n'));
        at_ = until;
        parts.push_back(std::move(part));
    }

    /// Whether the tag is alone on its line.
    bool stands_alone(std::size_t after) const {
        auto before = at_;
        while (before > 0 && (text_[before - 1] == ' ' || text_[before - 1] == '\t')) --before;
        while (after < text_.size() && (text_[after] == ' ' || text_[after] == '\t')) ++after;
        return (before == 0 || text_[before - 1] == '\n') && after < text_.size() && text_[after] == '\n';
    }
    void drop_line(std::vector<TemplatePart>& parts) {
        at_ = text_.find('\n', at_) + 1;
        ++line_;
        if (parts.empty() || parts.back().type != TemplatePart::Type::text) return;
        auto& text = parts.back().text;
        while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.pop_back();
    }

    Result<Unit> read_value(std::string_view inside, TemplatePart& part) const {
        if (inside.starts_with("join(") && inside.ends_with(')')) {
            const auto arguments = inside.substr(5, inside.size() - 6);
            const auto comma = arguments.find(',');
            const auto separator = comma == std::string_view::npos ? std::string_view() : trimmed(arguments.substr(comma + 1));
            if (separator.size() < 2 || separator.front() != '"' || separator.back() != '"')
                return wrong("write it as in join(list, \", \")");
            part.name = separator.substr(1, separator.size() - 2);
            part.joined = true;
            inside = trimmed(arguments.substr(0, comma));
        }
        if (!is_path(inside)) return wrong(fmt::format("\"{}\" is not the name of a value", truncate(inside, 60)));
        part.text = inside;
        return Unit{};
    }

    Result<Unit> read_block(std::string_view inside, TemplatePart& part, int depth) {
        const int begun = part.line;
        std::string ended_by;
        if (inside.starts_with("for ")) {
            const auto in = inside.find(" in ");
            if (in == std::string_view::npos) return wrong("write it as in {% for x in list %}");
            part.type = TemplatePart::Type::loop;
            part.name = trimmed(inside.substr(4, in - 4));
            part.text = trimmed(inside.substr(in + 4));
            if (!is_path(part.name) || part.name.find('.') != std::string::npos || !is_path(part.text))
                return wrong("write it as in {% for x in list %}");
            TRY(part.body, parts_until(ended_by, depth + 1));
            if (ended_by != "endfor") return wrong(fmt::format("the for of line {} has no {{% endfor %}}", begun));
            return Unit{};
        }
        if (!inside.starts_with("if "))
            return wrong(fmt::format("\"{}\" is not for, endfor, if, else or endif", truncate(inside, 60)));
        part.type = TemplatePart::Type::condition;
        inside = trimmed(inside.substr(3));
        if (inside.starts_with("not ")) {
            part.negated = true;
            inside = trimmed(inside.substr(4));
        }
        if (!is_path(inside)) return wrong(fmt::format("\"{}\" is not the name of a value", truncate(inside, 60)));
        part.text = inside;
        TRY(part.body, parts_until(ended_by, depth + 1));
        if (ended_by == "else") {
            ended_by.clear();
            TRY(part.else_body, parts_until(ended_by, depth + 1));
        }
        if (ended_by != "endif") return wrong(fmt::format("the if of line {} has no {{% endif %}}", begun));
        return Unit{};
    }

    std::string_view text_;
    std::size_t at_ = 0;
    int line_ = 1;
};

class TemplateWriter {
public:
    explicit TemplateWriter(const json::object& values) : values_(&values) {}

    Result<std::string> write(const std::vector<TemplatePart>& parts) {
        TRY(std::ignore, all(parts));
        return std::move(out_);
    }

private:
    const json::value* find(std::string_view path) const {
        const auto first = path.substr(0, path.find('.'));
        const json::value* value = nullptr;
        for (auto at = scopes_.rbegin(); at != scopes_.rend() && value == nullptr; ++at)
            if (at->first == first) value = at->second;
        if (value == nullptr) {
            // A name that contains dots has precedence over a path through objects.
            if (const auto* whole = values_->if_contains(path)) return whole;
            value = values_->if_contains(first);
        }
        path.remove_prefix(std::min(path.size(), first.size() + 1));
        while (value != nullptr && !path.empty()) {
            const auto name = path.substr(0, path.find('.'));
            path.remove_prefix(std::min(path.size(), name.size() + 1));
            const auto* object = value->if_object();
            value = object != nullptr ? object->if_contains(name) : nullptr;
        }
        return value;
    }

    static std::string shown(const json::value& value) {
        if (const auto* text = value.if_string()) return std::string(std::string_view(*text));
        return value.is_null() ? "" : to_json_text(value);
    }

    static bool is_true(const json::value* value) {
        if (value == nullptr || value->is_null()) return false;
        if (const auto* yes = value->if_bool()) return *yes;
        if (const auto* text = value->if_string()) return !text->empty();
        if (const auto* list = value->if_array()) return !list->empty();
        if (const auto* object = value->if_object()) return !object->empty();
        return value->is_number() && value->to_number<double>() != 0;
    }

    Result<Unit> all(const std::vector<TemplatePart>& parts) {
        for (const auto& part : parts) {
            TRY(std::ignore, one(part));
            if (out_.size() > max_rendered) return Error{Code::too_large, "the template becomes longer than 4 MiB"};
        }
        return Unit{};
    }

    Result<Unit> one(const TemplatePart& part) {
        if (part.type == TemplatePart::Type::text) {
            out_ += part.text;
            return Unit{};
        }
        const auto* value = find(part.text);
        if (part.type == TemplatePart::Type::condition) return all(is_true(value) != part.negated ? part.body : part.else_body);
        if (value == nullptr)
            return Error{Code::invalid,
                         fmt::format("the template names \"{}\" in line {}, and the task has no such value", part.text, part.line),
                         "give it under `with`"};
        const auto* list = value->if_array();
        if (part.type == TemplatePart::Type::value && !part.joined) {
            out_ += shown(*value);
            return Unit{};
        }
        if (list == nullptr)
            return Error{Code::invalid,
                         fmt::format("the template needs a list in line {1}, and \"{0}\" is not a list", part.text, part.line)};
        for (std::size_t i = 0; i < list->size(); ++i) {
            if (part.joined) {
                if (i > 0) out_ += part.name;
                out_ += shown((*list)[i]);
                continue;
            }
            scopes_.emplace_back(part.name, &(*list)[i]);
            auto written = all(part.body);
            scopes_.pop_back();
            if (!written.ok()) return written;
        }
        return Unit{};
    }

    const json::object* values_;
    std::vector<std::pair<std::string, const json::value*>> scopes_;
    std::string out_;
};

} // namespace

Result<std::string> render_template(std::string_view text, const json::object& values) {
    TRY(const auto parts, TemplateReader(text).read());
    return TemplateWriter(values).write(parts);
}

Result<int> check_template(std::string_view text) {
    TRY(const auto parts, TemplateReader(text).read());
    return static_cast<int>(parts.size());
}

} // namespace orrery::drivers
