#pragma once

#include <boost/json/object.hpp>

#include <map>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "resource/kind.h"
#include "store/store.h"

namespace orrery::resource {

/// One resource. Users write labels and spec; only controllers write status.
struct Object {
    std::string kind; ///< "Node"
    std::string name;
    std::map<std::string, std::string> labels;
    json::object spec;
    json::object status;
    store::Revision revision = 0; ///< of its newest write; 0 before the first
    WallTime created_at{}, updated_at{};

    /// "nodes/n1"
    std::string key(const Kind& of) const { return of.prefix() + name; }
    /// The object as the API gives it: kind, name, labels, spec, status, revision, created_at, updated_at. Secrets must have been taken out.
    json::object to_json() const;
};

/// Reads what a user sent (a JSON body or a YAML document): kind, name, labels, spec; revision, status and times are accepted and ignored, so that what was
/// read can be sent back. Unknown fields anywhere are errors with a suggestion; all errors at once. Applies defaults. `kind` is what the route says;
/// `name` what the path says, or empty.
Result<Object> read_object(const Kind& kind, std::string_view name, const json::value& document);
/// Only the checks of `spec` (already an object) against the declaration: defaults are filled in. Errors are appended with `path` before each.
void check_fields(const Field& declared, json::object& value, const std::string& path, std::vector<FieldError>& errors);
/// Fields that may not change and did.
void check_immutable(const Field& declared, const json::object& before, const json::object& after, const std::string& path, std::vector<FieldError>& errors);
/// `invalid` with these fields, or ok.
Result<Unit> verdict(const Kind& kind, std::string_view name, std::vector<FieldError> errors);

/// May it name a resource?
bool is_valid_name(std::string_view name);

/// RFC 7396.
void merge_patch(json::value& target, const json::value& patch);
/// Paths at which two values differ, "spec.ssh.port", with the old and the new value; secrets and sealed values as "(secret)".
struct Difference {
    std::string path;
    json::value before, after; ///< null: absent
};
std::vector<Difference> differences(const Kind& kind, const json::object& before, const json::object& after);

/// The stored form and back. Strict: what does not read is `internal`, with the key.
std::string to_stored(const Object& object);
Result<Object> from_stored(const store::Record& record);

} // namespace orrery::resource
