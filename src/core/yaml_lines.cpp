#include "core/yaml_lines.h"

#include "core/text.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <exception>
#include <sstream>
#include <stdexcept>

namespace orrery {

namespace {

/// Is `part` the beginning of `path`, up to the end of a step?
bool leads_to(std::string_view part, std::string_view path) {
    return path.starts_with(part) &&
           (part.empty() || path.size() == part.size() || path[part.size()] == '.' || path[part.size()] == '[');
}

/// Follows the parser through one document and notes where the wanted paths are.
class LineFinder final : public YAML::EventHandler {
public:
    LineFinder(int document_line, const std::vector<std::string>& paths)
        : document_line_(document_line), paths_(paths), found_(paths.size()), length_(paths.size(), 0) {}

    std::vector<std::optional<int>> take() { return std::move(found_); }

    void OnDocumentStart(const YAML::Mark& mark) override {
        if (mark.pos == began_at_) throw std::runtime_error("the parser makes no progress"); // see YamlBuilder
        began_at_ = mark.pos;
        inside_ = mark.line + 1 == document_line_;
        levels_.clear();
    }
    void OnDocumentEnd() override { inside_ = false; }
    void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { value(mark); }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { value(mark); }
    void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t, const std::string& text) override {
        if (!levels_.empty() && levels_.back().is_map && !levels_.back().has_key) {
            levels_.back().has_key = true;
            levels_.back().key = text;
            levels_.back().key_line = mark.line + 1;
            return;
        }
        value(mark);
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
        levels_.push_back({value(mark), false});
    }
    void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
        levels_.push_back({value(mark), true});
    }
    void OnSequenceEnd() override { levels_.pop_back(); }
    void OnMapEnd() override { levels_.pop_back(); }

private:
    struct Level {
        std::string path;
        bool is_map = false;
        bool has_key = false;
        std::string key{};
        int key_line = 0;
        std::size_t next = 0; ///< of a sequence
    };

    /// The path of the next value.
    std::string value(const YAML::Mark& mark) {
        if (levels_.size() > max_depth) throw std::runtime_error("too deep");
        std::string path;
        int line = mark.line + 1;
        if (!levels_.empty()) {
            auto& level = levels_.back();
            if (level.is_map) {
                path = level.path.empty() ? level.key : fmt::format("{}.{}", level.path, level.key);
                line = level.key_line;
                level.has_key = false;
            } else {
                path = fmt::format("{}[{}]", level.path, level.next++);
            }
        }
        if (!inside_) return path;
        for (std::size_t i = 0; i < paths_.size(); ++i)
            if (leads_to(path, paths_[i]) && (!found_[i] || path.size() > length_[i])) {
                found_[i] = line;
                length_[i] = path.size();
            }
        return path;
    }

    int document_line_;
    const std::vector<std::string>& paths_;
    std::vector<std::optional<int>> found_;
    std::vector<std::size_t> length_;
    std::vector<Level> levels_;
    int began_at_ = -1;
    bool inside_ = false;
};

} // namespace

std::vector<std::optional<int>> yaml_lines(std::string_view text, int document_line, const std::vector<std::string>& paths) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    LineFinder finder(document_line, paths);
    try {
        std::istringstream stream{std::string(text)};
        YAML::Parser parser(stream);
        while (parser.HandleNextDocument(finder)) {
        }
    } catch (const std::exception&) {
        return std::vector<std::optional<int>>(paths.size()); // for example JSON with tabs: messages then have no lines
    }
    return finder.take();
}

} // namespace orrery
