#pragma once

#include "core/task.h"
#include "resource/role.h"

#include <boost/json/value.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What a kind of resource is, declared once. Validation, defaults, OpenAPI, the command line's tables and completions all follow
/// from it.
///
///     Kind node("Node", "nodes", "A machine that orrery manages.");
///     node.spec(text("address", "How to reach it.").required().format(Format::host))
///         .spec(object("ssh", "How to log in.")
///                   .with(text("user", "Account.").otherwise("root"))
///                   .with(integer("port", "Port.").between(1, 65535).otherwise(22))
///                   .with(text("key", "Private key.").refers_to("Secret")))
///         .column("ADDRESS", "spec.address");
namespace orrery::resource {

namespace json = boost::json;

enum class Type { text, integer, number, boolean, duration, time, list, map, object, any };
std::string_view name_of(Type type);

/// What a text must look like.
enum class Format {
    any,
    name,     ///< what may name a resource: a-z 0-9 - . up to 253 characters, begins and ends with a letter or digit
    host,     ///< an IP address or a host name
    address,  ///< an IP address
    url,      ///< http or https
    one_line, ///< no control characters
};

/// A field of a kind. Made with the functions below; each setter returns the field, so that a declaration reads as a sentence.
class Field {
public:
    Field(std::string name, Type type, std::string doc) : name_(std::move(name)), doc_(std::move(doc)), type_(type) {}

