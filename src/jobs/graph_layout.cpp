#include "jobs/graph_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace orrery::jobs {

namespace {

constexpr std::size_t max_vertices = 5000; ///< boxes and lanes
constexpr int margin = 24, gap_x = 72, gap_y = 22, lane_height = 6, sweeps = 12;

/// The layered drawing of Sugiyama et al.: break cycles, assign layers, give long arrows a vertex in each layer they pass, order
/// layers by the median of neighbours, then place.
class Layers {
public:
    Layers(const std::vector<BoxSize>& sizes, const std::vector<GraphArrow>& arrows) : sizes_(sizes), arrows_(arrows) {
        break_cycles();
        assign_layers();
    }

    bool too_large() const { return too_large_; }

    GraphLayout place() {
        order();
        place_vertically();
        return finish();
    }

private:
    struct Vertex {
        std::uint32_t layer = 0;
        int height = 0;
        double centre = 0;
        std::vector<std::uint32_t> before, after; ///< neighbours in the layers next to its own
    };

    std::uint32_t tail(std::size_t arrow) const { return reversed_[arrow] ? arrows_[arrow].to : arrows_[arrow].from; }
    std::uint32_t head(std::size_t arrow) const { return reversed_[arrow] ? arrows_[arrow].from : arrows_[arrow].to; }

    /// An arrow that leads back to a box on the way to it is drawn backwards. Solid arrows form no cycle and are walked first.
    void break_cycles() {
        reversed_.assign(arrows_.size(), false);
        std::vector<std::vector<std::size_t>> out(sizes_.size());
        for (const bool dashed : {false, true})
            for (std::size_t i = 0; i < arrows_.size(); ++i)
                if (arrows_[i].dashed == dashed) out[arrows_[i].from].push_back(i);
        enum class Seen : std::uint8_t { no, open, done };
        std::vector<Seen> seen(sizes_.size(), Seen::no);
        for (std::uint32_t root = 0; root < sizes_.size(); ++root) {
            if (seen[root] != Seen::no) continue;
            std::vector<std::pair<std::uint32_t, std::size_t>> path{{root, 0}};
            seen[root] = Seen::open;
            while (!path.empty()) {
                auto& [box, next] = path.back();
                if (next == out[box].size()) {
                    seen[box] = Seen::done;
                    path.pop_back();
                    continue;
                }
                const auto arrow = out[box][next++];
                const auto to = arrows_[arrow].to;
                if (seen[to] == Seen::open)
                    reversed_[arrow] = true;
                else if (seen[to] == Seen::no) {
                    seen[to] = Seen::open;
                    path.emplace_back(to, 0);
                }
            }
        }
    }

    void assign_layers() {
        std::vector<std::vector<std::size_t>> out(sizes_.size());
        std::vector<std::uint32_t> left(sizes_.size(), 0), ready;
        for (std::size_t i = 0; i < arrows_.size(); ++i) {
            if (tail(i) == head(i)) continue;
            out[tail(i)].push_back(i);
            ++left[head(i)];
        }
        vertices_.resize(sizes_.size());
        for (std::uint32_t box = 0; box < sizes_.size(); ++box) {
            vertices_[box].height = sizes_[box].height;
            if (left[box] == 0) ready.push_back(box);
        }
        for (std::size_t at = 0; at < ready.size(); ++at)
            for (const auto arrow : out[ready[at]]) {
                auto& to = vertices_[head(arrow)];
                to.layer = std::max(to.layer, vertices_[ready[at]].layer + 1);
                if (--left[head(arrow)] == 0) ready.push_back(head(arrow));
            }
        chains_.resize(arrows_.size());
        for (std::size_t i = 0; i < arrows_.size(); ++i) {
            auto& chain = chains_[i];
            chain.push_back(tail(i));
            if (tail(i) == head(i)) continue;
            for (auto layer = vertices_[tail(i)].layer + 1; layer < vertices_[head(i)].layer; ++layer) {
                if (vertices_.size() >= max_vertices) {
                    too_large_ = true;
                    return;
                }
                chain.push_back(static_cast<std::uint32_t>(vertices_.size()));
                vertices_.push_back({layer, lane_height, 0, {}, {}});
            }
            chain.push_back(head(i));
            for (std::size_t k = 0; k + 1 < chain.size(); ++k) {
                vertices_[chain[k]].after.push_back(chain[k + 1]);
                vertices_[chain[k + 1]].before.push_back(chain[k]);
            }
        }
        too_large_ = vertices_.size() > max_vertices;
        for (std::uint32_t vertex = 0; vertex < vertices_.size(); ++vertex) {
            if (layers_.size() <= vertices_[vertex].layer) layers_.resize(vertices_[vertex].layer + 1);
            layers_[vertices_[vertex].layer].push_back(vertex);
        }
    }

