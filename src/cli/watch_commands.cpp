#include "cli/commands.h"
#include "cli/render.h"
#include "core/text.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>

/// watch and events.
namespace orrery::cli {

namespace {

using namespace std::chrono_literals;

/// One change of a watch stream.
struct Change {
    std::string type; ///< created, updated, removed
    std::string id;
    json::value object;
};

/// Watches a kind or one resource over broken connections: resumes after the last event id, and lists again if the server has
/// compacted that revision.
class Follower {
public:
    /// Called with the whole list at the start and after a gap that the server cannot fill.
    std::function<Result<Unit>(std::vector<json::value>)> on_list;
    /// Called for every change; false ends the watch.
    std::function<bool(const Change&)> on_change;
    /// Called when the connection is lost.
    std::function<void(std::string_view message)> on_connection_lost;

    Follower(Api& api, const KindView& kind, std::string name, std::string query)
        : api_(api), kind_(kind), name_(std::move(name)), query_(std::move(query)) {}

    /// Starts with the current list.
    Result<Unit> run() {
        TRY(std::ignore, list());
        return run_after(position_);
    }
    /// Starts after a revision.
    Result<Unit> run_after(std::string revision) {
        position_ = std::move(revision);
        Duration wait = 500ms;
        for (;;) {
            auto ended = follow(wait);
            if (ended.ok() && *ended) return Unit{};
            if (!ended.ok()) {
                const auto& error = ended.error();
                if (error.code == Code::compacted) {
                    TRY(std::ignore, list());
                }
                if (error.code == Code::compacted && wait == Duration(500ms)) {
                    wait *= 2; // the first time at once, then with back-off
                    continue;
                }
                if (error.code != Code::compacted && error.code != Code::unavailable && error.code != Code::timeout)
                    return std::move(ended).error();
                if (on_connection_lost && error.code != Code::compacted) on_connection_lost(error.message);
            }
            TRY(std::ignore, api_.pause(wait));
            wait = std::min<Duration>(wait * 2, 8s);
        }
    }

private:
    Result<Unit> list() {
        std::int64_t revision = 0;
        if (name_.empty()) {
            TRY(auto objects, list_all(api_, kind_, query_, 0, nullptr, &revision));
            position_ = std::to_string(revision);
            return on_list ? on_list(std::move(objects)) : Result<Unit>(Unit{});
        }
        // The revision of the object may be compacted; the list of the kind has the current one. The list comes first, so that no
        // change is missed.
        bool more = false;
        TRY(std::ignore, list_all(api_, kind_, {}, 1, &more, &revision));
        TRY(auto answer, api_.get(kind_.route(name_)));
        position_ = std::to_string(revision);
        return on_list ? on_list({std::move(answer.body)}) : Result<Unit>(Unit{});
    }

    /// True if the caller wants no more changes; false if the stream ended and should be resumed.
    Result<bool> follow(Duration& wait) {
        net::Headers headers;
        if (!last_id_.empty()) headers.set("Last-Event-ID", last_id_);
        const auto from = !last_id_.empty() ? last_id_ : position_;
        auto opened =
            api_.stream("GET", fmt::format("{}?watch={}{}", kind_.route(name_), net::percent_encode(from), query_), {}, headers);
        if (!opened.ok()) {
            if (opened.error().code == Code::compacted) last_id_.clear();
            return std::move(opened).error();
        }
        auto& stream = **opened;
        for (;;) {
            auto event = stream.next();
            if (!stream.last_id().empty()) last_id_ = stream.last_id();
            if (!event.ok()) return std::move(event).error();
            if (!*event) return false;
            wait = 500ms;
            boost::system::error_code failed;
            const auto data = json::parse((*event)->data, failed);
            if (failed) return Error{Code::internal, "the server sent an event that is not JSON"};
            if ((*event)->event == "error") {
                const auto code = code_named(text_of(data, "code"));
                if (code == Code::compacted) last_id_.clear();
                return Error{code, text_of(data, "detail"), text_of(data, "remedy")};
            }
            const auto* object = at_path(data, "object");
            if (object == nullptr) continue; // "started", and events of later versions
            if (!on_change({(*event)->event, (*event)->id, *object})) return true;
        }
    }

    Api& api_;
    const KindView& kind_;
    std::string name_, query_, position_ = "now", last_id_;
};

/// A table on a terminal that is redrawn in place with every change.
class LiveTable {
public:
    LiveTable(Streams& streams, const KindView& kind, bool wide) : streams_(streams), kind_(kind), wide_(wide) {}

