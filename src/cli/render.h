#pragma once

#include "cli/cli.h"
#include "cli/kinds.h"
#include "cli/table.h"

#include <string>
#include <string_view>
#include <vector>

/// Objects for people and for scripts.
namespace orrery::cli {

/// A value on one line: texts as they are, lists as "a,b", maps as "k=v,k=v".
std::string value_text(const json::value& value);
/// The cell of a column. "age" is the time since creation; times are told relative to now.
std::string column_text(const KindView& kind, const json::value& object, std::string_view path, WallTime now);
/// A table of objects with the kind's columns, the name first and the age last.
Table object_table(const KindView& kind, const std::vector<json::value>& objects, bool wide, WallTime now);

/// The object to be read by people and put back by `apply`: kind, name, labels and spec first.
std::string object_yaml(const json::value& object);

/// "spec.ssh.port: 22 → 2222", "labels.zone: a added", "spec.x: 3 removed" for each of a write's changes.
struct ShownChange {
    char sign = '~'; ///< '+', '-' or '~'
    std::string text;
};
std::vector<ShownChange> changes_of(const json::value& answer);
/// The leaves of a document that is yet to be made, as additions; secrets masked.
std::vector<ShownChange> additions_of(const KindView& kind, const json::value& document);
/// At most three of them on one line: "a: 1 → 2, b: 3 added and 2 more".
std::string changes_line(const std::vector<ShownChange>& changes);

Style style_of_outcome(std::string_view outcome);

/// Objects in -o yaml, json or name; several YAML documents are separated so that `apply` reads them back.
void print_yaml(std::ostream& out, const std::vector<json::value>& objects);

} // namespace orrery::cli
