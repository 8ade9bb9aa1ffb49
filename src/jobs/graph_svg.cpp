#include "core/markup.h"
#include "jobs/graph_layout.h"
#include "jobs/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <vector>

/// The graph of a job as a picture: a box for each task of the spec, to the right of all tasks that it depends on.
namespace orrery::jobs {

namespace {

/// The colour of a box and its meaning. Of several states of one task the first in this order is shown.
struct Shade {
    std::string_view meaning, colour;
};
constexpr Shade shade_failed{"failed", "#f4b8b0"}, shade_running{"running", "#b9d7f5"}, shade_waiting{"waiting", "#f7e3a4"},
    shade_open{"to do", "#e8edf3"}, shade_undone{"undone", "#d9cdec"}, shade_skipped{"skipped or cancelled", "#cfcfcf"},
    shade_good{"succeeded", "#bfe5c3"};
constexpr std::array shades{shade_failed, shade_running, shade_waiting, shade_open, shade_undone, shade_skipped, shade_good};

const Shade& shade_of(TaskState state) {
    switch (state) {
    case TaskState::failed:
    case TaskState::lost:
    case TaskState::undo_failed: return shade_failed;
    case TaskState::running: return shade_running;
    case TaskState::waiting:
    case TaskState::ready: return shade_waiting;
    case TaskState::pending: return shade_open;
    case TaskState::undone: return shade_undone;
    case TaskState::skipped:
    case TaskState::cancelled: return shade_skipped;
    case TaskState::succeeded: return shade_good;
    }
    return shade_open;
}

struct DrawnTask {
    std::string title;
    std::vector<std::string> details;
    Shade shade = shade_open;
};

/// A job of which nothing was started is drawn as its plan.
bool has_begun(const JobRun* run) { return run != nullptr && run->scheduler->counts().of(TaskState::pending) < run->plan.tasks; }

std::vector<DrawnTask> drawn(const Plan& plan, const JobRun* run) {
    std::vector<DrawnTask> tasks(plan.groups.size());
    for (std::uint32_t g = 0; g < plan.groups.size(); ++g) {
        auto& task = tasks[g];
        const auto& of = plan.groups[g];
        task.title = plan.spec.tasks[g].name;
        if (!of.hosts.empty())
            task.details.push_back(of.hosts.size() == 1 ? plan.hosts[of.hosts[0]] : fmt::format("{} nodes", of.hosts.size()));
        for (const auto& barrier : plan.spec.tasks[g].wait) task.details.push_back("waits for " + barrier.text());
        if (!has_begun(run)) continue;
        std::array<std::uint32_t, task_states> counts{};
        for (std::uint32_t i = 0; i < of.count; ++i) ++counts[static_cast<std::size_t>(run->scheduler->record(of.first + i).state)];
        std::string states;
        for (std::size_t i = 0; i < task_states; ++i)
            if (counts[i] > 0)
                states += fmt::format("{}{}{}", states.empty() ? "" : ", ", of.count == 1 ? "" : fmt::format("{} ", counts[i]),
                                      name_of(static_cast<TaskState>(i)));
        task.details.push_back(std::move(states));
        task.shade = *std::find_if(shades.begin(), shades.end(), [&](const Shade& shade) {
            for (std::size_t i = 0; i < task_states; ++i)
                if (counts[i] > 0 && shade_of(static_cast<TaskState>(i)).meaning == shade.meaning) return true;
            return false;
        });
    }
    return tasks;
}

std::string escaped_dot(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out;
}

/// Calls `visit(from, to, barrier)` for each task of the plan that opens a barrier of another.
template <class F> void each_barrier_edge(const Plan& plan, F&& visit) {
    std::map<std::string_view, std::vector<std::pair<std::string_view, std::uint32_t>>> providers; // service → tag and task
    for (std::uint32_t g = 0; g < plan.groups.size(); ++g)
        for (const auto& ref : plan.spec.tasks[g].provides) providers[ref.service].emplace_back(ref.tag, g);
    for (std::uint32_t g = 0; g < plan.groups.size(); ++g)
        for (const auto& barrier : plan.spec.tasks[g].wait)
            if (const auto found = providers.find(barrier.service); found != providers.end())
                for (const auto& [tag, from] : found->second)
                    if (from != g && (barrier.tag.empty() || tag == barrier.tag)) visit(from, g, barrier);
}

/// The width of a text in a usual sans-serif font, rather too wide than too narrow.
int text_width(std::string_view text, int size, bool bold) {
    int out = 0;
    for (const char c : text) {
        if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) continue; // within a character
        if (std::string_view("iljI.,:;|!'()[]").find(c) != std::string_view::npos)
            out += 400;
        else if (std::string_view("mwMW@%").find(c) != std::string_view::npos)
            out += 1000;
        else
            out += c >= 'A' && c <= 'Z' ? 740 : 650;
    }
    return (bold ? out * 11 / 10 : out) * size / 1000;
}

/// Lines of about `max_size` characters, broken at spaces where possible.
std::vector<std::string> wrapped(std::string_view text, std::size_t max_size) {
    std::vector<std::string> out;
    while (text.size() > max_size) {
        auto end = text.rfind(' ', max_size);
        if (end == text.npos || end < max_size / 3) {
            end = max_size;
            while (end > 1 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
        }
        out.emplace_back(text.substr(0, end));
        text.remove_prefix(end + (text[end] == ' ' ? 1 : 0));
    }
    if (!text.empty()) out.emplace_back(text);
    return out;
}

constexpr int title_size = 13, detail_size = 11, title_line = 17, detail_line = 14, box_padding = 10;
constexpr std::size_t title_characters = 32, detail_characters = 36;

struct BoxText {
    std::vector<std::string> title, details;
    BoxSize size() const {
        int width = 90;
        for (const auto& line : title) width = std::max(width, text_width(line, title_size, true) + 2 * box_padding);
        for (const auto& line : details) width = std::max(width, text_width(line, detail_size, false) + 2 * box_padding);
        return {width, static_cast<int>(title.size()) * title_line + static_cast<int>(details.size()) * detail_line + 12};
    }
};

void draw_box(std::string& out, const GraphLayout::Box& box, const DrawnTask& task, const BoxText& text) {
    std::string whole = task.title;
    for (const auto& line : task.details) whole += ", " + line;
    out +=
        fmt::format("<g><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"{}\" stroke=\"#556\"/>",
                    escape_markup(whole), box.x, box.y, box.width, box.height, task.shade.colour);
    int y = box.y + 4;
    for (const auto& line : text.title)
        out += fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>", box.x + box_padding, (y += title_line) - 3,
                           escape_markup(line));
    for (const auto& line : text.details)
        out += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"#334\">{}</text>", box.x + box_padding,
                           (y += detail_line) - 3, detail_size, escape_markup(line));
    out += "</g>\n";
}