    void reset(std::vector<json::value> objects) {
        objects_.clear();
        for (auto& object : objects) {
            auto name = text_of(object, "name");
            objects_[std::move(name)] = std::move(object);
        }
        draw();
    }
    void apply(const Change& change) {
        const auto name = text_of(change.object, "name");
        if (change.type == "removed")
            objects_.erase(name);
        else
            objects_[name] = change.object;
        draw();
    }

private:
    void draw() {
        std::vector<json::value> objects;
        for (const auto& [name, object] : objects_) objects.push_back(object);
        const auto rows = streams_.height > 4 ? static_cast<std::size_t>(streams_.height - 3) : 20;
        auto text = object_table(kind_, objects, wide_, streams_.clock->wall()).render(streams_.width, streams_.colour(), rows);
        if (objects.size() > rows) text += fmt::format("and {} more\n", objects.size() - rows);
        if (objects.empty()) text = fmt::format("no {}\n", kind_.plural);
        if (drawn_ > 0) streams_.out << fmt::format("\x1b[{}A\x1b[J", drawn_);
        streams_.out << text << std::flush;
        drawn_ = std::count(text.begin(), text.end(), '\n');
    }

    Streams& streams_;
    const KindView& kind_;
    bool wide_;
    std::map<std::string, json::value> objects_;
    std::ptrdiff_t drawn_ = 0;
};

std::string clock_text(const Streams& streams) { return to_rfc3339(streams.clock->wall()).substr(11, 8) + "Z"; }

std::function<void(std::string_view)> warn_about_connection(Invocation& invocation) {
    return [&invocation](std::string_view message) {
        if (!invocation.quiet())
            invocation.streams.err << "connection lost (" << printable(message) << "); reconnecting\n" << std::flush;
    };
}

// --- events ---

Result<std::string> event_subject(Invocation& invocation, const std::string& text) {
    const auto slash = text.find('/');
    if (slash == std::string::npos)
        return invocation.usage_error(fmt::format("\"{}\" is not KIND/NAME", text), "give a subject such as node/n1");
    TRY(const auto* kinds, invocation.kinds());
    const auto kind = kinds->find(text.substr(0, slash));
    return (kind.ok() ? (*kind)->kind : text.substr(0, slash)) + text.substr(slash);
}

struct EventFilter {
    std::vector<std::pair<std::string, std::string>> equal; ///< spec field and value
    bool matches(const json::value& event) const {
        return std::all_of(equal.begin(), equal.end(),
                           [&](const auto& one) { return text_of(event, "spec." + one.first) == one.second; });
    }
};

void print_event_line(Invocation& invocation, const json::value& event) {
    auto& streams = invocation.streams;
    if (invocation.text("output", "table") == "json") {
        streams.out << to_json_text(event) << '\n' << std::flush;
        return;
    }
    auto at = text_of(event, "spec.at");
    if (at.empty()) at = text_of(event, "created_at");
    const bool colour = streams.colour();
    const auto action = text_of(event, "spec.action");
    streams.out << paint(at.size() > 19 ? at.substr(0, 19) + "Z" : at, Style::dim, colour) << "  "
                << printable(text_of(event, "spec.subject")) << ' ' << paint(printable(action), style_of_outcome(action), colour)
                << " by " << printable(text_of(event, "spec.actor"));
    if (const auto reason = text_of(event, "spec.reason"); !reason.empty()) streams.out << ": " << printable(reason);
    if (invocation.text("output") == "wide") {
        streams.out << "  context=" << printable(text_of(event, "spec.context"));
        if (const auto* evidence = at_path(event, "spec.evidence"); evidence != nullptr && !evidence->is_null())
            streams.out << "  " << printable(to_json_text(*evidence));
    }
    streams.out << '\n' << std::flush;
}

} // namespace

Result<int> follow_changes(Invocation& invocation, std::string_view kind_name,
                           const std::function<bool(std::string_view change, const json::value& object)>& on_change) {
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    TRY(const auto* kind, kinds->find(std::string(kind_name)));
    Follower follower(*api, *kind, {}, {});
    follower.on_connection_lost = warn_about_connection(invocation);
    follower.on_change = [&](const Change& change) {
        return on_change(change.type, change.object) && invocation.streams.out.good();
    };
    TRY(std::ignore, follower.run_after("now"));
    return exit_code::ok;
}

Result<int> run_watch(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    auto kind_name = invocation.text("KIND");
    auto name = invocation.text("NAME");
    if (const auto slash = kind_name.find('/'); slash != std::string::npos) {
        name = kind_name.substr(slash + 1);
        kind_name.resize(slash);
    }
    TRY(const auto* kind, kinds->find(kind_name));
    const auto form = invocation.text("output", "table");
    TRY(const auto max_changes, invocation.number("count", 0));
    auto& streams = invocation.streams;
    std::string query;
    if (invocation.has("labels")) query = "&labels=" + net::percent_encode(invocation.text("labels"));
    const bool lines_of_json = form == "json";
    const bool live = !lines_of_json && form != "name" && streams.out_is_terminal;
    LiveTable table(streams, *kind, form == "wide");
    std::int64_t seen = 0;
    Follower follower(*api, *kind, name, query);
    follower.on_connection_lost = warn_about_connection(invocation);
    follower.on_list = [&](std::vector<json::value> objects) -> Result<Unit> {
        if (live)
            table.reset(std::move(objects));
        else if (lines_of_json)
            for (auto& object : objects)
                streams.out << to_json_text(json::object{{"event", "listed"}, {"object", std::move(object)}}) << '\n';
        streams.out << std::flush;
        return Unit{};
    };
    follower.on_change = [&](const Change& change) {
        if (live) {
            table.apply(change);
        } else if (lines_of_json) {
            streams.out << to_json_text(json::object{{"event", change.type}, {"id", change.id}, {"object", change.object}}) << '\n'
                        << std::flush;
        } else {
            const auto title = printable(kind->title(text_of(change.object, "name")));
            if (form == "name")
                streams.out << title << ' ' << change.type << '\n' << std::flush;
            else {
                streams.out << clock_text(streams) << "  " << title << ' '
                            << paint(change.type, style_of_outcome(change.type), streams.colour());
                for (const auto& column : kind->columns)
                    if (change.type != "removed" && column.path != "name" && column.path != "age" &&
                        (form == "wide" || !column.wide))
                        streams.out << "  " << column.title << '='
                                    << printable(column_text(*kind, change.object, column.path, streams.clock->wall()));
                streams.out << '\n' << std::flush;
            }
        }
        return streams.out.good() && (max_changes == 0 || ++seen < max_changes);
    };
    TRY(std::ignore, follower.run());
    return exit_code::ok;
}

Result<int> run_events(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    TRY(const auto* kind, kinds->find("Event"));
    EventFilter filter;
    if (invocation.has("subject")) {
        TRY(auto subject, event_subject(invocation, invocation.text("subject")));
        filter.equal.emplace_back("subject", std::move(subject));
    }
    if (invocation.has("context")) filter.equal.emplace_back("context", invocation.text("context"));
    if (invocation.has("actor")) filter.equal.emplace_back("actor", invocation.text("actor"));
    std::string query = "&order=newest";
    for (const auto& [field, value] : filter.equal) query += fmt::format("&{}={}", field, net::percent_encode(value));
    for (const std::string option : {"since", "until"})
        if (invocation.has(option)) {
            TRY(const auto time, invocation.time(option));
            query += fmt::format("&{}={}", option, net::percent_encode(time));
        }
    const bool follow = invocation.has("follow");
    const bool all = invocation.has("all") || (invocation.has("since") && !invocation.has("limit"));
    TRY(const auto limit, invocation.number("limit", all ? 0 : follow ? 10 : 50));
    TRY(const auto max_changes, invocation.number("count", 0));
    const auto form = invocation.text("output", "table");
    bool more = false;
    std::int64_t revision = 0; // of the list; the stream continues from it
    TRY(auto newest, list_all(*api, *kind, query, static_cast<std::size_t>(limit), &more, &revision));
    std::reverse(newest.begin(), newest.end());
    auto& streams = invocation.streams;
    if (follow || form == "table" || form == "wide") {
        if (follow || !streams.out_is_terminal || form == "wide" || newest.empty())
            for (const auto& event : newest) print_event_line(invocation, event);
        else
            print_objects(invocation, *kind, newest, form, false);
        if (newest.empty() && !follow && !invocation.quiet()) streams.err << "no events\n";
    } else {
        print_objects(invocation, *kind, newest, form, false);
    }
    if (more && !follow && !invocation.quiet())
        streams.err << fmt::format("only the newest {} are shown; select others with --all, --since and --limit\n", newest.size());
    if (!follow) return exit_code::ok;
    std::int64_t seen = 0;
    Follower follower(*api, *kind, {}, {});
    follower.on_connection_lost = warn_about_connection(invocation);
    follower.on_change = [&](const Change& change) {
        // Events are only added; a removal is retention.
        if (change.type != "created" || !filter.matches(change.object)) return true;
        print_event_line(invocation, change.object);
        return streams.out.good() && (max_changes == 0 || ++seen < max_changes);
    };
    TRY(std::ignore, follower.run_after(revision > 0 ? std::to_string(revision) : "now"));
    return exit_code::ok;
}

} // namespace orrery::cli
