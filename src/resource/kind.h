#pragma once

#include "core/task.h"
#include "resource/role.h"

#include <boost/json/value.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The declaration of a kind of resource. Validation, default values, OpenAPI, the tables and the completion of the command line
/// are all derived from it.
///
///     Kind node("Node", "nodes", "A host that orrery manages.");
///     node.spec(text("address", "How to reach it.").required().format(Format::host))
///         .spec(object("ssh", "How to log in.")
///                   .with(text("user", "Account.").default_value("root"))
///                   .with(integer("port", "Port.").between(1, 65535).default_value(22))
///                   .with(text("key", "Private key.").refers_to("Secret")))
///         .column("ADDRESS", "spec.address");
namespace orrery::resource {

namespace json = boost::json;

enum class Type { text, integer, number, boolean, duration, time, list, map, object, any };
std::string_view name_of(Type type);

/// The format of a text.
enum class Format {
    any,
    name,     ///< the name of a resource: a-z 0-9 - . up to 253 characters, begins and ends with a letter or digit
    host,     ///< an IP address or a host name
    address,  ///< an IP address
    url,      ///< http or https
    one_line, ///< no control characters
    data,     ///< any characters except NUL; other formats forbid control characters except line ends and tabs
};

/// A field of a kind. Construct it with the functions below and chain the setters.
class Field {
public:
    Field(std::string name, Type type, std::string doc) : name_(std::move(name)), doc_(std::move(doc)), type_(type) {}

    Field&& required() && {
        required_ = true;
        return std::move(*this);
    }
    /// The value when the user gives none.
    Field&& default_value(json::value value) && {
        default_ = std::move(value);
        return std::move(*this);
    }
    /// Inclusive limits of a number, of the length of a text, of the number of items, or of the seconds of a duration.
    Field&& between(std::int64_t min, std::int64_t max) && {
        min_ = min;
        max_ = max;
        return std::move(*this);
    }
    Field&& one_of(std::vector<std::string> choices) && {
        choices_ = std::move(choices);
        return std::move(*this);
    }
    Field&& format(Format format) && {
        format_ = format;
        return std::move(*this);
    }
    Field&& refers_to(std::string kind) && {
        refers_to_ = std::move(kind);
        return std::move(*this);
    }
    /// Sealed at rest, never returned by the API, masked in diffs and events. Texts in the spec only (also items of maps and
    /// lists).
    Field&& secret() && {
        secret_ = true;
        return std::move(*this);
    }
    /// The user may reference a value of a Secret instead: {secret: NAME.KEY}. The Secret and the key must exist when the reference
    /// is written, and the Secret cannot be removed while it is referenced. Texts in the spec only.
    Field&& or_secret() && {
        or_secret_ = true;
        return std::move(*this);
    }
    /// Cannot change after creation.
    Field&& immutable() && {
        immutable_ = true;
        return std::move(*this);
    }
    /// Lists can be filtered by a value of this field (`?subject=...`) without a scan. Texts at the top level of the spec only.
    Field&& indexed() && {
        indexed_ = true;
        return std::move(*this);
    }
    Field&& example(json::value value) && {
        example_ = std::move(value);
        return std::move(*this);
    }
    /// A field of an object.
    Field&& with(Field child) && {
        children_.push_back(std::move(child));
        return std::move(*this);
    }
    /// The type of the items of a list or of the values of a map.
    Field&& of(Field item) && {
        item_ = std::make_shared<const Field>(std::move(item));
        return std::move(*this);
    }

    /// The name of the field in an earlier version. Stored resources are rewritten when the server starts (migration.h), and the
    /// error for a request with the old name suggests the new one. Not for secrets, because they are sealed for their path.
    Field&& renamed_from(std::string old_name) && {
        old_name_ = std::move(old_name);
        return std::move(*this);
    }

    /// The accepted forms of a field of type `any`, for OpenAPI and `explain`. The `prepare` function of the kind validates them.
    Field&& forms(std::vector<Field> forms) && {
        forms_ = std::move(forms);
        return std::move(*this);
    }

