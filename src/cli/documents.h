#pragma once

#include "cli/cli.h"
#include "cli/kinds.h"

#include <string>
#include <vector>

namespace orrery::cli {

/// One resource out of a file.
struct FileDocument {
    std::string place; ///< "site/nodes.yaml:12", for messages
    const KindView* kind = nullptr;
    std::string name;
    json::value value;
};

/// Reads files, folders (all *.yaml, *.yml and *.json below them, in order of their names) and "-", and puts kinds that others
/// refer to before those. A list ("NodeList") gives its items. Documents that cannot be used are told in `errors` (each names its
/// place); the others are returned.
std::vector<FileDocument> read_documents(const Streams& streams, const std::vector<std::string>& paths, const KindCatalog& kinds,
                                         std::vector<Error>& errors);

} // namespace orrery::cli
