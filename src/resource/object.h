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
    /// The object in the form of the API: kind, name, labels, spec, status, created_at, updated_at, revision. The caller must have
    /// masked the secrets.
    json::object to_json() const;
};

/// Parses user input (a JSON body or a YAML document): kind, name, labels, spec. It ignores revision, status and times, so that
/// clients can send back what they read. Unknown fields are errors with a suggestion; the result has all errors. Applies default
/// values. `kind` is the kind of the route; `name` is the name in the path, or empty.
Result<Object> read_object(const Kind& kind, std::string_view name, const json::value& document);
/// The form of secrets in validated input: as the user sent them (plain, `sealed_mark`, or absent to keep the stored value), or
/// merged with the stored values (plain if new, {"$sealed": ...} if kept), so that a required secret must be present.
enum class Secrets { as_sent, joined };
/// Validates an object against the declaration, fills in default values and orders the keys as declared. Appends errors whose paths
/// begin with `path`.
void check_fields(const Field& declared, json::object& value, const std::string& path, std::vector<FieldError>& errors,
                  Secrets secrets = Secrets::as_sent);
void check_labels(const std::map<std::string, std::string>& labels, std::vector<FieldError>& errors);
/// Appends an error for each immutable field that changed.
void check_immutable(const Field& declared, const json::object& before, const json::object& after, const std::string& path,
                     std::vector<FieldError>& errors);
/// `invalid` with these field errors; ok when there are no errors.
Result<Unit> verdict(const Kind& kind, std::string_view name, std::vector<FieldError> errors);

/// Whether the text can be the name of a resource.
bool is_valid_name(std::string_view name);
/// Empty when the text has the format; else what is expected: "must be an IP address".
std::string check_format(Format format, std::string_view text);

/// Calls `visit(field, path, value)` for each secret, or each reference, in `value`. Visitors may replace the value.
using Visitor = std::function<void(const Field&, const std::string&, json::value&)>;
void visit_secrets(const Field& declared, json::object& value, const std::string& path, const Visitor& visit);
void visit_references(const Field& declared, json::object& value, const std::string& path, const Visitor& visit);
/// Visits each {secret: NAME.KEY} that replaces a text. `visit_references` visits those too, as references to the Secret.
using NamedSecretVisitor = std::function<void(const std::string& path, const SecretReference& named)>;
void visit_named_secrets(const Field& declared, json::object& value, const std::string& path, const NamedSecretVisitor& visit);
/// The reference in {secret: NAME.KEY}; nullopt for other values.
std::optional<SecretReference> named_secret(const json::value& value);
/// Replaces all secrets by `sealed_mark`.
void mask_secrets(const Kind& kind, json::object& spec);
/// {"$sealed": "v1:..."}: the text in it, or null.
const json::string* sealed_text(const json::value& value);

/// RFC 7396.
void merge_patch(json::value& target, const json::value& patch);
/// A path at which two objects differ ("spec.ssh.port"), with the old and the new value; secrets are masked as "(secret)".
struct Difference {
    std::string path;
    json::value before, after; ///< null: absent
};
/// `before` and `after` contain "labels" and "spec".
std::vector<Difference> differences(const Kind& kind, const json::object& before, const json::object& after);

/// Size limit of the stored form: the limit of the store minus space for the key and the audit event.
constexpr std::size_t max_object_size = store::max_value_size - (16 << 10);

/// Depth limit of the stored form: the input, nested once more in the evidence of an event.
constexpr std::size_t max_stored_depth = 128;

/// Converts to and from the stored form: the text of `to_json` without the revision, which is that of the record. Errors of
/// `from_stored`: `internal` with the key.
std::string to_stored(const Object& object);
/// Whether two records of a resource differ only in status and times. Compares text without parsing, for observers of user changes.
bool same_but_for_status(const store::Record& before, const store::Record& after);
Result<Object> from_stored(const store::Record& record);

} // namespace orrery::resource