    const std::string& name() const { return name_; }
    const std::string& doc() const { return doc_; }
    const std::string& old_name() const { return old_name_; } ///< or ""
    Type type() const { return type_; }
    bool is_required() const { return required_; }
    bool is_secret() const { return secret_; }
    bool takes_secret() const { return or_secret_; }
    bool is_immutable() const { return immutable_; }
    bool is_indexed() const { return indexed_; }
    const std::optional<json::value>& default_value() const { return default_; }
    const std::optional<json::value>& example_value() const { return example_; }
    std::optional<std::int64_t> min() const { return min_; }
    std::optional<std::int64_t> max() const { return max_; }
    const std::vector<std::string>& choices() const { return choices_; }
    Format text_format() const { return format_; }
    const std::string& reference() const { return refers_to_; } ///< the kind it refers to, or ""
    const std::vector<Field>& children() const { return children_; }
    const Field* item() const { return item_.get(); }
    const std::vector<Field>& forms() const { return forms_; }

private:
    std::string name_, doc_, refers_to_, old_name_;
    Type type_;
    Format format_ = Format::any;
    bool required_ = false, secret_ = false, or_secret_ = false, immutable_ = false, indexed_ = false;
    std::optional<json::value> default_, example_;
    std::optional<std::int64_t> min_, max_;
    std::vector<std::string> choices_;
    std::vector<Field> children_, forms_;
    std::shared_ptr<const Field> item_;
};

Field text(std::string name, std::string doc);
Field integer(std::string name, std::string doc);
Field number(std::string name, std::string doc);
Field boolean(std::string name, std::string doc);
Field duration(std::string name, std::string doc); ///< "30s"
Field time(std::string name, std::string doc);     ///< RFC 3339
Field list(std::string name, std::string doc, Field item);
Field map(std::string name, std::string doc, Field value);
Field object(std::string name, std::string doc);
Field any(std::string name, std::string doc); ///< any JSON

/// The value of a Secret that `{secret: NAME.KEY}` references. The last dot is the separator, as in `${secret.NAME.KEY}` of jobs.
struct SecretReference {
    std::string name, key;
    /// nullopt when the text is not NAME.KEY.
    static std::optional<SecretReference> parse(std::string_view text);
};

/// A column of the table that the command line prints.
struct Column {
    std::string title;
    std::string path;  ///< "spec.address", "status.state", "labels", "name", "age"
    bool wide = false; ///< only with -o wide
};

enum class Verb { create, read, update, remove };

/// Replaces stored secrets in responses. In a write it means: keep the stored value.
constexpr std::string_view sealed_mark = "(sealed)";

/// The first segment of the keys that guard references. It cannot be the plural of a kind.
constexpr std::string_view reference_guards = "references";

struct Object;
class Resources;
/// Keys of the store that a check has read, and the revision that each must still have when the write is applied.
using Expectations = std::vector<std::pair<std::string, std::int64_t>>;

/// A resource on its way into the store. The `prepare` function of the kind may change `after` (also its status), reject the write,
/// or put values into `once`, which only the response to this write contains. A new secret in `after` is a plain text; an unchanged
/// secret is the sealed object {"$sealed": ...} of `before`. `prepare` runs again when a concurrent write intervenes.
struct Draft {
    const Object* before; ///< null for a new resource
    Object& after;
    json::object once;
    bool dry_run = false;
    const Resources* resources = nullptr; ///< to read other resources
    Expectations expect;
    /// A program registers itself through a facade: resources that it names need not exist.
    bool self_registration = false;
    /// Keys of further resources that this one uses ("services/web"), beyond its `refers_to` fields. The write requires that they
    /// exist; a concurrent removal of one of them is retried and then finds this resource.
    std::vector<std::string> uses;
};

/// A resource that is about to be removed.
struct Removal {
    const Object& object;
    const Resources* resources = nullptr;
    Expectations expect;
};

class Kind {
public:
    Kind(std::string name, std::string plural, std::string doc);

