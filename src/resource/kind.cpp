#include "resource/kind.h"

#include "core/ascii.h"
#include "core/nearest.h"
#include "core/truncate.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::resource {

Field text(std::string name, std::string doc) { return {std::move(name), Type::text, std::move(doc)}; }
Field integer(std::string name, std::string doc) { return {std::move(name), Type::integer, std::move(doc)}; }
Field number(std::string name, std::string doc) { return {std::move(name), Type::number, std::move(doc)}; }
Field boolean(std::string name, std::string doc) { return {std::move(name), Type::boolean, std::move(doc)}; }
Field duration(std::string name, std::string doc) { return {std::move(name), Type::duration, std::move(doc)}; }
Field time(std::string name, std::string doc) { return {std::move(name), Type::time, std::move(doc)}; }
Field object(std::string name, std::string doc) { return {std::move(name), Type::object, std::move(doc)}; }
Field any(std::string name, std::string doc) { return {std::move(name), Type::any, std::move(doc)}; }

Field list(std::string name, std::string doc, Field item) {
    return Field{std::move(name), Type::list, std::move(doc)}.of(std::move(item));
}

Field map(std::string name, std::string doc, Field value) {
    return Field{std::move(name), Type::map, std::move(doc)}.of(std::move(value));
}

std::string_view name_of(Type type) {
    switch (type) {
    case Type::text: return "text";
    case Type::integer: return "integer";
    case Type::number: return "number";
    case Type::boolean: return "boolean";
    case Type::duration: return "duration";
    case Type::time: return "time";
    case Type::list: return "list";
    case Type::map: return "map";
    case Type::object: return "object";
    case Type::any: return "any";
    }
    return "any";
}

namespace {

bool is_or_holds_secret(const Field& field) {
    if (field.is_secret()) return true;
    if (field.item() != nullptr && is_or_holds_secret(*field.item())) return true;
    return std::any_of(field.children().begin(), field.children().end(), is_or_holds_secret);
}

bool is_or_holds_reference(const Field& field) {
    if (!field.reference().empty() || field.takes_secret()) return true;
    if (field.item() != nullptr && is_or_holds_reference(*field.item())) return true;
    return std::any_of(field.children().begin(), field.children().end(), is_or_holds_reference);
}

/// What no server may start with: mistakes in the declaration of a kind.
void check_declaration(const Registry& registry, const Field& field, const std::string& path, bool in_spec,
                       std::vector<FieldError>& errors) {
    if (!field.reference().empty() && registry.find(field.reference()) == nullptr)
        errors.push_back({path, fmt::format("refers to kind \"{}\", which does not exist", field.reference())});
    if (!field.reference().empty() && field.type() != Type::text) errors.push_back({path, "refers to something but is not a text"});
    if (field.is_secret() && (field.type() != Type::text || !in_spec))
        errors.push_back({path, "is secret but not a text of the spec"});
    if (field.takes_secret() && (field.type() != Type::text || !in_spec || field.is_secret() || !field.reference().empty()))
        errors.push_back({path, "takes a secret but is not a plain text of the spec"});
    if (field.is_indexed() && (field.type() != Type::text || field.is_secret() || std::count(path.begin(), path.end(), '.') != 2))
        errors.push_back({path, "is indexed but not a plain text at the top of the spec"});
    if (!field.old_name().empty() && is_or_holds_secret(field))
        errors.push_back({path, "was renamed but holds a secret, which is sealed to its path"});
    if ((field.type() == Type::list || field.type() == Type::map) && field.item() == nullptr)
        errors.push_back({path, "does not declare its items"});
    for (const auto& child : field.children()) check_declaration(registry, child, path + "." + child.name(), in_spec, errors);
    if (field.item() != nullptr) check_declaration(registry, *field.item(), path + "[]", in_spec, errors);
}

} // namespace

Kind::Kind(std::string name, std::string plural, std::string doc)
    : name_(std::move(name)),
      plural_(std::move(plural)),
      doc_(std::move(doc)),
      spec_("spec", Type::object, "What is wanted."),
      status_("status", Type::object, "What is. Written by the server."),
      verbs_{Verb::create, Verb::read, Verb::update, Verb::remove} {}

