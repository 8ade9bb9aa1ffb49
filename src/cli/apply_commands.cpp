#include "cli/commands.h"
#include "cli/documents.h"
#include "cli/render.h"
#include "core/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <ostream>
#include <set>

/// apply, diff and delete: from files to the server.
namespace orrery::cli {

namespace {

/// After these there is no use in trying the next document.
bool ends_all(const Error& error) {
    return error.code == Code::cancelled || error.code == Code::unauthenticated || error.code == Code::unavailable ||
           error.code == Code::timeout;
}

/// What became of many documents, and how it ends.
struct Tally {
    std::map<std::string, int> outcomes;
    std::vector<Error> errors;
    bool ended = false;

    int failed() const { return outcomes.contains("failed") ? outcomes.at("failed") : 0; }

    void fail(Invocation& invocation, Error error) {
        ++outcomes["failed"];
        if (error.code != Code::cancelled)
            print_error(invocation.streams.err, error,
                        invocation.streams.err_is_terminal && invocation.streams.variable("NO_COLOR").empty());
        ended = ended || ends_all(error);
        errors.push_back(std::move(error));
    }
    /// "3 resources: 1 created, 2 unchanged"
    void summarise(Invocation& invocation) const {
        int total = 0;
        std::vector<std::string> parts;
        for (const auto* word : {"created", "updated", "removed", "unchanged", "failed", "not tried"})
            if (const auto found = outcomes.find(word); found != outcomes.end() && found->second > 0) {
                total += found->second;
                parts.push_back(fmt::format("{} {}", found->second, word));
            }
        if (total > 1 && !invocation.quiet())
            invocation.streams.err << fmt::format("{} resources: {}\n", total, fmt::join(parts, ", "));
    }
    /// The code all errors have in common.
    int exit_code(int otherwise) const {
        if (errors.empty()) return otherwise;
        const int first = exit_code_of(errors.front());
        for (const auto& error : errors)
            if (exit_code_of(error) != first) return exit_code::other;
        return first;
    }
};

Error about(const FileDocument& document, Error error) {
    return std::move(error).within(fmt::format("{} ({})", document.kind->title(document.name), document.place));
}

/// Creates it, or replaces exactly the version that was read; once more from the start when somebody else was faster.
Result<Answer> put_document(Api& api, const FileDocument& document, const std::string& query) {
    constexpr int attempts = 5;
    for (int attempt = 1;; ++attempt) {
        net::Headers headers;
        auto current = api.get(document.kind->route(document.name));
        if (current.ok())
            headers.set("If-Match", std::string(current->headers.get("ETag")));
        else if (current.error().code == Code::not_found)
            headers.set("If-None-Match", "*");
        else if (current.error().code != Code::unsupported)
            return std::move(current).error(); // a kind that cannot be read can still be written
        if (headers.has("If-Match") && headers.get("If-Match").empty()) headers = {};
        auto answer = api.call("PUT", document.kind->route(document.name) + query, document.value, headers);
        const bool raced = !answer.ok() && (api.last_status() == 412 || (api.last_status() == 409 && headers.has("If-None-Match")));
        if (!raced || attempt == attempts) return answer;
    }
}

/// Whether all that is wrong with a document that was only tried is that it refers to others which would be made first.
bool waits_for_others(const FileDocument& document, const Error& error, const std::set<std::string>& would_be,
                      const KindCatalog& kinds) {
    if (error.fields.empty()) return false;
    for (const auto& field : error.fields) {
        const auto* declared = document.kind->field(field.path);
        if (declared == nullptr || declared->reference.empty()) return false;
        const auto other = kinds.find(declared->reference);
        const auto name = text_of(document.value, field.path);
        if (!other.ok() || name.empty() || !would_be.contains((*other)->title(name))) return false;
    }
    return true;
}

/// The answer of a dry run, or one made up where the document only waits for others of the same run.
Result<json::value> try_document(Invocation& invocation, Api& api, const FileDocument& document, const std::string& query,
                                 const std::set<std::string>& would_be) {
    auto answer = api.call("PUT", document.kind->route(document.name) + query, document.value);
    if (answer.ok()) return std::move(answer->body);
    TRY(const auto* kinds, invocation.kinds());
    if (!waits_for_others(document, answer.error(), would_be, *kinds)) return std::move(answer).error();
    auto current = api.get(document.kind->route(document.name));
    if (!current.ok() && current.error().code != Code::not_found) return std::move(current).error();
    return json::value(
        json::object{{"outcome", current.ok() ? "updated" : "created"}, {"changes", json::array{}}, {"dry_run", true}});
}

struct Read {
    std::vector<FileDocument> documents;
    Tally tally;
};

Result<Read> read_all_documents(Invocation& invocation) {
    TRY(const auto* kinds, invocation.kinds());
    Read read;
    std::vector<Error> errors;
    read.documents = read_documents(invocation.streams, invocation.all("file"), *kinds, errors);
    for (auto& error : errors) read.tally.fail(invocation, std::move(error));
    return read;
}

std::string path_and_name(const KindView& kind, std::string_view name, bool colour) {
    return paint(printable(kind.title(name)), Style::bold, colour);
}

} // namespace

std::string write_query(const Invocation& invocation) {
    std::string out;
    if (invocation.has("dry-run")) out += "dry_run=true";
    if (invocation.has("because"))
        out += fmt::format("{}because={}", out.empty() ? "" : "&", net::percent_encode(invocation.text("because")));
    return out.empty() ? out : "?" + out;
}

void print_outcome(Invocation& invocation, const KindView& kind, std::string_view name, const json::value& answer) {
    auto& streams = invocation.streams;
    const bool colour = streams.colour();
    const auto outcome = text_of(answer, "outcome");
    if (!invocation.quiet()) {
        streams.out << printable(kind.title(name)) << ' ' << paint(outcome, style_of_outcome(outcome), colour);
        if (const auto changes = changes_of(answer); outcome == "updated" && !changes.empty())
            streams.out << " (" << changes_line(changes) << ')';
        if (invocation.has("dry-run")) streams.out << " (dry run)";
        streams.out << '\n';
    }
    if (const auto* once = at_path(answer, "once"); once != nullptr && once->is_object())
        for (const auto& [what, value] : once->get_object()) {
            streams.err << fmt::format("the {} of {} is shown this once:\n", std::string_view(what), kind.title(name));
            streams.out << value_text(value) << '\n';
        }
}

Result<int> run_apply(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(auto read, read_all_documents(invocation));
    const auto query = write_query(invocation);
    auto& tally = read.tally;
    std::set<std::string> would_be;
    for (const auto& document : read.documents) {
        if (tally.ended) {
            ++tally.outcomes["not tried"];
            continue;
        }
        Result<json::value> answer;
        if (invocation.has("dry-run")) {
            answer = try_document(invocation, *api, document, query, would_be);
        } else {
            auto put = put_document(*api, document, query);
            if (put.ok())
                answer = std::move(put->body);
            else
                answer = std::move(put).error();
        }
        if (!answer.ok()) {
            tally.fail(invocation, about(document, std::move(answer).error()));
            continue;
        }
        would_be.insert(document.kind->title(document.name));
        ++tally.outcomes[text_of(*answer, "outcome")];
        print_outcome(invocation, *document.kind, document.name, *answer);
    }
    tally.summarise(invocation);
    return tally.exit_code(exit_code::ok);
}

Result<int> run_diff(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(auto read, read_all_documents(invocation));
    auto& tally = read.tally;
    auto& out = invocation.streams.out;
    const bool colour = invocation.streams.colour();
    std::set<std::string> would_be;
    bool differs = false;
    for (const auto& document : read.documents) {
        if (tally.ended) break;
        auto answer = try_document(invocation, *api, document, "?dry_run=true", would_be);
        if (!answer.ok()) {
            tally.fail(invocation, about(document, std::move(answer).error()));
            continue;
        }
        would_be.insert(document.kind->title(document.name));
        const auto outcome = text_of(*answer, "outcome");
        ++tally.outcomes[outcome];
        if (outcome == "unchanged") continue;
        differs = true;
        out << path_and_name(*document.kind, document.name, colour) << " would be "
            << paint(outcome, style_of_outcome(outcome), colour) << '\n';
        auto changes = changes_of(*answer);
        if (changes.empty()) changes = additions_of(*document.kind, document.value);
        for (const auto& change : changes) {
            const auto style = change.sign == '+' ? Style::green : change.sign == '-' ? Style::red : Style::yellow;
            out << paint(fmt::format("  {} {}", change.sign, printable(change.text)), style, colour) << '\n';
        }
    }
    return tally.exit_code(differs ? exit_code::differences : exit_code::ok);
}

Result<int> run_delete(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    const auto words = invocation.all("WHAT");
    if (words.empty() == invocation.all("file").empty())
        return Error{Code::invalid, "delete needs either a kind and names, or files",
                     "orrery delete node n1, or orrery delete -f site.yaml"};
    std::vector<std::pair<const KindView*, std::string>> doomed;
    Tally tally;
    if (words.empty()) {
        TRY(auto read, read_all_documents(invocation));
        tally = std::move(read.tally);
        // What refers goes before what is referred to: the other way round than apply.
        for (auto at = read.documents.rbegin(); at != read.documents.rend(); ++at) doomed.emplace_back(at->kind, at->name);
    } else if (words[0].find('/') != std::string::npos) { // node/n1 secret/k1
        for (const auto& word : words) {
            const auto slash = word.find('/');
            if (slash == std::string::npos)
                return Error{Code::invalid, fmt::format("\"{}\" is not kind/name", word),
                             "write all as kind/name, or one kind and then names"};
            TRY(const auto* kind, kinds->find(word.substr(0, slash)));
            doomed.emplace_back(kind, word.substr(slash + 1));
        }
    } else {
        TRY(const auto* kind, kinds->find(words[0]));
        if (words.size() == 1)
            return Error{Code::invalid, fmt::format("which {}?", kind->plural),
                         fmt::format("orrery delete {} NAME...", kind->singular())};
        for (std::size_t i = 1; i < words.size(); ++i) doomed.emplace_back(kind, words[i]);
    }
    for (const auto& [kind, name] : doomed) {
        if (tally.ended) {
            ++tally.outcomes["not tried"];
            continue;
        }
        auto answer = api->call("DELETE", kind->route(name) + write_query(invocation));
        if (!answer.ok() && answer.error().code == Code::not_found && words.empty()) { // from a file: it is as the user wants it
            ++tally.outcomes["unchanged"];
            if (!invocation.quiet()) invocation.streams.out << printable(kind->title(name)) << " is not there\n";
        } else if (!answer.ok()) {
            tally.fail(invocation, std::move(answer).error().within(kind->title(name)));
        } else {
            ++tally.outcomes["removed"];
            print_outcome(invocation, *kind, name,
                          answer->body.is_object() ? answer->body : json::value(json::object{{"outcome", "removed"}}));
        }
    }
    tally.summarise(invocation);
    return tally.exit_code(exit_code::ok);
}

} // namespace orrery::cli
