#include "api/problem.h"
#include "api/state.h"
#include "core/ids.h"
#include "core/json_fields.h"
#include "core/log_history.h"
#include "core/text.h"
#include "jobs/engine.h"
#include "jobs/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

/// One timeline of all layers: log lines of this server, events, transitions of tasks, and output of tasks.
namespace orrery::api {

namespace {

constexpr std::size_t default_log_items = 1000, max_log_items = 5000;
constexpr std::size_t max_log_jobs = 20, max_log_outputs = 200; ///< of one context
constexpr std::size_t max_output_read = 256 << 10, max_outputs_read = 8 << 20;

struct LogQuery {
    std::string context;
    log::Level level = log::Level::debug;
    WallTime since{};
    std::size_t limit = default_log_items;
};

struct LogItem {
    WallTime time{};
    int layer = 0; ///< order of items with the same time: an event precedes its consequences
    std::size_t number = 0;
    json::object body;
};

bool is_context_id(std::string_view id) {
    return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    });
}

Result<LogQuery> log_query(const Call& call) {
    LogQuery out;
    Error wrong{Code::invalid, "invalid query"};
    out.context = call.query("context").value_or("");
    if (call.query("context") && !is_context_id(out.context))
        wrong.fields.push_back({"?context", "must be 1 to 64 letters, digits, dots, dashes and underscores, as in X-Request-Id"});
    if (const auto text = call.query("level")) {
        const auto level = log::parse_level(*text);
        if (level.ok())
            out.level = *level;
        else
            wrong.fields.push_back({"?level", "must be debug, info, warn or error"});
    }
    if (const auto text = call.query("since")) {
        const auto time = from_rfc3339(*text);
        if (time.ok())
            out.since = *time;
        else
            wrong.fields.push_back({"?since", "must be a time such as 2026-11-16T04:42:52Z"});
    }
    if (const auto text = call.query("limit")) {
        const auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), out.limit);
        if (failed != std::errc{} || end != text->data() + text->size() || out.limit == 0 || out.limit > max_log_items)
            wrong.fields.push_back({"?limit", fmt::format("must be a number from 1 to {}", max_log_items)});
    }
    if (!wrong.fields.empty()) return wrong;
    return out;
}

/// Builds one timeline.
class TimelineBuilder {
public:
    TimelineBuilder(Api::State& state, LogQuery query) : state_(state), query_(std::move(query)) {}

    void add_log_lines() {
        for (auto& line : log::history().find({query_.context, query_.level, query_.since, query_.limit}))
            add(line.time, 2, line.level,
                {{"id", fmt::format("log/{}/{}", state_.options.server, line.number)},
                 {"source", "log"},
                 {"server", state_.options.server},
                 {"context", line.context},
                 {"actor", line.actor},
                 {"message", line.message}});
    }

    Result<Unit> add_events(std::pair<std::string, std::string> field) {
        resource::ListQuery query;
        if (!field.second.empty()) query.fields = {std::move(field)};
        if (query_.since != WallTime{}) query.from = time_ordered_bound(query_.since);
        query.newest_first = true;
        query.limit = query_.limit;
        TRY(const auto page, state_.resources.list(*state_.resources.registry().find("Event"), query));
        truncated_ = truncated_ || !page.next.empty();
        for (const auto& record : page.records)
            if (const auto event = resource::from_stored(*record); event.ok()) add_event(*event);
        return Unit{};
    }

    /// Jobs that were submitted under the context.
    std::vector<std::string> jobs() {
        std::vector<std::string> out;
        const auto* kind = state_.resources.registry().find("Job");
        if (kind == nullptr) return out;
        const auto marked = fmt::format("\"context\":\"{}\"", query_.context);
        for (std::string after;;) {
            const auto page = state_.store().range(kind->prefix(), 500, after);
            for (const auto& record : page.records) {
                if (record->value.find(marked) == std::string::npos) continue;
                const auto object = resource::from_stored(*record);
                const auto* context = object.ok() ? object->status.if_contains("context") : nullptr;
                if (context == nullptr || !context->is_string() || context->get_string() != query_.context) continue;
                if (out.size() == max_log_jobs) truncated_ = true;
                if (out.size() < max_log_jobs) out.push_back(object->name);
            }
            if (page.next.empty()) return out;
            after = page.next;
        }
    }

    Task<Unit> add_job(Context ctx, jobs::Engine& engine, std::string name) {
        CO_TRY(std::ignore, add_events({"subject", "Job/" + name})); // job commands have the context of their own requests
        auto run = engine.find(name);
        if (!run.ok()) co_return Unit{}; // the job was refused; an event records that
        for (auto& entry : jobs::timeline(**run, query_.since))
            add(entry.time, 1, entry.failed ? log::Level::error : log::Level::info,
                {{"id", entry.id},
                 {"source", "task"},
                 {"context", query_.context},
                 {"job", name},
                 {"task", entry.task},
                 {"attempt", entry.attempt},
                 {"message", entry.message}});
        for (const auto& output : jobs::outputs(**run, query_.since, max_log_outputs, truncated_)) {
            if (read_ >= max_outputs_read) {
                truncated_ = true;
                break;
            }
            CO_TRY(const auto page, co_await engine.output().read(ctx, output.name, 0, max_output_read));
            add_output(name, output, page);
        }
        co_return Unit{};
    }

