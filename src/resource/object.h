#pragma once

#include "core/clock.h"
#include "resource/kind.h"
#include "store/store.h"

#include <boost/json/object.hpp>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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
    /// The object as the API gives it: kind, name, labels, spec, status, created_at, updated_at, revision. Secrets must have been
    /// taken out.
    json::object to_json() const;
};

/// Reads what a user sent (a JSON body or a YAML document): kind, name, labels, spec; revision, status and times are accepted and
/// ignored, so that what was read can be sent back. Unknown fields anywhere are errors with a suggestion; all errors at once.
/// Applies defaults. `kind` is what the route says; `name` what the path says, or empty.
Result<Object> read_object(const Kind& kind, std::string_view name, const json::value& document);
/// How secrets stand in what is checked: as a user sent them (plain, or `sealed_mark`, or left out to keep what is stored), or
/// joined with what is stored (plain where new, {"$sealed": ...} where kept), so that a required one must be there.
enum class Secrets { as_sent, joined };
/// Only the checks of `spec` (already an object) against the declaration: defaults are filled in, keys put into the order of the
/// declaration. Errors are appended with `path` before each.
void check_fields(const Field& declared, json::object& value, const std::string& path, std::vector<FieldError>& errors,
                  Secrets secrets = Secrets::as_sent);
void check_labels(const std::map<std::string, std::string>& labels, std::vector<FieldError>& errors);
/// Fields that may not change and did.
void check_immutable(const Field& declared, const json::object& before, const json::object& after, const std::string& path,
                     std::vector<FieldError>& errors);
/// `invalid` with these fields, or ok.
Result<Unit> verdict(const Kind& kind, std::string_view name, std::vector<FieldError> errors);

/// May it name a resource?
bool is_valid_name(std::string_view name);
/// Does it have that form? Else what would be right: "must be an IP address".
std::string check_format(Format format, std::string_view text);

/// Calls `visit(field, path, value)` for each secret, or each reference, that `value` holds. Visitors may replace the value.
using Visitor = std::function<void(const Field&, const std::string&, json::value&)>;
void visit_secrets(const Field& declared, json::object& value, const std::string& path, const Visitor& visit);
void visit_references(const Field& declared, json::object& value, const std::string& path, const Visitor& visit);
/// Every secret becomes `sealed_mark`.
void mask_secrets(const Kind& kind, json::object& spec);
/// {"$sealed": "v1:..."}: the text in it, or null.
const json::string* sealed_text(const json::value& value);

/// RFC 7396.
void merge_patch(json::value& target, const json::value& patch);
/// Paths at which two values differ, "spec.ssh.port", with the old and the new value; secrets and sealed values as "(secret)".
struct Difference {
    std::string path;
    json::value before, after; ///< null: absent
};
/// `before` and `after` hold "labels" and "spec".
std::vector<Difference> differences(const Kind& kind, const json::object& before, const json::object& after);

/// What is stored of an object may be this large: the store's limit less what its key and its audit event need.
constexpr std::size_t max_object_size = store::max_value_size - (16 << 10);

/// And nest this deep: what was sent, once more within an event's evidence.
constexpr std::size_t max_stored_depth = 128;

/// The stored form and back: the text of `to_json` without its revision, which is the record's. Strict: what does not read is
/// `internal`, with the key.
std::string to_stored(const Object& object);
/// Whether two records of a resource differ in nothing but status and time. Without reading them: for who follows what users write.
bool same_but_for_status(const store::Record& before, const store::Record& after);
Result<Object> from_stored(const store::Record& record);

} // namespace orrery::resource