    std::size_t crossings() const {
        std::vector<std::size_t> place(vertices_.size());
        std::size_t count = 0;
        for (const auto& layer : layers_)
            for (std::size_t i = 0; i < layer.size(); ++i) place[layer[i]] = i;
        for (const auto& layer : layers_) {
            std::vector<std::pair<std::size_t, std::size_t>> edges;
            for (const auto vertex : layer)
                for (const auto next : vertices_[vertex].after) edges.emplace_back(place[vertex], place[next]);
            for (std::size_t i = 0; i < edges.size(); ++i)
                for (std::size_t k = i + 1; k < edges.size(); ++k)
                    count += (edges[i].first < edges[k].first && edges[i].second > edges[k].second) ||
                             (edges[i].first > edges[k].first && edges[i].second < edges[k].second);
        }
        return count;
    }

    void order() {
        std::vector<double> place(vertices_.size());
        const auto number = [&](const std::vector<std::uint32_t>& layer) {
            for (std::size_t i = 0; i < layer.size(); ++i) place[layer[i]] = static_cast<double>(i);
        };
        for (const auto& layer : layers_) number(layer);
        constexpr std::size_t max_counted = 1500;
        const bool counted = vertices_.size() <= max_counted;
        auto best = layers_;
        auto fewest = counted ? crossings() : 0;
        for (int sweep = 0; sweep < (counted ? sweeps : 2); ++sweep) {
            const bool right = sweep % 2 == 0;
            for (std::size_t n = 1; n < layers_.size(); ++n) {
                auto& layer = layers_[right ? n : layers_.size() - 1 - n];
                std::vector<std::pair<double, std::uint32_t>> keyed;
                for (const auto vertex : layer) {
                    auto near = right ? vertices_[vertex].before : vertices_[vertex].after;
                    std::sort(near.begin(), near.end(), [&](auto a, auto b) { return place[a] < place[b]; });
                    const auto mid = near.size() / 2;
                    keyed.emplace_back(near.empty()           ? place[vertex]
                                       : near.size() % 2 == 1 ? place[near[mid]]
                                                              : (place[near[mid - 1]] + place[near[mid]]) / 2,
                                       vertex);
                }
                std::sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
                    return a.first != b.first ? a.first < b.first : place[a.second] < place[b.second];
                });
                for (std::size_t i = 0; i < layer.size(); ++i) layer[i] = keyed[i].second;
                number(layer);
            }
            if (!counted) continue;
            if (const auto now = crossings(); now < fewest) {
                fewest = now;
                best = layers_;
            }
        }
        if (counted) layers_ = std::move(best);
    }

    double apart(std::uint32_t above, std::uint32_t below) const {
        return (vertices_[above].height + vertices_[below].height) / 2.0 + gap_y;
    }

    /// As near to where each wants to be as the order allows: isotonic regression by pooling adjacent violators.
    void place_layer(const std::vector<std::uint32_t>& layer, const std::vector<double>& wanted) {
        struct Pool {
            double sum;
            std::size_t count;
            double mean() const { return sum / static_cast<double>(count); }
        };
        std::vector<Pool> pools;
        std::vector<double> offset(layer.size(), 0);
        for (std::size_t i = 0; i < layer.size(); ++i) {
            if (i > 0) offset[i] = offset[i - 1] + apart(layer[i - 1], layer[i]);
            pools.push_back({wanted[i] - offset[i], 1});
            while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
                const auto last = pools.back();
                pools.pop_back();
                pools.back().sum += last.sum;
                pools.back().count += last.count;
            }
        }
        std::size_t i = 0;
        for (const auto& pool : pools)
            for (std::size_t k = 0; k < pool.count; ++k, ++i) vertices_[layer[i]].centre = pool.mean() + offset[i];
    }

    void place_vertically() {
        for (const auto& layer : layers_) place_layer(layer, std::vector<double>(layer.size(), 0));
        for (int sweep = 0; sweep < sweeps; ++sweep)
            for (std::size_t n = 0; n < layers_.size(); ++n) {
                const auto& layer = layers_[sweep % 2 == 0 ? n : layers_.size() - 1 - n];
                std::vector<double> wanted;
                for (const auto vertex : layer) {
                    const auto& of = vertices_[vertex];
                    double sum = 0;
                    for (const auto near : of.before) sum += vertices_[near].centre;
                    for (const auto near : of.after) sum += vertices_[near].centre;
                    const auto count = of.before.size() + of.after.size();
                    wanted.push_back(count == 0 ? of.centre : sum / static_cast<double>(count));
                }
                place_layer(layer, wanted);
            }
        double top = 0;
        for (const auto& vertex : vertices_) top = std::min(top, vertex.centre - vertex.height / 2.0);
        for (auto& vertex : vertices_) vertex.centre += margin - top;
    }

    /// Where each arrow leaves or enters a box: spread over its side, in the order of their other ends.
    void spread(GraphLayout& out, bool leaving) {
        std::vector<std::vector<std::size_t>> at(sizes_.size());
        for (std::size_t i = 0; i < chains_.size(); ++i)
            if (chains_[i].size() > 1) at[leaving ? chains_[i].front() : chains_[i].back()].push_back(i);
        const auto other = [&](std::size_t arrow) {
            const auto& chain = chains_[arrow];
            return vertices_[leaving ? chain[1] : chain[chain.size() - 2]].centre;
        };
        for (std::uint32_t box = 0; box < sizes_.size(); ++box) {
            auto& arrows = at[box];
            std::sort(arrows.begin(), arrows.end(),
                      [&](auto a, auto b) { return std::pair(other(a), a) < std::pair(other(b), b); });
            for (std::size_t k = 0; k < arrows.size(); ++k) {
                const auto& of = out.boxes[box];
                auto& point = leaving ? out.routes[arrows[k]].points.front() : out.routes[arrows[k]].points.back();
                point = {leaving ? of.x + of.width : of.x,
                         of.y + static_cast<int>(static_cast<std::size_t>(of.height) * (k + 1) / (arrows.size() + 1))};
            }
        }
    }

    GraphLayout finish() {
        GraphLayout out;
        std::vector<int> left, width;
        int x = margin;
        for (const auto& layer : layers_) {
            int widest = 0;
            for (const auto vertex : layer)
                if (vertex < sizes_.size()) widest = std::max(widest, sizes_[vertex].width);
            left.push_back(x);
            width.push_back(widest);
            x += widest + gap_x;
        }
        out.width = x - gap_x + margin;
        for (std::uint32_t box = 0; box < sizes_.size(); ++box) {
            const auto& vertex = vertices_[box];
            out.boxes.push_back(
                {left[vertex.layer], static_cast<int>(vertex.centre - vertex.height / 2.0), width[vertex.layer], vertex.height});
        }
        for (const auto& vertex : vertices_)
            out.height = std::max(out.height, static_cast<int>(vertex.centre + vertex.height / 2.0) + margin);
        for (std::size_t i = 0; i < arrows_.size(); ++i) {
            GraphLayout::Route route;
            route.backwards = reversed_[i];
            if (chains_[i].size() > 1) {
                route.points.emplace_back();
                for (std::size_t k = 1; k + 1 < chains_[i].size(); ++k) {
                    const auto& lane = vertices_[chains_[i][k]];
                    const auto y = static_cast<int>(lane.centre);
                    route.points.push_back({left[lane.layer], y});
                    route.points.push_back({left[lane.layer] + width[lane.layer], y});
                }
                route.points.emplace_back();
            }
            out.routes.push_back(std::move(route));
        }
        spread(out, true);
        spread(out, false);
        return out;
    }

    const std::vector<BoxSize>& sizes_;
    const std::vector<GraphArrow>& arrows_;
    std::vector<bool> reversed_;
    std::vector<Vertex> vertices_; ///< the boxes, then lanes
    std::vector<std::vector<std::uint32_t>> chains_, layers_;
    bool too_large_ = false;
};

} // namespace

GraphLayout lay_out(const std::vector<BoxSize>& sizes, const std::vector<GraphArrow>& arrows) {
    Layers layers(sizes, arrows);
    if (!layers.too_large()) return layers.place();
    GraphLayout out;
    out.too_large = true;
    return out;
}

} // namespace orrery::jobs
