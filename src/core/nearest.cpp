#include "core/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace orrery {

namespace {

/// Edit distance: insertion, deletion, substitution, and transposition of neighbours cost one each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
    std::iota(last.begin(), last.end(), 0U);
    for (std::size_t i = 0; i < a.size(); ++i) {
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            row[j + 1] = std::min({last[j] + (a[i] == b[j] ? 0 : 1), last[j + 1] + 1, row[j] + 1});
            if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
        }
        before = std::exchange(last, row);
    }
    return last.back();
}

} // namespace

std::string_view nearest(std::string_view text, const std::string_view* begin, const std::string_view* end) {
    std::string_view best;
    // Allow one edit per three letters; weaker suggestions mislead.
    std::size_t best_distance = std::max<std::size_t>(1, text.size() / 3) + 1;
    for (const auto* candidate = begin; candidate != end; ++candidate)
        if (const auto distance = edit_distance(text, *candidate); distance < best_distance) {
            best_distance = distance;
            best = *candidate;
        }
    return best;
}

} // namespace orrery