    Kind& spec(Field field);
    Kind& status(Field field);
    Kind& column(std::string title, std::string path);
    Kind& wide_column(std::string title, std::string path);
    /// Default: all four.
    Kind& verbs(std::vector<Verb> verbs);
    /// Default: viewers read, operators write.
    Kind& access(Role read, Role write);
    /// Short names for the command line.
    Kind& also_called(std::vector<std::string> names);
    /// Runs in each create and update, after validation and before the write: for password hashing and for checks that a
    /// declaration cannot express.
    Kind& prepare(std::function<Task<Unit>(Context, Draft&)> prepare);
    /// Runs before a removal and may reject it.
    Kind& before_remove(std::function<Result<Unit>(Removal&)> check) {
        before_remove_ = std::move(check);
        return *this;
    }
    /// Rewrites a stored resource of an earlier version when `Field::renamed_from` is not sufficient: for free-form parts, and for
    /// fields whose structure changed. Runs once for each stored resource (migration.h); must not change current ones.
    Kind& migrate(std::function<void(json::object& spec, json::object& status)> migrate) {
        migrate_ = std::move(migrate);
        return *this;
    }
    /// The remedy when a resource is created under a name that is taken. Default: choose another name, or replace it.
    Kind& remedy_if_exists(std::string remedy) {
        remedy_if_exists_ = std::move(remedy);
        return *this;
    }
    /// Each resource belongs to the user that this indexed spec field names. Users other than admins can access only their own.
    Kind& owned_by(std::string field);
    /// A complete resource as an example, for documentation.
    Kind& example(std::string yaml);
    /// Writes have no audit event (for events themselves).
    Kind& unaudited();

    const std::string& name() const { return name_; }
    const std::string& plural() const { return plural_; }
    const std::string& doc() const { return doc_; }
    /// The object field that contains all fields of spec, or of status.
    const Field& spec() const { return spec_; }
    const Field& status() const { return status_; }
    const std::vector<Column>& columns() const { return columns_; }
    bool has(Verb verb) const;
    Role read_role() const { return read_role_; }
    Role write_role() const { return write_role_; }
    const std::vector<std::string>& other_names() const { return other_names_; }
    const std::string& example() const { return example_; }
    bool is_audited() const { return audited_; }
    const std::string& remedy_if_exists() const { return remedy_if_exists_; }
    const std::string& owner_field() const { return owner_field_; } ///< or ""
    bool has_secrets() const { return has_secrets_; }
    bool has_references() const { return has_references_; }
    /// Has an indexed field.
    bool has_indexes() const { return has_indexes_; }
    /// Names of the kind for the command line: "node", then the short names.
    std::vector<std::string> names() const;
    const std::function<Task<Unit>(Context, Draft&)>& preparation() const { return prepare_; }
    const std::function<Result<Unit>(Removal&)>& removal_check() const { return before_remove_; }
    const std::function<void(json::object&, json::object&)>& migration() const { return migrate_; }
    /// The key prefix in the store: "nodes/".
    std::string prefix() const { return plural_ + "/"; }

private:
    std::string name_, plural_, doc_, example_, owner_field_;
    std::string remedy_if_exists_ = "choose another name, or replace it";
    Field spec_, status_;
    std::vector<Column> columns_;
    std::vector<Verb> verbs_;
    std::vector<std::string> other_names_;
    Role read_role_ = Role::viewer, write_role_ = Role::operator_;
    bool audited_ = true, has_secrets_ = false, has_references_ = false, has_indexes_ = false;
    std::function<Task<Unit>(Context, Draft&)> prepare_;
    std::function<Result<Unit>(Removal&)> before_remove_;
    std::function<void(json::object&, json::object&)> migrate_;
};

/// All kinds of this server. Filled at start-up, read-only afterwards.
class Registry {
public:
    /// Referenced kinds must be registered before the server starts; `check` returns an error for those that are not.
    void add(Kind kind);
    Result<Unit> check() const;
    /// Finds a kind by "Node", "nodes", "node" or a short name; null when it does not exist.
    const Kind* find(std::string_view name) const;
    /// Errors: `not_found` with the nearest name as the remedy.
    Result<const Kind*> get(std::string_view name) const;
    const std::vector<std::unique_ptr<const Kind>>& all() const { return kinds_; }
    /// Lists at most `limit` resources that use a resource of `kind` without a declared reference (a job that waits for a service),
    /// as "Job/upgrade (spec.tasks[2].wait)". A resource in use cannot be removed.
    using Users = std::function<std::vector<std::string>(const Resources& resources, std::string_view name, std::size_t limit)>;
    void add_users(std::string_view kind, Users users) { users_[std::string(kind)].push_back(std::move(users)); }
    const std::vector<Users>& users_of(const Kind& kind) const {
        static const std::vector<Users> none;
        const auto at = users_.find(kind.name());
        return at == users_.end() ? none : at->second;
    }

private:
    std::vector<std::unique_ptr<const Kind>> kinds_;
    std::map<std::string, std::vector<Users>, std::less<>> users_;
};

} // namespace orrery::resource
