#include "cli/commands.h"
#include "cli/render.h"
#include "core/text.h"
#include "net/http.h"

#include <fmt/format.h>

#include <map>
#include <ostream>

/// logs: one timeline of log lines, events, tasks and their output.
namespace orrery::cli {

namespace {

using namespace std::chrono_literals;

constexpr auto follow_interval = 1s;
/// Lines of another source may arrive late with an earlier time; each request covers this time again.
constexpr auto follow_overlap = 5s;

Style style_of_level(std::string_view level) {
    return level == "error" ? Style::red : level == "warn" ? Style::yellow : Style::plain;
}

void print_log_item(Invocation& invocation, const json::value& item) {
    auto& streams = invocation.streams;
    if (invocation.text("output", "table") == "json") {
        streams.out << to_json_text(item) << '\n' << std::flush;
        return;
    }
    const bool colour = streams.colour();
    const auto source = text_of(item, "source"), level = text_of(item, "level"), task = text_of(item, "task");
    std::string line = fmt::format("{}  {:6} {:5} ", paint(text_of(item, "time"), Style::dim, colour), source,
                                   paint(level, style_of_level(level), colour));
    if (!task.empty())
        line += fmt::format(" {}/{}{}", printable(text_of(item, "job")), printable(task), source == "output" ? " | " : ": ");
    line += fmt::format("{}{}", task.empty() ? " " : "", printable(text_of(item, "message")));
    if (const auto actor = text_of(item, "actor"); !actor.empty()) line += fmt::format("  [{}", printable(actor));
    if (!text_of(item, "actor").empty())
        line += invocation.has("context") || invocation.has("job") ? "]" : fmt::format(" {}]", printable(text_of(item, "context")));
    streams.out << line << '\n' << std::flush;
}

/// The context of --context, or of the job of --job.
Result<std::string> selected_context(Invocation& invocation, Api& api) {
    if (!invocation.has("job")) return invocation.text("context");
    if (invocation.has("context")) return invocation.usage_error("--context and --job exclude each other", "give one of them");
    TRY(const auto answer, api.get("/v1/jobs/" + net::percent_encode(invocation.text("job"))));
    auto context = text_of(answer.body, "status.context");
    if (context.empty()) return text_of(answer.body, "status.uid");
    return context;
}

void explain_scope(Invocation& invocation, const json::value& answer, std::size_t shown) {
    if (invocation.quiet()) return;
    auto& err = invocation.streams.err;
    const auto* shared = at_path(answer, "shared_store");
    if (shared != nullptr && shared->is_bool() && shared->get_bool())
        err << fmt::format(
            "log lines are from server {} only (select another with -s); events, tasks and output are from all servers\n",
            printable(text_of(answer, "server")));
    if (const auto since = text_of(answer, "log_lines_since"); !since.empty())
        err << fmt::format("log lines before {} are no longer in memory; see the log of the server\n", printable(since));
    if (const auto* truncated = at_path(answer, "truncated"); truncated != nullptr && truncated->is_bool() && truncated->get_bool())
        err << fmt::format("only the newest {} lines are shown; select others with --limit and --since\n", shown);
    if (shown == 0 && !invocation.has("follow")) err << "no lines\n";
}

} // namespace

Result<int> run_logs(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto context, selected_context(invocation, *api));
    std::string query;
    const auto add = [&query](std::string_view key, const std::string& value) {
        if (!value.empty()) query += fmt::format("{}{}={}", query.empty() ? "?" : "&", key, net::percent_encode(value));
    };
    add("context", context);
    add("level", invocation.text("level"));
    TRY(const auto limit, invocation.number("limit", 1000));
    add("limit", std::to_string(limit));
    std::string since;
    if (invocation.has("since")) {
        TRY(since, invocation.time("since"));
    }
    std::map<std::string, std::string> seen; // ids and their times
    for (bool first = true;; first = false) {
        auto answer = api->get("/v1/logs" + query + (since.empty() ? "" : "&since=" + net::percent_encode(since)));
        const bool lost = !answer.ok() && (answer.error().code == Code::unavailable || answer.error().code == Code::timeout);
        if (!answer.ok() && (first || !lost)) return std::move(answer).error();
        if (answer.ok()) {
            const auto* items = at_path(answer->body, "items");
            if (items == nullptr || !items->is_array()) return Error{Code::internal, "the response of the server has no items"};
            std::string newest;
            for (const auto& item : items->get_array()) {
                newest = text_of(item, "time");
                if (seen.emplace(text_of(item, "id"), newest).second) print_log_item(invocation, item);
            }
            if (first) explain_scope(invocation, answer->body, items->get_array().size());
            if (const auto time = from_rfc3339(newest); time.ok()) since = to_rfc3339(*time - follow_overlap);
            std::erase_if(seen, [&](const auto& item) { return item.second < since; });
        }
        if (!invocation.has("follow")) return exit_code::ok;
        TRY(std::ignore, api->pause(follow_interval));
    }
}

} // namespace orrery::cli
