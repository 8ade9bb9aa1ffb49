#pragma once

#include "cli/cli.h"
#include "cli/kinds.h"
#include "cli/table.h"

#include <string>
#include <string_view>
#include <vector>

/// Objects as text.
namespace orrery::cli {

/// A value on one line: strings unchanged, lists as "a,b", maps as "k=v,k=v".
std::string value_text(const json::value& value);
/// The printable text of the value at a path, or "".
std::string shown_at(const json::value& object, std::string_view path);
/// The text of a column. "age" is the time since creation; times are relative to `now`.
std::string column_text(const KindView& kind, const json::value& object, std::string_view path, WallTime now);
/// A table of objects with the columns of the kind, the name first and the age last.
Table object_table(const KindView& kind, const std::vector<json::value>& objects, bool wide, WallTime now);

/// An object as YAML that `apply` accepts: kind, name, labels and spec first.
std::string object_yaml(const json::value& object);

/// A change of one field: "spec.ssh.port: 22 → 2222", "labels.zone: a added", "spec.x: 3 removed".
struct ShownChange {
    char sign = '~'; ///< '+', '-' or '~'
    std::string text;
};
/// The changes in the response of a write.
std::vector<ShownChange> changes_of(const json::value& answer);
/// The fields of a new document as additions; secrets are masked.
std::vector<ShownChange> additions_of(const KindView& kind, const json::value& document);
/// At most three changes on one line: "a: 1 → 2, b: 3 added and 2 more".
std::string changes_line(const std::vector<ShownChange>& changes);

Style style_of_outcome(std::string_view outcome);

/// Prints objects as YAML documents that `apply` accepts.
void print_yaml(std::ostream& out, const std::vector<json::value>& objects);

} // namespace orrery::cli
