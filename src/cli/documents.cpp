#include "cli/documents.h"

#include "cli/session.h"
#include "core/text.h"

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

/// The files a path stands for.
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
    if (out.empty()) return Error{Code::invalid, fmt::format("{} has no *.yaml, *.yml or *.json in it", path)};
    std::sort(out.begin(), out.end());
    return out;
}

class DocumentReader {
public:
    DocumentReader(const KindCatalog& kinds, std::vector<Error>& errors) : kinds_(kinds), errors_(errors) {}

    void take(const std::string& place, json::value value) {
        if (value.is_null()) return; // an empty document, as after a last "---"
        if (!value.is_object()) return fail(place, "is not a map with kind, name and spec");
        const auto kind = text_of(value, "kind");
        if (kind.empty()) return fail(place, "has no kind", "begin it with a line such as \"kind: Node\"");
        if (auto* items = value.get_object().if_contains("items");
            kind.ends_with("List") && items != nullptr && items->is_array()) {
            for (auto& item : items->get_array()) take(place, std::move(item));
            return;
        }
        auto found = kinds_.find(kind);
        if (!found.ok()) {
            errors_.push_back(std::move(found).error().within(place));
            errors_.back().code = Code::invalid; // it is the file that is wrong, nothing was looked for in vain
            return;
        }
        const auto name = text_of(value, "name");
        if (name.empty()) return fail(place, fmt::format("is a {} without a name", kind), "add a line such as \"name: n1\"");
        const auto [earlier, fresh] = seen_.emplace((*found)->title(name), place);
        if (!fresh) return fail(place, fmt::format("has {} again, which is in {} already", earlier->first, earlier->second));
        // The server wants the kind's own spelling.
        value.get_object()["kind"] = (*found)->kind;
        out_.push_back({place, *found, name, std::move(value)});
    }

    void fail(const std::string& place, std::string_view what, std::string remedy = {}) {
        errors_.push_back({Code::invalid, fmt::format("{} {}", place, what), std::move(remedy)});
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
            if (documents->empty()) reader.fail(shown, "has no documents in it");
            for (auto& document : *documents) reader.take(fmt::format("{}:{}", shown, document.line), std::move(document.value));
        }
    }
    return reader.in_order();
}

} // namespace orrery::cli