Kind& Kind::spec(Field field) {
    has_secrets_ = has_secrets_ || is_or_holds_secret(field);
    has_references_ = has_references_ || is_or_holds_reference(field);
    has_indexes_ = has_indexes_ || field.is_indexed();
    std::move(spec_).with(std::move(field));
    return *this;
}

Kind& Kind::status(Field field) {
    std::move(status_).with(std::move(field));
    return *this;
}

Kind& Kind::column(std::string title, std::string path) {
    columns_.push_back({std::move(title), std::move(path), false});
    return *this;
}

Kind& Kind::wide_column(std::string title, std::string path) {
    columns_.push_back({std::move(title), std::move(path), true});
    return *this;
}

Kind& Kind::verbs(std::vector<Verb> verbs) {
    verbs_ = std::move(verbs);
    return *this;
}

Kind& Kind::access(Role read, Role write) {
    read_role_ = read;
    write_role_ = write;
    return *this;
}

Kind& Kind::also_called(std::vector<std::string> names) {
    other_names_ = std::move(names);
    return *this;
}

Kind& Kind::prepare(std::function<Task<Unit>(Context, Draft&)> prepare) {
    prepare_ = std::move(prepare);
    return *this;
}

Kind& Kind::owned_by(std::string field) {
    owner_field_ = std::move(field);
    return *this;
}

Kind& Kind::example(std::string yaml) {
    example_ = std::move(yaml);
    return *this;
}

Kind& Kind::unaudited() {
    audited_ = false;
    return *this;
}

bool Kind::has(Verb verb) const { return std::find(verbs_.begin(), verbs_.end(), verb) != verbs_.end(); }

std::vector<std::string> Kind::names() const {
    std::vector<std::string> out{ascii_lower(name_)};
    out.insert(out.end(), other_names_.begin(), other_names_.end());
    return out;
}

void Registry::add(Kind kind) { kinds_.push_back(std::make_unique<const Kind>(std::move(kind))); }

Result<Unit> Registry::check() const {
    std::vector<FieldError> errors;
    std::vector<std::string> taken{std::string(reference_guards)};
    for (const auto& kind : kinds_) {
        auto names = kind->names();
        if (names.front() != kind->plural()) names.push_back(kind->plural());
        for (auto& name : names) {
            if (std::find(taken.begin(), taken.end(), name) != taken.end())
                errors.push_back({kind->name(), fmt::format("the name \"{}\" is taken", name)});
            taken.push_back(std::move(name));
        }
        check_declaration(*this, kind->spec(), kind->name() + ".spec", true, errors);
        const auto& fields = kind->spec().children();
        if (!kind->owner_field().empty() && std::none_of(fields.begin(), fields.end(), [&](const Field& field) {
                return field.name() == kind->owner_field() && field.is_indexed();
            }))
            errors.push_back(
                {kind->name(), fmt::format("is owned by \"{}\", which is not an indexed field of it", kind->owner_field())});
        check_declaration(*this, kind->status(), kind->name() + ".status", false, errors);
    }
    if (errors.empty()) return Unit{};
    Error error{Code::internal, "the declarations of kinds do not fit together"};
    error.fields = std::move(errors);
    return error;
}

const Kind* Registry::find(std::string_view name) const {
    for (const auto& kind : kinds_)
        if (kind->name() == name || kind->plural() == name) return kind.get();
    const auto lower = ascii_lower(name);
    for (const auto& kind : kinds_) {
        if (kind->plural() == lower || ascii_lower(kind->name()) == lower) return kind.get();
        const auto& others = kind->other_names();
        if (std::find(others.begin(), others.end(), lower) != others.end()) return kind.get();
    }
    return nullptr;
}

Result<const Kind*> Registry::get(std::string_view name) const {
    if (const auto* kind = find(name)) return kind;
    std::vector<std::string_view> known;
    known.reserve(kinds_.size());
    for (const auto& kind : kinds_) known.push_back(kind->plural());
    const auto near = name.size() > 64 ? std::string_view{} : nearest(ascii_lower(name), known.data(), known.data() + known.size());
    return Error{Code::not_found, fmt::format("there is no kind \"{}\"", truncate(name, 64)),
                 near.empty() ? fmt::format("the kinds are {}", fmt::join(known, ", ")) : fmt::format("did you mean {}?", near)};
}

} // namespace orrery::resource
