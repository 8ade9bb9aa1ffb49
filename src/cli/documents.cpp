#include "cli/documents.h"

#include "cli/render.h"
#include "cli/session.h"
#include "core/text.h"
#include "core/yaml_lines.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

namespace orrery::cli {

namespace {

bool is_document_file(const std::filesystem::path& path) {
    const auto extension = path.extension();
    return extension == ".yaml" || extension == ".yml" || extension == ".json";
}

/// The file, or the files of a folder.
Result<std::vector<std::string>> expand(const std::string& path) {
    std::error_code error;
    if (path == "-" || !std::filesystem::is_directory(path, error)) return std::vector<std::string>{path};
    std::vector<std::string> out;
    using Walk = std::filesystem::recursive_directory_iterator;
    for (auto at = Walk(path, error); !error && at != Walk(); at.increment(error)) {
        const bool hidden = at->path().filename().string().starts_with('.');
        if (hidden && at->is_directory(error)) at.disable_recursion_pending();
        if (!hidden && at->is_regular_file(error) && is_document_file(at->path())) out.push_back(at->path().string());
    }
    if (error) return Error{Code::invalid, fmt::format("{} cannot be read: {}", path, error.message())};
    if (out.empty()) return Error{Code::invalid, fmt::format("{} has no *.yaml, *.yml or *.json files", path)};
    std::sort(out.begin(), out.end());
    return out;
}

class DocumentReader {
public:
    DocumentReader(const KindCatalog& kinds, std::vector<Error>& errors) : kinds_(kinds), errors_(errors) {}

    void add(const std::string& location, json::value value, const std::shared_ptr<const std::string>& text, int line) {
        if (value.is_null()) return; // an empty document, as after a last "---"
        if (!value.is_object()) return fail(location, "is not a map with kind, name and spec");
        const auto kind = text_of(value, "kind");
        if (kind.empty()) return fail(location, "has no kind", "add a line such as \"kind: Node\"");
        if (auto* items = value.get_object().if_contains("items");
            kind.ends_with("List") && items != nullptr && items->is_array()) {
            for (auto& item : items->get_array()) add(location, std::move(item), nullptr, line);
            return;
        }
        auto found = kinds_.find(kind);
        if (!found.ok()) {
            errors_.push_back(std::move(found).error().within(location));
            errors_.back().code = Code::invalid; // the file is wrong; no resource was looked up
            return;
        }
        const auto name = text_of(value, "name");
        if (name.empty()) return fail_without_name(location, kind, value);
        const auto [earlier, fresh] = seen_.emplace((*found)->title(name), location);
        if (!fresh) return fail(location, fmt::format("repeats {}, which is in {}", earlier->first, earlier->second));
        // The server requires the exact spelling of the kind.
        value.get_object()["kind"] = (*found)->kind;
        out_.push_back({location, *found, name, std::move(value), text, line});
    }

    void fail(const std::string& location, std::string_view message, std::string remedy = {}) {
        errors_.push_back({Code::invalid, fmt::format("{} {}", location, message), std::move(remedy)});
    }

    void fail_without_name(const std::string& location, std::string_view kind, const json::value& value) {
        const auto* given = at_path(value, "name");
        if (given != nullptr && !given->is_string() && !given->is_null())
            return fail(location, fmt::format("is a {} whose name is not a string", kind),
                        fmt::format("write it in quotes: name: \"{}\"", value_text(*given)));
        if (at_path(value, "metadata") != nullptr)
            return fail(location, fmt::format("is a {} without a name: it has \"metadata\", as in Kubernetes", kind),
                        "put name and labels at the top level, beside kind and spec, and omit apiVersion");
        fail(location, fmt::format("is a {} without a name", kind), "add a line such as \"name: n1\"");
    }

    std::vector<FileDocument> in_order() {
        std::map<const KindView*, std::size_t> rank;
        for (const auto* kind : kinds_.in_order()) rank.emplace(kind, rank.size());
        std::vector<std::vector<FileDocument>> by_rank(rank.size());
        for (auto& document : out_) by_rank[rank[document.kind]].push_back(std::move(document));
        std::vector<FileDocument> ordered;
        for (auto& documents : by_rank) std::move(documents.begin(), documents.end(), std::back_inserter(ordered));
        return ordered;
    }

private:
    const KindCatalog& kinds_;
    std::vector<Error>& errors_;
    std::map<std::string, std::string> seen_;
    std::vector<FileDocument> out_;
};

} // namespace

Error FileDocument::about(Error error) const {
    std::vector<std::string> paths;
    for (const auto& field : error.fields) paths.push_back(field.path);
    const bool about_options =
        !paths.empty() && std::all_of(paths.begin(), paths.end(), [](const std::string& path) { return path.starts_with("--"); });
    if (about_options) return error; // of the command line, not of the document
    const auto lines = text ? yaml_lines(*text, line, paths) : std::vector<std::optional<int>>(paths.size());
    const auto file = location.substr(0, location.rfind(':'));
    std::vector<std::pair<int, std::size_t>> order; // of the lines in the file
    for (std::size_t i = 0; i < paths.size(); ++i) {
        if (lines[i]) error.fields[i].path = fmt::format("{}:{}: {}", file, *lines[i], paths[i]);
        order.emplace_back(lines[i].value_or(0), i);
    }
    std::sort(order.begin(), order.end());
    std::vector<FieldError> sorted;
    for (const auto& [at, i] : order) sorted.push_back(std::move(error.fields[i]));
    error.fields = std::move(sorted);
    // A message that repeats its only field is printed without the field, so the location is the line of the field.
    const bool repeats_field = error.fields.size() == 1 && error.message.find(error.fields[0].message) != std::string::npos;
    const auto shown = repeats_field && lines[0] ? fmt::format("{}:{}", file, *lines[0]) : location;
    return std::move(error).within(fmt::format("{} ({})", kind->title(name), shown));
}

std::vector<FileDocument> read_documents(const Streams& streams, const std::vector<std::string>& paths, const KindCatalog& kinds,
                                         std::vector<Error>& errors) {
    DocumentReader reader(kinds, errors);
    std::set<std::string> read;
    for (const auto& path : paths) {
        auto files = expand(path);
        if (!files.ok()) {
            errors.push_back(std::move(files).error());
            continue;
        }
        for (const auto& file : *files) {
            if (!read.insert(file).second) continue;
            const auto shown = file == "-" ? std::string("standard input") : file;
            auto text = read_file(streams, file, max_text_size);
            if (!text.ok()) {
                errors.push_back(std::move(text).error());
                continue;
            }
            auto documents = parse_yaml(*text);
            if (!documents.ok()) {
                errors.push_back(std::move(documents).error().within(shown));
                continue;
            }
            if (documents->empty()) reader.fail(shown, "has no documents");
            const auto whole = std::make_shared<const std::string>(std::move(*text));
            for (auto& document : *documents)
                reader.add(fmt::format("{}:{}", shown, document.line), std::move(document.value), whole, document.line);
        }
    }
    return reader.in_order();
}

} // namespace orrery::cli
