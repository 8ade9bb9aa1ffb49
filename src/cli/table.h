#pragma once

#include "cli/terminal.h"

#include <string>
#include <vector>

namespace orrery::cli {

struct Cell {
    std::string text;
    Style style = Style::plain;
};

/// A table with columns as wide as their contents. If the terminal is narrower, columns are cut with "…"; the first column, which
/// has the names, is cut last.
class Table {
public:
    explicit Table(std::vector<std::string> titles) : titles_(std::move(titles)) {}
    void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
    bool empty() const { return rows_.empty(); }
    std::size_t size() const { return rows_.size(); }
    /// The lines of the table. `width` 0: unlimited. At most `max_rows` rows; 0: all.
    std::string render(int width, bool colour, std::size_t max_rows = 0) const;

private:
    std::vector<std::string> titles_;
    std::vector<std::vector<Cell>> rows_;
};

} // namespace orrery::cli