    json::object finish() {
        std::sort(items_.begin(), items_.end(), [](const LogItem& a, const LogItem& b) {
            return std::tie(a.time, a.layer, a.number) < std::tie(b.time, b.layer, b.number);
        });
        if (items_.size() > query_.limit) {
            truncated_ = true;
            items_.erase(items_.begin(), items_.end() - static_cast<std::ptrdiff_t>(query_.limit));
        }
        json::array items;
        for (auto& item : items_) items.push_back(std::move(item.body));
        json::object out{{"server", state_.options.server},
                         {"shared_store", state_.options.shared_store},
                         {"items", std::move(items)},
                         {"truncated", truncated_}};
        if (const auto since = log::history().complete_since()) out["log_lines_since"] = to_rfc3339(*since);
        return out;
    }

private:
    void add(WallTime time, int layer, log::Level level, json::object body) {
        if (time < query_.since || level < query_.level) return;
        body["time"] = to_rfc3339(time);
        body["level"] = log::name_of(level);
        items_.push_back({time, layer, items_.size(), std::move(body)});
    }

    void add_event(const resource::Object& event) {
        if (!seen_events_.insert(event.name).second) return;
        const auto text = [&](std::string_view key) { return text_at(event.spec, key); };
        const auto reason = text("reason");
        json::object body{
            {"id", "event/" + event.name},
            {"source", "event"},
            {"context", text("context")},
            {"actor", text("actor")},
            {"subject", text("subject")},
            {"message", fmt::format("{} {}{}{}", text("subject"), text("action"), reason.empty() ? "" : ": ", reason)}};
        if (const auto* evidence = event.spec.if_contains("evidence")) body["evidence"] = *evidence;
        add(event.created_at, 0,
            text("action") == "failed" || text("action") == "undo_failed" ? log::Level::error : log::Level::info, std::move(body));
    }

    void add_output(const std::string& job, const jobs::TaskOutput& output, const jobs::OutputLog::Page& page) {
        std::string lines[2];
        std::size_t number = 0, size = 0;
        auto time = output.started;
        const auto put = [&](std::string_view stream, std::string_view line) {
            add(time, 3, log::Level::info,
                {{"id", fmt::format("output/{}/{}/{}/{}/{}", output.name.uid, output.name.task, output.name.attempt,
                                    jobs::name_of(output.name.phase), number++)},
                 {"source", "output"},
                 {"context", query_.context},
                 {"job", job},
                 {"task", output.task},
                 {"attempt", output.name.attempt},
                 {"phase", jobs::name_of(output.name.phase)},
                 {"stream", stream},
                 {"message", jobs::valid_utf8(line)}});
        };
        for (const auto& piece : page.pieces) {
            size += piece.bytes.size();
            if (piece.time) time = *piece.time;
            if (piece.kind == 's') continue; // the text of a step is part of the output as well
            if (piece.kind == 'n') {
                put("note", std::string_view(piece.bytes).substr(0, piece.bytes.find_last_not_of('\n') + 1));
                continue;
            }
            const bool is_error = piece.kind == 'e';
            auto& line = lines[is_error ? 1 : 0];
            for (std::string_view rest = piece.bytes; !rest.empty();) {
                const auto end = rest.find('\n');
                line += rest.substr(0, end);
                if (end == std::string_view::npos) break;
                put(is_error ? "err" : "out", line);
                line.clear();
                rest.remove_prefix(end + 1);
            }
        }
        read_ += size;
        // An unterminated line may still grow.
        for (const bool is_error : {false, true})
            if (output.complete && !lines[is_error ? 1 : 0].empty()) put(is_error ? "err" : "out", lines[is_error ? 1 : 0]);
        truncated_ = truncated_ || size >= max_output_read;
    }

    Api::State& state_;
    LogQuery query_;
    std::vector<LogItem> items_;
    std::set<std::string> seen_events_;
    std::size_t read_ = 0;
    bool truncated_ = false;
};

Task<Unit> show_logs(Api::State& state, jobs::Engine& engine, Call call) {
    CO_TRY(auto query, log_query(call));
    const auto context = query.context;
    TimelineBuilder timeline(state, std::move(query));
    timeline.add_log_lines();
    CO_TRY(std::ignore, timeline.add_events({"context", context}));
    if (!context.empty())
        for (auto& job : timeline.jobs()) {
            CO_TRY(std::ignore, co_await timeline.add_job(call.ctx, engine, std::move(job)));
        }
    co_return co_await send_json(call, 200, timeline.finish());
}

} // namespace

void add_log_routes(Api::State& state, jobs::Engine& engine) {
    // Log lines name users, addresses and files of the server.
    state.router.add({.method = "GET",
                      .pattern = "/v1/logs",
                      .summary = "Show log lines of this server and events in the order of time; with a context, also the tasks of "
                                 "its jobs and their output",
                      .group = "server",
                      .role = Role::operator_,
                      .query = {{"context", "only items of this context (the X-Request-Id of the first request)"},
                                {"since", "only items from this time on"},
                                {"level", "only this level and above: debug, info, warn or error"},
                                {"limit", "maximum number of items, the newest first kept (default 1000)", "integer"}},
                      .response = {{"type", "object"}},
                      .handler = [&state, &engine](Call call) { return show_logs(state, engine, std::move(call)); }});
}

} // namespace orrery::api
