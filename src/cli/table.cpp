#include "cli/table.h"

#include <algorithm>

namespace orrery::cli {

namespace {

constexpr int table_gap = 2;
constexpr int short_column = 15; ///< an IPv4 address: cut, such a value is of no use
constexpr int narrowest_column = 4;

/// Narrows the columns until the table fits: first the widest ones, down to short_column; then from the last column to the first,
/// because names and addresses are on the left.
void narrow(std::vector<int>& widths, int width) {
    int over = table_gap * static_cast<int>(widths.size() - 1) - width;
    for (const int one : widths) over += one;
    for (; over > 0; --over) {
        const auto widest = std::max_element(widths.begin() + 1, widths.end());
        if (widest == widths.end() || *widest <= short_column) break;
        --*widest;
    }
    for (auto column = widths.rbegin(); column != widths.rend() && over > 0; ++column) {
        const int cut = std::clamp(*column - narrowest_column, 0, over);
        *column -= cut;
        over -= cut;
    }
}

} // namespace

std::string Table::render(int width, bool colour, std::size_t max_rows) const {
    const auto shown = max_rows == 0 ? rows_.size() : std::min(max_rows, rows_.size());
    std::vector<std::vector<Cell>> clean(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(shown));
    std::vector<int> widths;
    for (const auto& title : titles_) widths.push_back(display_width(title));
    for (auto& row : clean) {
        row.resize(titles_.size());
        for (std::size_t i = 0; i < row.size(); ++i) {
            row[i].text = printable(row[i].text);
            widths[i] = std::max(widths[i], display_width(row[i].text));
        }
    }
    if (widths.empty()) return {};
    if (width > 0) narrow(widths, width);
    std::string out;
    const auto append = [&](std::string_view text, Style style, std::size_t column) {
        const auto cut = fit(text, widths[column]);
        out += paint(cut, style, colour);
        const int fill = widths[column] - display_width(cut) + table_gap;
        if (column + 1 < widths.size()) out.append(static_cast<std::size_t>(fill), ' ');
    };
    const auto end_line = [&] {
        while (out.ends_with(' ')) out.pop_back();
        out += '\n';
    };
    for (std::size_t i = 0; i < titles_.size(); ++i) append(titles_[i], Style::bold, i);
    end_line();
    for (const auto& row : clean) {
        for (std::size_t i = 0; i < row.size(); ++i) append(row[i].text, row[i].style, i);
        end_line();
    }
    return out;
}

} // namespace orrery::cli
