#pragma once

#include "core/result.h"
#include "fleet/import/import_file.h"

#include <string>
#include <vector>

/// Private to this folder: what both formats share.
namespace orrery::fleet {

/// Collects errors up to a limit and counts the rest.
class ImportErrors {
public:
    void add(const std::string& position, std::string message) {
        ++count_;
        if (fields_.size() < max_import_errors) fields_.push_back({position, std::move(message)});
    }
    std::size_t count() const { return count_; }
    /// `invalid` with all of them.
    Error error() &&;

private:
    std::size_t count_ = 0;
    std::vector<FieldError> fields_;
};

/// Sets driver and address from pm_type and pm_addr; reports what is wrong with them.
void set_bmc(ImportEntry& entry, std::string_view pm_type, std::string_view pm_addr, ImportErrors& errors);
/// Checks each entry by itself, and that names, BMCs and MAC addresses occur once in the file.
void check_entries(const std::vector<ImportEntry>& entries, ImportErrors& errors);
/// Adds a MAC address in its one form; reports another text.
void add_mac(ImportEntry& entry, std::string_view text, ImportErrors& errors);

} // namespace orrery::fleet
