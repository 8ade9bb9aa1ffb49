#include "core/text.h"
#include "fleet/import/import_errors.h"
#include "fleet/import/import_file.h"

#include <fmt/format.h>

#include <algorithm>

/// The CSV form of an import file.
namespace orrery::fleet {

namespace {

/// The fields of one line. Quotes as in RFC 4180, without line ends in them. `invalid` for a quote that is not closed.
Result<std::vector<std::string>> split_csv_line(std::string_view line) {
    std::vector<std::string> out(1);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
            out.back() += '"';
            ++i;
        } else if (c == '"' && (quoted || out.back().empty())) {
            quoted = !quoted;
        } else if (c == ',' && !quoted) {
            out.emplace_back();
        } else {
            out.back() += c;
        }
    }
    if (quoted) return Error{Code::invalid, "a quote is not closed"};
    return out;
}

std::string_view without_spaces(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
    return text;
}

void read_csv_line(std::string_view line, ImportEntry& entry, ImportErrors& errors) {
    const auto fields = split_csv_line(line);
    if (!fields.ok()) return errors.add(entry.position, fields.error().message);
    if (fields->size() < 4 || fields->size() > 5)
        return errors.add(entry.position,
                          fmt::format("has {} fields; pm_type,pm_addr,pm_user,pm_password,mac are needed", fields->size()));
    const auto field = [&](std::size_t at) { return without_spaces((*fields)[at]); };
    set_bmc(entry, field(0), field(1), errors);
    entry.username = field(2);
    entry.password = (*fields)[3]; // as it is: a space may belong to it
    if (fields->size() < 5) return;
    auto macs = field(4);
    while (!macs.empty()) {
        const auto end = std::min(macs.find(' '), macs.size());
        add_mac(entry, macs.substr(0, end), errors);
        macs = without_spaces(macs.substr(end));
    }
}

} // namespace

Result<std::vector<ImportEntry>> parse_import_csv(std::string_view text) {
    if (text.size() > max_text_size)
        return Error{Code::too_large, fmt::format("the import file has {} bytes; at most {} are read", text.size(), max_text_size)};
    ImportErrors errors;
    std::vector<ImportEntry> out;
    int number = 0;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        auto line = text.substr(0, end);
        text.remove_prefix(std::min(text.size(), end + 1));
        ++number;
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (const auto shown = without_spaces(line); shown.empty() || shown.starts_with('#')) continue;
        if (out.size() == max_import_entries)
            return Error{Code::too_large, fmt::format("the import file has more than {} machines", max_import_entries),
                         "divide the file"};
        auto& entry = out.emplace_back();
        entry.position = fmt::format("line {}", number);
        read_csv_line(line, entry, errors);
    }
    check_entries(out, errors);
    if (errors.count() > 0) return std::move(errors).error();
    return out;
}

} // namespace orrery::fleet
