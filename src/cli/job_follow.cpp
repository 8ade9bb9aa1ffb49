#include "cli/commands.h"
#include "cli/job_render.h"
#include "cli/render.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <ostream>

/// Commands that follow a job until it is done.
namespace orrery::cli {

namespace {

constexpr int max_broken_streams = 60;

/// Text that is redrawn in place on a terminal, and printed again on other outputs when it changed.
class LiveText {
public:
    explicit LiveText(Streams& streams) : streams_(streams) {}
    void show(const std::string& text) {
        if (text == last_) return;
        last_ = text;
        if (!streams_.out_is_terminal) {
            streams_.out << text << std::flush;
            return;
        }
        std::string fitted;
        std::size_t lines = 0, max_lines = streams_.height > 4 ? static_cast<std::size_t>(streams_.height - 2) : 40;
        for (std::size_t at = 0; at < text.size() && lines < max_lines; ++lines) {
            const auto end = std::min(text.find('\n', at), text.size());
            const auto line = text.substr(at, end - at);
            fitted += (streams_.width > 0 && !streams_.colour() ? fit(line, streams_.width) : line) + "\n";
            at = end + 1;
        }
        if (drawn_ > 0) streams_.out << fmt::format("\x1b[{}A\x1b[J", drawn_);
        streams_.out << fitted << std::flush;
        drawn_ = lines;
    }

private:
    Streams& streams_;
    std::string last_;
    std::size_t drawn_ = 0;
};

bool is_final(std::string_view state) {
    return state == "succeeded" || state == "failed" || state == "cancelled" || state == "converged" || state == "undone" ||
           state == "undo_failed";
}

} // namespace

int exit_code_of_state(std::string_view state) {
    return state == "succeeded" || state == "converged" ? exit_code::ok : exit_code::other;
}

Result<std::string> follow_job(Invocation& invocation, bool shown) {
    TRY(auto* api, invocation.api());
    LiveText live(invocation.streams);
    std::string state;
    for (int broken = 0;;) {
        auto opened = api->stream("GET", job_route(invocation, "progress") + "?watch=true");
        if (!opened.ok() && (opened.error().code != Code::unavailable || ++broken > max_broken_streams))
            return std::move(opened).error();
        while (opened.ok()) {
            auto event = (*opened)->next();
            if (!event.ok() || !*event) break;
            broken = 0;
            boost::system::error_code failed;
            const auto progress = json::parse((*event)->data, failed);
            if (failed || (*event)->event != "progress") continue;
            state = text_of(progress, "state");
            if (shown) live.show(progress_text(invocation.streams, progress));
            if (is_final(state)) return state;
        }
        if (api->interrupted()) return Error{Code::cancelled, "interrupted; the job continues"};
        TRY(std::ignore, api->pause(std::chrono::seconds(1)));
    }
}

Result<int> follow_to_end(Invocation& invocation, std::string job) {
    invocation.values["JOB"] = {std::move(job)};
    TRY(const auto state, follow_job(invocation, !invocation.quiet()));
    return exit_code_of_state(state);
}

Result<int> run_job_watch(Invocation& invocation) {
    TRY(const auto state, follow_job(invocation, true));
    return exit_code_of_state(state);
}

namespace {

void print_missing(std::ostream& out, const json::value& answer) {
    for (const auto& one : list_at(answer, "missing"))
        out << fmt::format("missing: {}: {}\n", printable(text_of(one, "name")), printable(text_of(one, "message")));
}

} // namespace

Result<int> run_job_wait(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    std::string state;
    if (!invocation.has("now")) {
        TRY(state, follow_job(invocation, false));
    }
    TRY(const auto answer, api->get(job_route(invocation, "missing")));
    const bool structured = print_structured(invocation, answer.body);
    if (!structured) print_missing(invocation.streams.out, answer.body);
    if (invocation.has("now")) return is_true(answer.body, "done") ? exit_code::ok : exit_code::other;
    if (!invocation.quiet() && !structured)
        invocation.streams.out << fmt::format("job {} {}\n", printable(invocation.text("JOB")), state);
    return exit_code_of_state(state);
}

} // namespace orrery::cli