    Field&& required() && {
        required_ = true;
        return std::move(*this);
    }
    /// The value where none is given.
    Field&& otherwise(json::value value) && {
        default_ = std::move(value);
        return std::move(*this);
    }
    /// Least and greatest number, length of a text, number of items, or seconds of a duration.
    Field&& between(std::int64_t least, std::int64_t greatest) && {
        least_ = least;
        greatest_ = greatest;
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
    /// Sealed at rest, never given out again, masked in diffs and events. Texts in the spec only (also as items of maps and lists).
    Field&& secret() && {
        secret_ = true;
        return std::move(*this);
    }
    /// Cannot change once the resource exists.
    Field&& immutable() && {
        immutable_ = true;
        return std::move(*this);
    }
    /// Lists can be asked for one value of it (`?subject=...`) without a scan. Top level of spec, texts only.
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
    /// What a list's items or a map's values are.
    Field&& of(Field item) && {
        item_ = std::make_shared<const Field>(std::move(item));
        return std::move(*this);
    }

    const std::string& name() const { return name_; }
    const std::string& doc() const { return doc_; }
    Type type() const { return type_; }
    bool is_required() const { return required_; }
    bool is_secret() const { return secret_; }
    bool is_immutable() const { return immutable_; }
    bool is_indexed() const { return indexed_; }
    const std::optional<json::value>& default_value() const { return default_; }
    const std::optional<json::value>& example_value() const { return example_; }
    std::optional<std::int64_t> least() const { return least_; }
    std::optional<std::int64_t> greatest() const { return greatest_; }
    const std::vector<std::string>& choices() const { return choices_; }
    Format text_format() const { return format_; }
    const std::string& reference() const { return refers_to_; } ///< the kind it refers to, or ""
    const std::vector<Field>& children() const { return children_; }
    const Field* item() const { return item_.get(); }

private:
    std::string name_, doc_, refers_to_;
    Type type_;
    Format format_ = Format::any;
    bool required_ = false, secret_ = false, immutable_ = false, indexed_ = false;
    std::optional<json::value> default_, example_;
    std::optional<std::int64_t> least_, greatest_;
    std::vector<std::string> choices_;
    std::vector<Field> children_;
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

/// A column of the command line's table.
struct Column {
    std::string title;
    std::string path;  ///< "spec.address", "status.state", "labels", "name", "age"
    bool wide = false; ///< only with -o wide
};

enum class Verb { create, read, update, remove };

/// What stands in the place of a stored secret wherever an object is shown. Sent back in a write it means: keep what is stored.
constexpr std::string_view sealed_mark = "(sealed)";

/// The first segment of the keys that hold references in place; no kind may have it as its plural.
constexpr std::string_view reference_guards = "references";

struct Object;
class Resources;
/// Other keys of the store, and the revision each must still have when the write is made: what a check relied on.
using Expectations = std::vector<std::pair<std::string, std::int64_t>>;

/// What a write is about to store. A kind's `prepare` may change `after` (its status too), refuse, or put things into `once` that
/// the answer shows this one time. A secret in `after` that was given anew is a plain text; one that stays is as it is in `before`,
/// sealed: the object {"$sealed": ...}. It may run more than once for one write, when somebody else wrote in between.
struct Draft {
    const Object* before; ///< null for a new one
    Object& after;
    json::object once;
    bool dry_run = false;
    const Resources* resources = nullptr; ///< to look at others
    Expectations expect;
};

/// What is about to be removed.
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
    /// Other names the command line knows it by.
    Kind& also_called(std::vector<std::string> names);
    /// Runs in every create and update after validation, before anything is stored: hashing of passwords, checks that no table can
    /// say.
    Kind& prepare(std::function<Task<Unit>(Context, Draft&)> prepare);
    /// Runs before a removal, which it may refuse.
    Kind& before_remove(std::function<Result<Unit>(Removal&)> check) {
        before_remove_ = std::move(check);
        return *this;
    }
    /// Each belongs to the user that this (indexed) spec field names: others than admins see and touch only their own.
    Kind& owned_by(std::string field);
    /// A whole resource as an example, for documentation.
    Kind& example(std::string yaml);
    /// Writes of it leave no audit event (events themselves).
    Kind& unaudited();

    const std::string& name() const { return name_; }
    const std::string& plural() const { return plural_; }
    const std::string& doc() const { return doc_; }
    /// The pseudo-field that holds all of spec, or of status.
    const Field& spec() const { return spec_; }
    const Field& status() const { return status_; }
    const std::vector<Column>& columns() const { return columns_; }
    bool has(Verb verb) const;
    Role read_role() const { return read_role_; }
    Role write_role() const { return write_role_; }
    const std::vector<std::string>& other_names() const { return other_names_; }
    const std::string& example() const { return example_; }
    bool is_audited() const { return audited_; }
    const std::string& owner_field() const { return owner_field_; } ///< or ""
    bool has_secrets() const { return has_secrets_; }
    bool has_references() const { return has_references_; }
    /// Has an indexed field.
    bool has_indexes() const { return has_indexes_; }
    /// What the command line calls one of it: "node", then the other names.
    std::vector<std::string> names() const;
    const std::function<Task<Unit>(Context, Draft&)>& preparation() const { return prepare_; }
    const std::function<Result<Unit>(Removal&)>& removal_check() const { return before_remove_; }
    /// Where it lies in the store: "nodes/".
    std::string prefix() const { return plural_ + "/"; }

private:
    std::string name_, plural_, doc_, example_, owner_field_;
    Field spec_, status_;
    std::vector<Column> columns_;
    std::vector<Verb> verbs_;
    std::vector<std::string> other_names_;
    Role read_role_ = Role::viewer, write_role_ = Role::operator_;
    bool audited_ = true, has_secrets_ = false, has_references_ = false, has_indexes_ = false;
    std::function<Task<Unit>(Context, Draft&)> prepare_;
    std::function<Result<Unit>(Removal&)> before_remove_;
};

/// All kinds this server knows. Filled at start-up, then only read.
class Registry {
public:
    /// References must name kinds that are registered by the time the server starts; `check` says which are not.
    void add(Kind kind);
    Result<Unit> check() const;
    /// By "Node", "nodes", "node" or another name of it; null where there is none.
    const Kind* find(std::string_view name) const;
    /// `not_found` with the nearest name as remedy.
    Result<const Kind*> get(std::string_view name) const;
    const std::vector<std::unique_ptr<const Kind>>& all() const { return kinds_; }

private:
    std::vector<std::unique_ptr<const Kind>> kinds_;
};

} // namespace orrery::resource
