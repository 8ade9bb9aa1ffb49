#include "cli/commands.h"
#include "cli/documents.h"
#include "cli/render.h"
#include "core/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <istream>
#include <map>
#include <ostream>
#include <set>

/// apply, diff and delete.
namespace orrery::cli {

namespace {

/// Errors that every further document would have too.
bool is_fatal(const Error& error) {
    return error.code == Code::cancelled || error.code == Code::unauthenticated || error.code == Code::unavailable ||
           error.code == Code::timeout || error.code == Code::no_space;
}

/// The outcomes of several documents, and the exit code that follows from them.
struct Outcomes {
    std::map<std::string, int> counts;
    std::vector<Error> errors;
    bool ended = false;

    void fail(Invocation& invocation, Error error) {
        ++counts["failed"];
        if (error.code != Code::cancelled)
            print_error(invocation.streams.err, error,
                        invocation.streams.err_is_terminal && invocation.streams.variable("NO_COLOR").empty());
        ended = ended || is_fatal(error);
        errors.push_back(std::move(error));
    }
    /// "3 resources: 1 created, 2 unchanged"
    void summarise(Invocation& invocation) const {
        int total = 0;
        std::vector<std::string> parts;
        for (const auto* outcome : {"created", "updated", "removed", "unchanged", "failed", "not tried"})
            if (const auto found = counts.find(outcome); found != counts.end() && found->second > 0) {
                total += found->second;
                parts.push_back(fmt::format("{} {}", found->second, outcome));
            }
        if (total > 1 && !invocation.quiet())
            invocation.streams.err << fmt::format("{} resources: {}{}\n", total, fmt::join(parts, ", "),
                                                  invocation.has("dry-run") ? " (dry run)" : "");
    }
    /// The exit code of the errors if they all have the same; `success` without errors.
    int exit_code(int success) const {
        if (errors.empty()) return success;
        const int first = exit_code_of(errors.front());
        for (const auto& error : errors)
            if (exit_code_of(error) != first) return exit_code::other;
        return first;
    }
};

std::int64_t revision_of(const json::value& object) {
    const auto* value = at_path(object, "revision");
    return value != nullptr && value->is_number() ? value->to_number<std::int64_t>() : 0;
}

/// Did a user write the resource after `revision`? Status updates of the server do not count: they have no event. An event is in
/// the same transaction as its write, so both have the same revision. True if this is unknown.
Result<bool> written_after(Invocation& invocation, Api& api, const FileDocument& document, std::int64_t revision) {
    TRY(const auto* kinds, invocation.kinds());
    const auto events = kinds->find("Event");
    if (!events.ok()) return true;
    TRY(const auto answer, api.get(fmt::format("{}?subject={}&order=newest&limit=100", (*events)->route(),
                                               net::percent_encode(fmt::format("{}/{}", document.kind->kind, document.name)))));
    if (const auto* items = at_path(answer.body, "items"); items != nullptr && items->is_array())
        for (const auto& event : items->get_array())
            if (const auto action = text_of(event, "spec.action"); action == "created" || action == "updated")
                return revision_of(event) > revision;
    return true;
}

/// A document that states its revision must not overwrite a later change by another user.
Result<Unit> check_revision(Invocation& invocation, Api& api, const FileDocument& document, const json::value& current) {
    const auto read_at = revision_of(document.value), now = revision_of(current);
    if (read_at == 0 || read_at == now) return Unit{};
    TRY(const bool written, written_after(invocation, api, document, read_at));
    if (!written) return Unit{};
    TRY(auto changes, changes_against_current(api, *document.kind, document.name, document.value));
    if (changes.empty()) return Unit{};
    Error error{Code::conflict,
                fmt::format("changed since revision {} and is at revision {}; applying the document would change", read_at, now),
                fmt::format("read it again with \"orrery get {} {} -o yaml\", or remove `revision` from the file to overwrite it",
                            document.kind->singular(), document.name)};
    error.fields = std::move(changes);
    return error;
}

/// Creates the resource, or replaces exactly the revision that was read; tries again if another write came between.
Result<Answer> put_document(Invocation& invocation, Api& api, const FileDocument& document, const std::string& query) {
    constexpr int attempts = 5;
    for (int attempt = 1;; ++attempt) {
        net::Headers headers;
        auto current = api.get(document.kind->route(document.name));
        if (current.ok()) {
            TRY(std::ignore, check_revision(invocation, api, document, current->body));
        }
        if (current.ok())
            headers.set("If-Match", std::string(current->headers.get("ETag")));
        else if (current.error().code == Code::not_found)
            headers.set("If-None-Match", "*");
        else if (current.error().code != Code::unsupported)
            return std::move(current).error(); // a kind may allow writes but not reads
        if (headers.has("If-Match") && headers.get("If-Match").empty()) headers = {};
        auto answer = api.call("PUT", document.kind->route(document.name) + query, document.value, headers);
        const bool raced = !answer.ok() && (api.last_status() == 412 || (api.last_status() == 409 && headers.has("If-None-Match")));
        if (!raced || attempt == attempts) return answer;
    }
}

/// Does the text name the resource, as in `there is no Service web` or `refers to Service "web"`?
bool names_resource(std::string_view text, std::string_view kind, std::string_view name) {
    for (const auto& form : {fmt::format("{} {}", kind, name), fmt::format("{} \"{}\"", kind, name)})
        for (auto at = text.find(form); at != text.npos; at = text.find(form, at + 1)) {
            const auto next = at + form.size() < text.size() ? text[at + form.size()] : ' ';
            if (std::string_view(" ,;.:)").find(next) != std::string_view::npos) return true;
        }
    return false;
}

/// In a dry run: are all errors of a document about resources that earlier documents of the run would create? Some references, such
/// as the services of a job, are not declared in the kind, so the messages of the server decide.
bool waits_for_others(const Error& error, const std::vector<const FileDocument*>& would_be) {
    return !error.fields.empty() && std::all_of(error.fields.begin(), error.fields.end(), [&](const FieldError& field) {
        return std::any_of(would_be.begin(), would_be.end(), [&](const FileDocument* other) {
            return names_resource(field.message, other->kind->kind, other->name);
        });
    });
}

/// `check_revision` for a dry run.
Result<Unit> check_stated_revision(Invocation& invocation, Api& api, const FileDocument& document) {
    if (revision_of(document.value) == 0) return Unit{};
    const auto current = api.get(document.kind->route(document.name));
    return current.ok() ? check_revision(invocation, api, document, current->body) : Unit{};
}

/// The response of a dry run. If the document only needs earlier documents of the run, a response is made up.
Result<json::value> try_document(Invocation& invocation, Api& api, const FileDocument& document, const std::string& query,
                                 const std::vector<const FileDocument*>& would_be) {
    auto answer = api.call("PUT", document.kind->route(document.name) + query, document.value);
    if (answer.ok()) return std::move(answer->body);
    if (!waits_for_others(answer.error(), would_be)) return std::move(answer).error();
    auto current = api.get(document.kind->route(document.name));
    if (!current.ok() && current.error().code != Code::not_found) return std::move(current).error();
    return json::value(
        json::object{{"outcome", current.ok() ? "updated" : "created"}, {"changes", json::array{}}, {"dry_run", true}});
}

struct ReadDocuments {
    std::vector<FileDocument> documents;
    Outcomes outcomes; ///< of documents that are not valid
};

Result<ReadDocuments> read_all_documents(Invocation& invocation) {
    if (!invocation.has("file")) return invocation.usage_error("the file is missing", "give -f FILE; - reads standard input");
    TRY(const auto* kinds, invocation.kinds());
    ReadDocuments read;
    std::vector<Error> errors;
    read.documents = read_documents(invocation.streams, invocation.all("file"), *kinds, errors);
    for (auto& error : errors) read.outcomes.fail(invocation, std::move(error));
    return read;
}

std::string bold_title(const KindView& kind, std::string_view name, bool colour) {
    return paint(printable(kind.title(name)), Style::bold, colour);
}

} // namespace

Result<std::vector<FieldError>> changes_against_current(Api& api, const KindView& kind, const std::string& name,
                                                        const json::value& document) {
    TRY(const auto tried, api.call("PUT", kind.route(name) + "?dry_run=true", document));
    std::vector<FieldError> out;
    const auto* changes = at_path(tried.body, "changes");
    if (changes == nullptr || !changes->is_array()) return out;
    for (const auto& change : changes->get_array()) {
        const auto shown = [&](std::string_view which) {
            const auto* value = at_path(change, which);
            return value == nullptr || value->is_null() ? std::string("(absent)") : value_text(*value);
        };
        out.push_back({text_of(change, "path"), fmt::format("{} → {}", shown("before"), shown("after"))});
    }
    return out;
}

std::string write_query(const Invocation& invocation) {
    std::string out;
    if (invocation.has("dry-run")) out += "dry_run=true";
    if (invocation.has("reason"))
        out += fmt::format("{}reason={}", out.empty() ? "" : "&", net::percent_encode(invocation.text("reason")));
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
        for (const auto& [field, value] : once->get_object()) {
            streams.err << fmt::format("the {} of {} is shown only once:\n", std::string_view(field), kind.title(name));
            streams.out << value_text(value) << '\n';
        }
}

Result<int> run_apply(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(auto read, read_all_documents(invocation));
    const auto query = write_query(invocation);
    auto& outcomes = read.outcomes;
    std::vector<const FileDocument*> would_be;
    for (const auto& document : read.documents) {
        if (outcomes.ended) {
            ++outcomes.counts["not tried"];
            continue;
        }
        Result<json::value> answer;
        if (invocation.has("dry-run")) {
            if (auto checked = check_stated_revision(invocation, *api, document); checked.ok())
                answer = try_document(invocation, *api, document, query, would_be);
            else
                answer = std::move(checked).error();
        } else {
            auto put = put_document(invocation, *api, document, query);
            if (put.ok())
                answer = std::move(put->body);
            else
                answer = std::move(put).error();
        }
        if (!answer.ok()) {
            outcomes.fail(invocation, document.about(std::move(answer).error()));
            continue;
        }
        would_be.push_back(&document);
        ++outcomes.counts[text_of(*answer, "outcome")];
        print_outcome(invocation, *document.kind, document.name, *answer);
    }
    outcomes.summarise(invocation);
    return outcomes.exit_code(exit_code::ok);
}

Result<int> run_diff(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(auto read, read_all_documents(invocation));
    auto& outcomes = read.outcomes;
    auto& out = invocation.streams.out;
    const bool colour = invocation.streams.colour();
    std::vector<const FileDocument*> would_be;
    bool differs = false;
    for (const auto& document : read.documents) {
        if (outcomes.ended) break;
        auto answer = try_document(invocation, *api, document, "?dry_run=true", would_be);
        if (!answer.ok()) {
            outcomes.fail(invocation, document.about(std::move(answer).error()));
            continue;
        }
        would_be.push_back(&document);
        const auto outcome = text_of(*answer, "outcome");
        ++outcomes.counts[outcome];
        if (outcome == "unchanged") continue;
        differs = true;
        out << bold_title(*document.kind, document.name, colour) << " would be "
            << paint(outcome, style_of_outcome(outcome), colour) << '\n';
        auto changes = changes_of(*answer);
        if (changes.empty()) changes = additions_of(*document.kind, document.value);
        for (const auto& change : changes) {
            const auto style = change.sign == '+' ? Style::green : change.sign == '-' ? Style::red : Style::yellow;
            out << paint(fmt::format("  {} {}", change.sign, printable(change.text)), style, colour) << '\n';
        }
    }
    return outcomes.exit_code(differs ? exit_code::differences : exit_code::ok);
}

namespace {

/// Resources to delete.
using Targets = std::vector<std::pair<const KindView*, std::string>>;

/// The resources of a kind that -l selects, after confirmation by the user.
Result<Targets> select_by_labels(Invocation& invocation, Api& api, const KindView& kind) {
    const auto labels = invocation.text("labels");
    TRY(const auto objects, list_all(api, kind, "&labels=" + net::percent_encode(labels), 0));
    Targets out;
    for (const auto& object : objects) out.emplace_back(&kind, text_of(object, "name"));
    auto& streams = invocation.streams;
    if (out.empty() && !invocation.quiet()) streams.err << fmt::format("no {} match {}\n", kind.plural, printable(labels));
    if (out.empty() || invocation.has("yes") || invocation.has("dry-run")) return out;
    if (!streams.in_is_terminal)
        return Error{
            Code::invalid,
            fmt::format("-l {} selects {} {}, and there is no terminal for the confirmation", labels, out.size(), kind.plural),
            "check the selection with --dry-run, then use --yes"};
    for (const auto& [ignored, name] : out) streams.err << "  " << printable(kind.title(name)) << '\n';
    streams.err << fmt::format("delete {} {}? [y/N] ", out.size(), kind.plural) << std::flush;
    std::string line;
    std::getline(streams.in, line);
    if (line == "y" || line == "Y" || line == "yes") return out;
    streams.err << "nothing was deleted\n";
    return Error{Code::cancelled, "not confirmed"};
}

/// "node/n1 secret/k1", or a kind and names.
Result<Targets> parse_targets(Invocation& invocation, const KindCatalog& kinds, const std::vector<std::string>& given) {
    Targets out;
    if (given[0].find('/') != std::string::npos) {
        for (const auto& path : given) {
            const auto slash = path.find('/');
            if (slash == std::string::npos)
                return invocation.usage_error(fmt::format("\"{}\" is not KIND/NAME", path),
                                              "give KIND/NAME for all, or one kind and then names");
            TRY(const auto* kind, kinds.find(path.substr(0, slash)));
            out.emplace_back(kind, path.substr(slash + 1));
        }
        return out;
    }
    TRY(const auto* kind, kinds.find(given[0]));
    if (given.size() == 1)
        return invocation.usage_error(fmt::format("the names of the {} to delete are missing", kind->plural),
                                      fmt::format("orrery delete {} NAME...", kind->singular()));
    for (std::size_t i = 1; i < given.size(); ++i) out.emplace_back(kind, given[i]);
    return out;
}

/// The resources that the command line selects: files, labels or names.
Result<Targets> select_targets(Invocation& invocation, Api& api, Outcomes& outcomes) {
    const auto given = invocation.all("RESOURCE");
    if (given.empty() == invocation.all("file").empty())
        return invocation.usage_error("delete needs a kind with names or labels, or files",
                                      "orrery delete node n1, orrery delete nodes -l rack=12, or orrery delete -f site.yaml");
    TRY(const auto* kinds, invocation.kinds());
    if (invocation.has("labels")) {
        if (given.size() != 1 || given[0].find('/') != std::string::npos)
            return invocation.usage_error("with -l, delete takes one kind and no names", "orrery delete nodes -l rack=12");
        TRY(const auto* kind, kinds->find(given[0]));
        return select_by_labels(invocation, api, *kind);
    }
    if (!given.empty()) return parse_targets(invocation, *kinds, given);
    TRY(auto read, read_all_documents(invocation));
    outcomes = std::move(read.outcomes);
    Targets out;
    // In the reverse order of apply: resources that refer to others first.
    for (auto at = read.documents.rbegin(); at != read.documents.rend(); ++at) out.emplace_back(at->kind, at->name);
    return out;
}

} // namespace

Result<int> run_delete(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    Outcomes outcomes;
    TRY(const auto targets, select_targets(invocation, *api, outcomes));
    // A resource in a file may be absent: the result is what the user asks for.
    const bool may_be_absent = invocation.has("file") || invocation.has("ignore-not-found");
    for (const auto& [kind, name] : targets) {
        if (outcomes.ended) {
            ++outcomes.counts["not tried"];
            continue;
        }
        auto answer = api->call("DELETE", kind->route(name) + write_query(invocation));
        if (!answer.ok() && answer.error().code == Code::not_found && may_be_absent) {
            ++outcomes.counts["unchanged"];
            if (!invocation.quiet()) invocation.streams.out << printable(kind->title(name)) << " does not exist\n";
        } else if (!answer.ok()) {
            outcomes.fail(invocation, std::move(answer).error().within(kind->title(name)));
        } else {
            ++outcomes.counts["removed"];
            print_outcome(invocation, *kind, name,
                          answer->body.is_object() ? answer->body : json::value(json::object{{"outcome", "removed"}}));
        }
    }
    outcomes.summarise(invocation);
    return outcomes.exit_code(exit_code::ok);
}

} // namespace orrery::cli
