#pragma once

#include "cli/cli.h"
#include "cli/kinds.h"

#include <memory>
#include <string>
#include <vector>

namespace orrery::cli {

/// One resource of a file.
struct FileDocument {
    std::string location; ///< "site/nodes.yaml:12", for messages
    const KindView* kind = nullptr;
    std::string name;
    json::value value;
    std::shared_ptr<const std::string> text; ///< the text of the file
    int line = 1;                            ///< the first line of the document

    /// Adds the resource, its location and the line of each field to an error.
    Error about(Error error) const;
};

/// Reads files, folders (all *.yaml, *.yml and *.json in them, in order of their names) and "-". Returns the documents in an order
/// in which a kind comes before the kinds that refer to it; a list ("NodeList") is replaced by its items. Appends an error with its
/// location for each document that is not valid.
std::vector<FileDocument> read_documents(const Streams& streams, const std::vector<std::string>& paths, const KindCatalog& kinds,
                                         std::vector<Error>& errors);

} // namespace orrery::cli