std::string route_path(const GraphLayout::Route& route) {
    const auto& points = route.points;
    std::string out = fmt::format("M{} {}", points.front().x, points.front().y);
    for (std::size_t i = 0; i + 1 < points.size(); i += 2) {
        if (i > 0) out += fmt::format("L{} {}", points[i].x, points[i].y);
        const auto middle = (points[i].x + points[i + 1].x) / 2;
        out += fmt::format("C{} {} {} {} {} {}", middle, points[i].y, middle, points[i + 1].y, points[i + 1].x, points[i + 1].y);
    }
    return out;
}

/// The meaning of lines and colours, in one row; only of those in the picture.
std::string legend(const std::vector<DrawnTask>& tasks, const std::vector<GraphArrow>& arrows, bool has_states, int y, int& width) {
    std::string out;
    int x = 24;
    const auto label = [&](std::string_view text) {
        out += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"#334\">{}</text>\n", x, y + 4, detail_size, text);
        x += text_width(text, detail_size, false) + 20;
        width = std::max(width, x);
    };
    for (const bool dashed : {false, true}) {
        if (std::none_of(arrows.begin(), arrows.end(), [&](const GraphArrow& arrow) { return arrow.dashed == dashed; })) continue;
        out += fmt::format("<path d=\"M{} {}h30\" stroke=\"#667\"{} marker-end=\"url(#tip)\"/>\n", x, y,
                           dashed ? " stroke-dasharray=\"5 4\"" : "");
        x += 38;
        label(dashed ? "waits for a service of" : "comes after");
    }
    for (const auto& shade : shades) {
        if (!has_states ||
            std::none_of(tasks.begin(), tasks.end(), [&](const DrawnTask& task) { return task.shade.meaning == shade.meaning; }))
            continue;
        out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"12\" rx=\"3\" fill=\"{}\" stroke=\"#556\"/>\n", x, y - 6,
                           shade.colour);
        x += 22;
        label(shade.meaning);
    }
    return out;
}

