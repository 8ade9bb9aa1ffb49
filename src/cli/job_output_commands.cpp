#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/job_render.h"
#include "cli/render.h"
#include "net/http.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

/// What tasks leave behind: output and artefacts.
namespace orrery::cli {

namespace {

/// Prints the output of a task, piece by piece.
class OutputPrinter {
public:
    explicit OutputPrinter(Invocation& invocation) : streams_(invocation.streams), steps_(invocation.has("steps")) {}

    void print(const json::value& page) {
        for (const auto& piece : list_at(page, "pieces")) {
            const auto stream = text_of(piece, "stream");
            // The text has everything; the steps repeat it in a structured form.
            if ((stream == "step") != steps_) continue;
            if (steps_)
                print_step(text_of(piece, "text"));
            else
                print_text(stream, text_of(piece, "text"));
        }
        streams_.out << std::flush;
    }

private:
    void print_step(const std::string& text) {
        boost::system::error_code failed;
        const auto step = json::parse(text, failed);
        if (failed) return;
        const auto message = printable(text_of(step, "message"));
        streams_.out << fmt::format("[{}] {}: {}{}{}\n", printable(text_of(step, "host")), printable(text_of(step, "name")),
                                    text_of(step, "result"), message.empty() ? "" : ": ", message);
    }

    void print_text(std::string_view stream, std::string text) {
        if (stream == "note") {
            if (text.ends_with('\n')) text.pop_back();
            text = (within_line_ ? "\n(" : "(") + text + ")\n";
        }
        if (stream != "err" && !text.empty()) within_line_ = text.back() != '\n';
        // Line by line: the output of a task must not control the terminal.
        for (std::size_t at = 0; at < text.size();) {
            const auto end = std::min(text.find('\n', at), text.size());
            const auto line = printable(std::string_view(text).substr(at, end - at));
            (stream == "err" ? streams_.err : streams_.out) << line << (end < text.size() ? "\n" : "");
            at = end + 1;
        }
    }

    Streams& streams_;
    bool steps_;
    bool within_line_ = false; ///< the last text on standard output has no newline yet
};

std::string task_query(const Invocation& invocation) {
    auto out = "?task=" + net::percent_encode(invocation.text("TASK"));
    for (const std::string option : {"attempt", "phase"})
        if (invocation.has(option)) out += fmt::format("&{}={}", option, net::percent_encode(invocation.text(option)));
    return out;
}

} // namespace

Result<int> run_job_logs(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    const auto target = job_route(invocation, "output") + task_query(invocation);
    OutputPrinter printer(invocation);
    if (invocation.has("follow")) {
        TRY(auto stream, api->stream("GET", target + "&follow=true"));
        for (;;) {
            TRY(const auto event, stream->next());
            if (!event) return exit_code::ok;
            boost::system::error_code failed;
            const auto page = json::parse(event->data, failed);
            if (!failed) printer.print(page);
        }
    }
    for (std::string from = "0";;) {
        TRY(const auto page, api->get(target + "&from=" + from));
        printer.print(page.body);
        const auto* next = at_path(page.body, "next");
        if (next == nullptr || value_text(*next) == from) return exit_code::ok;
        from = value_text(*next);
    }
}

namespace {

/// The path of an artefact below a folder: FOLDER/NODE/PATH. Node and path come from the server and must not leave the folder.
Result<std::filesystem::path> artefact_path(const std::filesystem::path& folder, const std::string& node, const std::string& path) {
    auto out = folder / node;
    for (const auto& part : std::filesystem::path(path).relative_path()) {
        if (part == ".." || part == ".")
            return Error{Code::invalid, fmt::format("the artefact path {} leaves the folder", printable(path))};
        out /= part;
    }
    if (node.empty() || node.find('/') != node.npos || node.starts_with('.') || out == folder / node)
        return Error{Code::invalid,
                     fmt::format("\"{}\" of node \"{}\" is not the path of a file", printable(path), printable(node))};
    return out;
}

Result<Unit> save_artefact(Api& api, const std::string& target, const std::filesystem::path& file_path) {
    std::error_code error;
    std::filesystem::create_directories(file_path.parent_path(), error);
    TRY(const auto file, AtomicFile::make(file_path.string()));
    TRY(std::ignore, api.download("GET", target, [&](std::string_view piece) -> Result<Unit> { return file->write(piece); }));
    return file->finish();
}

void print_artefacts(Invocation& invocation, const json::array& artefacts) {
    if (artefacts.empty()) {
        if (!invocation.quiet()) invocation.streams.err << "no artefacts\n";
        return;
    }
    Table table({"NODE", "PATH", "SIZE", "SHA256"});
    for (const auto& one : artefacts) {
        const auto message = printable(text_of(one, "message"));
        const auto* size = at_path(one, "size");
        table.add({{printable(text_of(one, "node"))},
                   {printable(text_of(one, "path"))},
                   {size != nullptr && size->is_number() ? readable_size(size->to_number<std::uint64_t>()) : ""},
                   {message.empty() ? text_of(one, "sha256") : message, message.empty() ? Style::plain : Style::yellow}});
    }
    invocation.streams.out << table.render(invocation.streams.width, invocation.streams.colour());
}

} // namespace

Result<int> run_job_artefacts(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->get(job_route(invocation, "artefacts") + task_query(invocation)));
    const auto& artefacts = list_at(answer.body, "artefacts");
    if (!invocation.has("save")) {
        if (!print_structured(invocation, answer.body)) print_artefacts(invocation, artefacts);
        return exit_code::ok;
    }
    // The list belongs to one attempt; a later attempt may have started meanwhile.
    const auto query = "?task=" + net::percent_encode(invocation.text("TASK")) + "&attempt=" + shown_at(answer.body, "attempt");
    bool missing = false;
    for (const auto& one : artefacts) {
        const auto node = text_of(one, "node"), path = text_of(one, "path");
        if (const auto message = text_of(one, "message"); !message.empty()) {
            invocation.streams.err << fmt::format("{}:{} {}\n", printable(node), printable(path), printable(message));
            missing = true;
            continue;
        }
        TRY(const auto file, artefact_path(invocation.text("save"), node, path));
        TRY(std::ignore,
            save_artefact(*api, job_route(invocation, "artefact") + query + "&number=" + shown_at(one, "number"), file));
        if (!invocation.quiet()) invocation.streams.out << printable(file.string()) << '\n';
    }
    return missing ? exit_code::other : exit_code::ok;
}

} // namespace orrery::cli
