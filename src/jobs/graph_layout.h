#pragma once

#include <cstdint>
#include <vector>

/// Private to graph_svg.cpp: the positions of boxes and arrows.
namespace orrery::jobs {

struct GraphArrow {
    std::uint32_t from = 0, to = 0; ///< boxes
    bool dashed = false;
};

struct BoxSize {
    int width = 0, height = 0;
};

struct GraphLayout {
    struct Box {
        int x = 0, y = 0, width = 0, height = 0;
    };
    struct Point {
        int x = 0, y = 0;
    };
    /// From the right side of a box to the left side of another: pairs of points. Between the points of a pair the arrow curves
    /// through the gap between two columns; from a pair to the next it runs straight through a lane without boxes.
    struct Route {
        std::vector<Point> points;
        bool backwards = false; ///< it closes a cycle: its tip is at its first point
    };
    std::vector<Box> boxes;
    std::vector<Route> routes; ///< one for each arrow
    int width = 0, height = 0;
    bool too_large = false; ///< too many boxes and arrows for a readable picture; all else is empty
};

/// Places boxes in columns from left to right: each box to the right of all boxes with an arrow to it. An arrow that passes a
/// column has a lane of its own there, so that no arrow crosses a box.
GraphLayout lay_out(const std::vector<BoxSize>& sizes, const std::vector<GraphArrow>& arrows);

} // namespace orrery::jobs