std::string svg_of(std::string_view title, int width, int height, std::string_view body) {
    return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
                       "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"{4}\">\n<title>{2}</title>\n"
                       "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" "
                       "orient=\"auto-start-reverse\"><path d=\"M0 0 8 4 0 8z\" fill=\"#667\"/></marker></defs>\n"
                       "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n{3}</svg>\n",
                       width, height, escape_markup(title), body, title_size);
}

} // namespace

std::string graph_dot(const Plan& plan, const JobRun* run) {
    const auto tasks = drawn(plan, run);
    std::string out =
        fmt::format("digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n",
                    escaped_dot(plan.name));
    for (std::uint32_t g = 0; g < tasks.size(); ++g) {
        std::string label = escaped_dot(tasks[g].title);
        for (const auto& line : tasks[g].details) label += "\\n" + escaped_dot(line);
        out += fmt::format("  t{} [label=\"{}\", fillcolor=\"{}\"];\n", g, label, tasks[g].shade.colour);
    }
    for (std::uint32_t g = 0; g < tasks.size(); ++g)
        for (const auto& edge : plan.groups[g].after)
            out += fmt::format("  t{} -> t{}{};\n", edge.group, g, edge.same_host ? " [label=\"same host\"]" : "");
    each_barrier_edge(plan, [&](std::uint32_t from, std::uint32_t to, const BarrierSpec& barrier) {
        out += fmt::format("  t{} -> t{} [style=dashed, label=\"{}\"];\n", from, to, escaped_dot(barrier.text()));
    });
    return out + "}\n";
}

std::string graph_svg(const Plan& plan, const JobRun* run) {
    const auto tasks = drawn(plan, run);
    std::vector<BoxText> texts;
    std::vector<BoxSize> sizes;
    for (const auto& task : tasks) {
        BoxText text{wrapped(task.title, title_characters), {}};
        for (const auto& detail : task.details)
            for (auto& line : wrapped(detail, detail_characters)) text.details.push_back(std::move(line));
        sizes.push_back(text.size());
        texts.push_back(std::move(text));
    }
    std::set<std::tuple<std::uint32_t, std::uint32_t, bool>> pairs; // one arrow for several barriers
    std::vector<GraphArrow> arrows;
    const auto add = [&](std::uint32_t from, std::uint32_t to, bool dashed) {
        if (pairs.emplace(from, to, dashed).second) arrows.push_back({from, to, dashed});
    };
    for (std::uint32_t g = 0; g < plan.groups.size(); ++g)
        for (const auto& edge : plan.groups[g].after) add(edge.group, g, false);
    each_barrier_edge(plan, [&](std::uint32_t from, std::uint32_t to, const BarrierSpec&) { add(from, to, true); });
    const auto layout = lay_out(sizes, arrows);
    if (layout.too_large) {
        const auto message = fmt::format("{} tasks and {} arrows are too many for a picture: -o dot or -o json has them all",
                                         tasks.size(), arrows.size());
        return svg_of(plan.name, text_width(message, title_size, false) + 48, 60,
                      fmt::format("<text x=\"24\" y=\"35\">{}</text>\n", escape_markup(message)));
    }
    std::string body;
    for (std::size_t i = 0; i < arrows.size(); ++i)
        if (const auto& route = layout.routes[i]; route.points.size() > 1)
            body += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#667\"{} marker-{}=\"url(#tip)\"/>\n", route_path(route),
                                arrows[i].dashed ? " stroke-dasharray=\"5 4\"" : "", route.backwards ? "start" : "end");
    for (std::size_t g = 0; g < tasks.size(); ++g) draw_box(body, layout.boxes[g], tasks[g], texts[g]);
    int width = layout.width;
    body += legend(tasks, arrows, has_begun(run), layout.height, width);
    return svg_of(plan.name, width, layout.height + 24, body);
}

} // namespace orrery::jobs
