#include "core/markup.h"
#include "jobs/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

/// The graph of a job as a picture: groups in columns by how much must be done before them.
namespace orrery::jobs {

namespace {

struct DrawnNode {
    std::string title, detail, colour;
    std::uint32_t column = 0, place = 0;
};

std::string colour_of(const Plan& plan, const JobRun* run, std::uint32_t g) {
    if (run == nullptr) return "#e8edf3";
    bool running = false, bad = false, open = false, waiting = false;
    for (std::uint32_t i = 0; i < plan.groups[g].count; ++i) {
        const auto state = run->scheduler->row(plan.groups[g].first + i).state;
        running = running || state == TaskState::running;
        waiting = waiting || state == TaskState::waiting || state == TaskState::ready;
        bad = bad || state == TaskState::failed || state == TaskState::lost || state == TaskState::skipped ||
              state == TaskState::cancelled;
        open = open || !is_over(state);
    }
    return bad ? "#f4b8b0" : running ? "#b9d7f5" : waiting ? "#f7e3a4" : open ? "#e8edf3" : "#bfe5c3";
}

std::vector<DrawnNode> drawn(const Plan& plan, const JobRun* run) {
    std::vector<DrawnNode> nodes(plan.groups.size());
    // Columns: the longest way from a beginning. Groups are few; go round until nothing moves.
    for (bool moved = true; moved;) {
        moved = false;
        for (std::uint32_t g = 0; g < plan.groups.size(); ++g)
            for (const auto& edge : plan.groups[g].after)
                if (nodes[g].column < nodes[edge.group].column + 1) {
                    nodes[g].column = nodes[edge.group].column + 1;
                    moved = true;
                }
    }
    std::vector<std::uint32_t> filled;
    for (std::uint32_t g = 0; g < plan.groups.size(); ++g) {
        auto& node = nodes[g];
        if (filled.size() <= node.column) filled.resize(node.column + 1, 0);
        node.place = filled[node.column]++;
        node.title = plan.spec.tasks[g].name;
        node.colour = colour_of(plan, run, g);
        const auto& of = plan.groups[g];
        if (of.count > 1 || !of.hosts.empty())
            node.detail = of.hosts.size() == 1 ? plan.hosts[of.hosts[0]] : fmt::format("{} machines", of.hosts.size());
        for (const auto& barrier : plan.spec.tasks[g].wait)
            node.detail += fmt::format("{}waits: {}", node.detail.empty() ? "" : " · ", barrier.text());
    }
    return nodes;
}

std::string escaped_dot(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out;
}

std::string shortened(std::string_view text, std::size_t most) {
    if (text.size() <= most) return std::string(text);
    auto end = most - 1;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end; // not within a character
    return std::string(text.substr(0, end)) + "…";
}

/// Who opens a barrier, as far as the plan says.
template <class F> void each_barrier_edge(const Plan& plan, F&& visit) {
    for (std::uint32_t g = 0; g < plan.groups.size(); ++g)
        for (const auto& barrier : plan.spec.tasks[g].wait)
            for (std::uint32_t other = 0; other < plan.groups.size(); ++other)
                for (const auto& ref : plan.spec.tasks[other].provides)
                    if (ref.service == barrier.service && (barrier.tag.empty() || ref.tag == barrier.tag)) visit(other, g, barrier);
}

} // namespace

std::string graph_dot(const Plan& plan, const JobRun* run) {
    const auto nodes = drawn(plan, run);
    std::string out =
        fmt::format("digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n",
                    escaped_dot(plan.name));
    for (std::uint32_t g = 0; g < nodes.size(); ++g)
        out += fmt::format("  t{} [label=\"{}{}{}\", fillcolor=\"{}\"];\n", g, escaped_dot(nodes[g].title),
                           nodes[g].detail.empty() ? "" : "\\n", escaped_dot(nodes[g].detail), nodes[g].colour);
    for (std::uint32_t g = 0; g < nodes.size(); ++g)
        for (const auto& edge : plan.groups[g].after)
            out += fmt::format("  t{} -> t{}{};\n", edge.group, g, edge.same_host ? " [label=\"same host\"]" : "");
    each_barrier_edge(plan, [&](std::uint32_t from, std::uint32_t to, const BarrierSpec& barrier) {
        out += fmt::format("  t{} -> t{} [style=dashed, label=\"{}\"];\n", from, to, escaped_dot(barrier.text()));
    });
    return out + "}\n";
}

std::string graph_svg(const Plan& plan, const JobRun* run) {
    constexpr int width = 220, height = 46, gap_x = 70, gap_y = 22, margin = 20;
    const auto nodes = drawn(plan, run);
    std::uint32_t columns = 1, places = 1;
    for (const auto& node : nodes) {
        columns = std::max(columns, node.column + 1);
        places = std::max(places, node.place + 1);
    }
    const auto x_of = [&](const DrawnNode& node) { return margin + static_cast<int>(node.column) * (width + gap_x); };
    const auto y_of = [&](const DrawnNode& node) { return margin + static_cast<int>(node.place) * (height + gap_y); };
    std::string out =
        fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
                    "font-family=\"sans-serif\" font-size=\"13\">\n<title>{2}</title>\n"
                    "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" "
                    "orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"#667\"/></marker></defs>\n",
                    2 * margin + static_cast<int>(columns) * (width + gap_x) - gap_x,
                    2 * margin + static_cast<int>(places) * (height + gap_y) - gap_y, escape_markup(plan.name));
    const auto line = [&](std::uint32_t from, std::uint32_t to, bool dashed) {
        const int x1 = x_of(nodes[from]) + width, y1 = y_of(nodes[from]) + height / 2;
        const int x2 = x_of(nodes[to]), y2 = y_of(nodes[to]) + height / 2;
        const int bend = std::max(30, std::abs(x2 - x1) / 2);
        out += fmt::format("<path d=\"M{} {}C{} {} {} {} {} {}\" fill=\"none\" stroke=\"#667\"{} marker-end=\"url(#tip)\"/>\n", x1,
                           y1, x1 + bend, y1, x2 - bend, y2, x2, y2, dashed ? " stroke-dasharray=\"5 4\"" : "");
    };
    for (std::uint32_t g = 0; g < nodes.size(); ++g)
        for (const auto& edge : plan.groups[g].after) line(edge.group, g, false);
    each_barrier_edge(plan, [&](std::uint32_t from, std::uint32_t to, const BarrierSpec&) { line(from, to, true); });
    for (const auto& node : nodes) {
        const int x = x_of(node), y = y_of(node);
        out += fmt::format(
            "<g><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"{}\" stroke=\"#556\"/>"
            "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            escape_markup(node.title + (node.detail.empty() ? "" : ": " + node.detail)), x, y, width, height, node.colour, x + 10,
            y + 19, escape_markup(shortened(node.title, 28)));
        if (!node.detail.empty())
            out += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"11\" fill=\"#445\">{}</text>", x + 10, y + 36,
                               escape_markup(shortened(node.detail, 36)));
        out += "</g>\n";
    }
    return out + "</svg>\n";
}

} // namespace orrery::jobs
