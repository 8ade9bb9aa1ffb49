#include "cli/commands.h"
#include "cli/render.h"
#include "cli/whole_file.h"
#include "core/text.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <ostream>

/// The store as a whole: through the server, and without one.
namespace orrery::cli {

namespace {

/// Progress that moves on a terminal, and is silent elsewhere.
class ProgressLine {
public:
    explicit ProgressLine(Invocation& invocation)
        : err_(invocation.streams.err), shown_(invocation.streams.err_is_terminal && !invocation.quiet()) {}
    ~ProgressLine() {
        if (drawn_) err_ << "\r\x1b[K" << std::flush;
    }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    void say(std::string_view text) {
        if (!shown_) return;
        err_ << "\r\x1b[K" << text << std::flush;
        drawn_ = true;
    }

private:
    std::ostream& err_;
    bool shown_, drawn_ = false;
};

std::int64_t number_of(const json::value& object, std::string_view name) {
    const auto* value = at_path(object, name);
    return value != nullptr && value->is_number() ? value->to_number<std::int64_t>() : 0;
}

} // namespace

Result<int> run_store_status(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->get("/v1/store"));
    auto& out = invocation.streams.out;
    const auto form = invocation.text("output", "table");
    if (form == "json")
        out << to_pretty_json(answer.body) << '\n';
    else if (form == "yaml")
        out << to_yaml(answer.body);
    else if (answer.body.is_object())
        for (const auto& [name, value] : answer.body.get_object())
            out << fmt::format("{:<10} {}\n", std::string_view(name), printable(value_text(value)));
    return exit_code::ok;
}

Result<int> run_store_backup(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    const auto path = invocation.text("FILE");
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored) && !invocation.has("force"))
        return Error{Code::conflict, fmt::format("{} is there already, and nothing was done", path),
                     "name another file, or overwrite it with --force"};
    TRY(const auto file, WholeFile::make(path));
    std::uint64_t taken = 0;
    std::string revision;
    {
        ProgressLine progress(invocation);
        progress.say("the server prepares the backup");
        TRY(const auto headers, api->download("POST", "/v1/store/backup", [&](std::string_view piece) -> Result<Unit> {
            TRY(std::ignore, file->write(piece));
            taken += piece.size();
            progress.say(fmt::format("{} received", readable_size(taken)));
            return Unit{};
        }));
        revision = headers.get("X-Revision");
    }
    if (taken == 0) return Error{Code::internal, "the server sent an empty backup"};
    TRY(std::ignore, file->finish());
    if (!invocation.quiet())
        invocation.streams.out << fmt::format("{} has the store as of revision {} ({}); \"orrery store verify {}\" checks it\n",
                                              path, revision.empty() ? "?" : revision, readable_size(taken), path);
    return exit_code::ok;
}

Result<int> run_store_migrate(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    const auto to = invocation.text("to");
    if (to.empty()) return Error{Code::invalid, "migrate needs --to", "orrery store migrate --to etcd://host:2379"};
    TRY(const auto stream, api->stream("POST", "/v1/store/migrate", json::object{{"to", to}}));
    ProgressLine progress(invocation);
    for (;;) {
        TRY(const auto event, stream->next());
        if (!event)
            return Error{Code::unavailable, "the server ended the migration without saying how it went",
                         "the old store stays as it is: look at the server's log"};
        boost::system::error_code failed;
        const auto data = json::parse(event->data, failed);
        if (failed) return Error{Code::internal, "the server sent an event that is not JSON"};
        if (event->event == "error")
            return Error{code_named(text_of(data, "code")), text_of(data, "detail"), text_of(data, "remedy")};
        if (event->event == "progress") {
            const auto done = number_of(data, "done"), total = number_of(data, "total");
            progress.say(total > 0 ? fmt::format("{} of {} keys ({} %)", done, total, done * 100 / total)
                                   : fmt::format("{} keys", done));
        }
        if (event->event != "done") continue;
        progress.say("");
        invocation.streams.out << fmt::format("{} keys moved to {}, digest {}\n", number_of(data, "keys"),
                                              printable(text_of(data, "to").empty() ? to : text_of(data, "to")),
                                              printable(text_of(data, "digest")));
        if (!invocation.quiet())
            invocation.streams.err << fmt::format(
                "the server goes on there by itself; set store.url to {} in its configuration all the same\n", to);
        return exit_code::ok;
    }
}

Result<int> run_store_verify(Invocation& invocation) {
    if (!invocation.application.offline.verify) return Error{Code::unsupported, "this program cannot check backups"};
    return invocation.application.offline.verify(invocation.rest, invocation.streams);
}

Result<int> run_store_restore(Invocation& invocation) {
    if (!invocation.application.offline.restore) return Error{Code::unsupported, "this program cannot restore backups"};
    return invocation.application.offline.restore(invocation.rest, invocation.streams);
}

} // namespace orrery::cli
