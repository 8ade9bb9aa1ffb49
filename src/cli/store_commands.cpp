#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/render.h"
#include "core/text.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <ostream>

/// store status, backup, migrate, verify, restore and reset-admin.
namespace orrery::cli {

namespace {

/// A line of progress that is redrawn on a terminal. Prints nothing to other outputs.
class ProgressLine {
public:
    explicit ProgressLine(Invocation& invocation)
        : err_(invocation.streams.err), shown_(invocation.streams.err_is_terminal && !invocation.quiet()) {}
    ~ProgressLine() {
        if (drawn_) err_ << "\r\x1b[K" << std::flush;
    }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    void show(std::string_view text) {
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

/// Waits until the server has restarted on its new store. `before` is the location of the old store, whose last responses do not
/// count.
Result<Unit> wait_until_ready(Api& api, std::string_view before) {
    using namespace std::chrono_literals;
    constexpr auto timeout = 60s;
    Error last{Code::unavailable, "the server still uses the old store"};
    for (const auto until = real_clock().steady() + timeout; real_clock().steady() < until;) {
        const auto store = api.get("/v1/store");
        if (!store.ok() && store.error().code == Code::cancelled) return store.error();
        if (!store.ok()) last = store.error();
        if (store.ok() && (before.empty() || text_of(store->body, "location") != before)) {
            const auto ready = api.download("GET", "/readyz", [](std::string_view) -> Result<Unit> { return Unit{}; });
            if (ready.ok()) return Unit{};
            last = ready.error();
        }
        TRY(std::ignore, api.pause(200ms));
    }
    return Error{Code::unavailable,
                 fmt::format("the store moved, but the server is not ready after {}: {}", to_text(timeout), last.message),
                 "see the log of the server; \"orrery store status\" works when the server is ready"};
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
        return Error{Code::conflict, fmt::format("{} exists", path), "give another file, or use --force"};
    TRY(const auto file, AtomicFile::make(path));
    std::uint64_t received = 0;
    std::string revision;
    {
        ProgressLine progress(invocation);
        progress.show("waiting for the server");
        TRY(const auto headers, api->download("POST", "/v1/store/backup", [&](std::string_view piece) -> Result<Unit> {
            TRY(std::ignore, file->write(piece));
            received += piece.size();
            progress.show(fmt::format("{} received", readable_size(received)));
            return Unit{};
        }));
        revision = headers.get("X-Revision");
    }
    if (received == 0) return Error{Code::internal, "the server sent an empty backup"};
    TRY(std::ignore, file->finish());
    if (!invocation.quiet())
        invocation.streams.out << fmt::format("{}: backup of revision {} ({}); \"orrery store verify {}\" checks it\n", path,
                                              revision.empty() ? "?" : revision, readable_size(received), path);
    return exit_code::ok;
}

Result<int> run_store_migrate(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    const auto to = invocation.text("to");
    if (to.empty()) return invocation.usage_error("--to is missing", "orrery store migrate --to etcds://host:2379");
    TRY(const auto store, api->get("/v1/store"));
    TRY(const auto stream, api->stream("POST", "/v1/store/migrate", json::object{{"to", to}}));
    ProgressLine progress(invocation);
    for (;;) {
        TRY(const auto event, stream->next());
        if (!event)
            return Error{Code::unavailable, "the server ended the migration without a result",
                         "the old store is unchanged; see the log of the server"};
        boost::system::error_code failed;
        const auto data = json::parse(event->data, failed);
        if (failed) return Error{Code::internal, "the server sent an event that is not JSON"};
        if (event->event == "error")
            return Error{code_named(text_of(data, "code")), text_of(data, "detail"), text_of(data, "remedy")};
        if (event->event == "progress") {
            const auto done = number_of(data, "done"), total = number_of(data, "total");
            progress.show(total > 0 ? fmt::format("{} of {} keys ({} %)", done, total, done * 100 / total)
                                    : fmt::format("{} keys", done));
        }
        if (event->event != "done") continue;
        progress.show("");
        invocation.streams.out << fmt::format("{} keys moved to {}, digest {}\n", number_of(data, "keys"),
                                              printable(text_of(data, "to").empty() ? to : text_of(data, "to")),
                                              printable(text_of(data, "digest")));
        if (!invocation.quiet())
            invocation.streams.err << fmt::format(
                "the server restarts on the new store; also set store.url to {} in its configuration\n", to);
        progress.show("waiting for the server to restart");
        TRY(std::ignore, wait_until_ready(*api, text_of(store.body, "location")));
        return exit_code::ok;
    }
}

Result<int> run_store_verify(Invocation& invocation) {
    if (!invocation.application.offline.verify) return Error{Code::unsupported, "this program has no command to check backups"};
    return invocation.application.offline.verify(invocation.raw_arguments, invocation.streams);
}

Result<int> run_store_restore(Invocation& invocation) {
    if (!invocation.application.offline.restore) return Error{Code::unsupported, "this program has no command to restore backups"};
    return invocation.application.offline.restore(invocation.raw_arguments, invocation.streams);
}

Result<int> run_store_reset_admin(Invocation& invocation) {
    if (!invocation.application.offline.reset_admin)
        return Error{Code::unsupported, "this program has no command to reset the password of admin"};
    return invocation.application.offline.reset_admin(invocation.raw_arguments, invocation.streams);
}

} // namespace orrery::cli
