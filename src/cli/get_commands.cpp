#include "cli/commands.h"
#include "cli/render.h"
#include "core/nearest.h"
#include "core/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>

/// get, describe, kinds and explain.
namespace orrery::cli {

namespace {

constexpr std::size_t page_size = 500;
constexpr std::size_t max_table_rows = 1000;

} // namespace

Result<Selection> parse_selection(Invocation& invocation, const std::string& kind_or_path, std::vector<std::string> names) {
    TRY(const auto* kinds, invocation.kinds());
    const auto slash = kind_or_path.find('/');
    Selection selection;
    TRY(selection.kind, kinds->find(kind_or_path.substr(0, slash)));
    if (slash != std::string::npos) selection.names.push_back(kind_or_path.substr(slash + 1));
    for (auto& name : names) {
        const auto cut = name.find('/'); // "get node/n1 node/n2"
        if (cut != std::string::npos) {
            TRY(const auto* other, kinds->find(name.substr(0, cut)));
            if (other != selection.kind) return invocation.usage_error("one command shows one kind", "run it once for each kind");
            name.erase(0, cut + 1);
        }
        selection.names.push_back(std::move(name));
    }
    return selection;
}

namespace {

Result<std::string> list_query(const Invocation& invocation, const KindView& kind) {
    std::string query;
    if (invocation.has("labels")) query += "&labels=" + net::percent_encode(invocation.text("labels"));
    for (const auto& field : invocation.all("field")) {
        const auto equals = field.find('=');
        const auto name = field.substr(0, equals);
        if (equals == std::string::npos || std::find(kind.indexed.begin(), kind.indexed.end(), name) == kind.indexed.end())
            return Error{Code::invalid, fmt::format("--field {} does not name an indexed field of {}", field, kind.plural),
                         kind.indexed.empty() ? fmt::format("use labels (-l): {} have no indexed fields", kind.plural)
                                              : fmt::format("give FIELD=VALUE with one of {}", fmt::join(kind.indexed, ", "))};
        query += fmt::format("&{}={}", net::percent_encode(name), net::percent_encode(field.substr(equals + 1)));
    }
    return query;
}

bool value_less(const json::value* a, const json::value* b) {
    const bool no_a = a == nullptr || a->is_null(), no_b = b == nullptr || b->is_null();
    if (no_a || no_b) return no_a && !no_b;
    if (a->is_number() && b->is_number()) return a->to_number<double>() < b->to_number<double>();
    return value_text(*a) < value_text(*b);
}

/// `invalid` if no object of the kind can have the path.
Result<Unit> check_sort_path(const KindView& kind, std::string_view path) {
    if (path.starts_with('-')) path.remove_prefix(1);
    std::vector<std::string_view> known = {"name", "age", "kind", "revision", "created_at", "updated_at"};
    if (std::find(known.begin(), known.end(), path) != known.end() || path == "labels" || path.starts_with("labels."))
        return Unit{};
    for (const auto& field : kind.fields) {
        const bool free_form = field.type == "any" || field.type == "map";
        if (free_form && path.starts_with(field.path) && path.substr(field.path.size()).starts_with('.')) return Unit{};
        known.push_back(field.path);
    }
    if (kind.field(path) != nullptr) return Unit{};
    const auto near = nearest(path, known.data(), known.data() + known.size());
    return Error{Code::invalid, fmt::format("--sort {}: {} have no such field", path, kind.plural),
                 near.empty() ? fmt::format("\"orrery explain {}\" lists the fields; name, age and labels.KEY are allowed too",
                                            kind.singular())
                              : fmt::format("did you mean {}? \"orrery explain {}\" lists the fields", near, kind.singular())};
}

void sort_objects(std::vector<json::value>& objects, std::string path) {
    const bool down = path.starts_with('-');
    if (down) path.erase(0, 1);
    const bool age = path == "age"; // the youngest first, in the order of the column AGE
    if (age) path = "created_at";
    std::vector<std::pair<json::value, std::size_t>> numbered; // a stable order
    for (auto& object : objects) numbered.emplace_back(std::move(object), numbered.size());
    const bool reversed = down != age;
    std::sort(numbered.begin(), numbered.end(), [&](const auto& a, const auto& b) {
        const auto *left = at_path((reversed ? b : a).first, path), *right = at_path((reversed ? a : b).first, path);
        if (value_less(left, right)) return true;
        return !value_less(right, left) && a.second < b.second;
    });
    for (std::size_t i = 0; i < objects.size(); ++i) objects[i] = std::move(numbered[i].first);
}

/// "a, b": the items may be sentences.
std::string list_text(const json::array& list) {
    std::string out;
    for (const auto& item : list) out += fmt::format("{}{}", out.empty() ? "" : ", ", value_text(item));
    return out;
}

void describe_value(std::string& out, const json::value& value, int indent, int column, bool colour, WallTime now) {
    if (!value.is_object()) return;
    int widest = 0;
    for (const auto& [name, member] : value.get_object())
        if (!member.is_object() || member.get_object().empty()) widest = std::max(widest, display_width(std::string_view(name)));
    const int values_at = std::max(column, indent + widest + 2);
    for (const auto& [name, member] : value.get_object()) {
        const std::string lead(static_cast<std::size_t>(indent), ' ');
        const auto title = printable(std::string_view(name));
        if (member.is_object() && !member.get_object().empty()) {
            out += fmt::format("{}{}\n", lead, paint(title, Style::cyan, colour));
            describe_value(out, member, indent + 2, values_at, colour, now);
            continue;
        }
        auto shown = member.is_array() ? list_text(member.get_array()) : value_text(member);
        if (member.is_string())
            if (const auto time = from_rfc3339(shown); time.ok()) shown += fmt::format(" ({})", relative_time(*time, now));
        const auto padding = std::string(static_cast<std::size_t>(std::max(1, values_at - indent - display_width(title))), ' ');
        const bool nested = member.is_array() && std::any_of(member.get_array().begin(), member.get_array().end(),
                                                             [](const json::value& item) { return item.is_structured(); });
        if (nested) { // such as a list of tasks: as in a file
            out += fmt::format("{}{}\n", lead, paint(title, Style::cyan, colour));
            const auto text = to_yaml(member);
            for (std::size_t at = 0; at < text.size();) {
                const auto end = std::min(text.find('\n', at), text.size());
                out += fmt::format("{}  {}\n", lead, printable(std::string_view(text).substr(at, end - at)));
                at = end + 1;
            }
        } else {
            out +=
                fmt::format("{}{}{}{}\n", lead, paint(title, Style::cyan, colour), padding, printable(shown.empty() ? "-" : shown));
        }
    }
}

std::string event_lines(Invocation& invocation, const KindCatalog& kinds, Api& api, const KindView& kind, std::string_view name) {
    const auto events = kinds.find("Event");
    if (!events.ok()) return {};
    const auto answer = api.get(fmt::format("{}?subject={}&order=newest&limit=10", (*events)->route(),
                                            net::percent_encode(fmt::format("{}/{}", kind.kind, name))));
    if (!answer.ok()) return fmt::format("  not available: {}\n", printable(answer.error().message));
    const auto* items = at_path(answer->body, "items");
    if (items == nullptr || !items->is_array() || items->get_array().empty()) return "  none\n";
    Table table({"AGE", "ACTION", "ACTOR", "REASON"});
    for (const auto& event : items->get_array()) {
        const auto created = from_rfc3339(text_of(event, "created_at"));
        const auto dash = [](std::string text) { return text.empty() ? std::string("-") : text; };
        table.add({{created.ok() ? short_age(invocation.streams.clock->wall() - *created) : "-"},
                   {dash(text_of(event, "spec.action"))},
                   {dash(text_of(event, "spec.actor"))},
                   {dash(text_of(event, "spec.reason"))}});
    }
    const int width = invocation.streams.width;
    std::string out, text = table.render(width > 4 ? width - 2 : 0, invocation.streams.colour());
    for (std::size_t begin = 0; begin < text.size();) {
        const auto end = text.find('\n', begin);
        out += "  " + text.substr(begin, end - begin) + "\n";
        begin = end + 1;
    }
    return out;
}

/// `get -w` is `watch`, as in kubectl.
Result<int> get_and_watch(Invocation& invocation) {
    for (const std::string option : {"field", "sort", "limit", "all", "ignore-not-found"})
        if (invocation.has(option))
            return invocation.usage_error(fmt::format("--{} and --watch exclude each other", option), "give one of them");
    if (invocation.text("output") == "yaml")
        return invocation.usage_error("--watch has no output format yaml", "use -o json, which prints one line for each change");
    if (invocation.all("NAME").size() > 1)
        return invocation.usage_error("--watch takes at most one name", "select several resources by labels with -l");
    return run_watch(invocation);
}

} // namespace

Result<std::vector<json::value>> list_all(Api& api, const KindView& kind, std::string query, std::size_t limit, bool* more,
                                          std::int64_t* revision) {
    std::vector<json::value> out;
    std::string next;
    if (more != nullptr) *more = false;
    for (bool first = true;; first = false) {
        const auto wanted = limit == 0 ? page_size : std::min(page_size, limit - out.size());
        auto target = fmt::format("{}?limit={}{}", kind.route(), wanted, query);
        if (!next.empty()) target += "&continue=" + net::percent_encode(next);
        TRY(auto page, api.get(std::move(target)));
        if (first && revision != nullptr)
            if (const auto* stated = at_path(page.body, "revision"); stated != nullptr && stated->is_number())
                *revision = stated->to_number<std::int64_t>();
        if (auto* object = page.body.if_object())
            if (auto* items = object->if_contains("items"); items != nullptr && items->is_array())
                for (auto& item : items->get_array()) out.push_back(std::move(item));
        auto following = text_of(page.body, "continue");
        if (following.empty() || following == next) return out;
        next = std::move(following);
        if (limit != 0 && out.size() >= limit) {
            if (more != nullptr) *more = true;
            return out;
        }
    }
}

bool print_structured(Invocation& invocation, const json::value& answer) {
    const auto form = invocation.text("output", "table");
    if (form == "json") invocation.streams.out << to_pretty_json(answer) << '\n';
    if (form == "yaml") invocation.streams.out << to_yaml(answer);
    return form == "json" || form == "yaml";
}

void print_objects(Invocation& invocation, const KindView& kind, const std::vector<json::value>& objects, std::string_view form,
                   bool single) {
    auto& streams = invocation.streams;
    if (form == "yaml") {
        print_yaml(streams.out, objects);
    } else if (form == "json" && single && objects.size() == 1) {
        streams.out << to_pretty_json(objects[0]) << '\n';
    } else if (form == "json") {
        streams.out << to_pretty_json(
                           json::object{{"kind", kind.kind + "List"}, {"items", json::array(objects.begin(), objects.end())}})
                    << '\n';
    } else if (form == "name") {
        for (const auto& object : objects) streams.out << kind.title(text_of(object, "name")) << '\n';
    } else if (objects.empty()) {
        if (!invocation.quiet()) streams.err << fmt::format("no {}\n", kind.plural);
    } else {
        streams.out << object_table(kind, objects, form == "wide", streams.clock->wall()).render(streams.width, streams.colour());
    }
}

Result<int> run_get(Invocation& invocation) {
    if (invocation.has("watch")) return get_and_watch(invocation);
    TRY(auto* api, invocation.api());
    TRY(const auto selection, parse_selection(invocation, invocation.text("KIND"), invocation.all("NAME")));
    const auto form = invocation.text("output", "table");
    const bool is_table = form == "table" || form == "wide";
    TRY(const auto limit, invocation.number("limit", is_table && !invocation.has("all") ? max_table_rows : 0));
    std::vector<json::value> objects;
    std::vector<Error> errors;
    bool more = false;
    const bool sorted = invocation.has("sort");
    if (sorted) {
        TRY(std::ignore, check_sort_path(*selection.kind, invocation.text("sort")));
    }
    if (selection.names.empty()) {
        TRY(auto query, list_query(invocation, *selection.kind));
        // Sorting needs all resources.
        const auto fetched = sorted ? 0 : static_cast<std::size_t>(limit);
        TRY(objects, list_all(*api, *selection.kind, std::move(query), fetched, &more));
    }
    for (const auto& name : selection.names) {
        auto answer = api->get(selection.kind->route(name));
        if (answer.ok())
            objects.push_back(std::move(answer->body));
        else if (answer.error().code != Code::not_found)
            return std::move(answer).error();
        else if (!invocation.has("ignore-not-found"))
            errors.push_back(std::move(answer).error());
    }
    if (sorted) sort_objects(objects, invocation.text("sort"));
    if (sorted && limit > 0 && objects.size() > static_cast<std::size_t>(limit) && selection.names.empty()) {
        objects.resize(static_cast<std::size_t>(limit));
        more = true;
    }
    if (selection.names.empty() || !objects.empty())
        print_objects(invocation, *selection.kind, objects, form, selection.names.size() == 1);
    if (more && !invocation.has("limit") && !invocation.quiet())
        invocation.streams.err << fmt::format("only the first {} are shown; --all shows all, -l and --limit select\n",
                                              objects.size());
    for (const auto& error : errors) print_error(invocation.streams.err, error);
    return errors.empty() ? exit_code::ok : exit_code::not_found;
}

Result<int> run_describe(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto selection, parse_selection(invocation, invocation.text("KIND"), invocation.all("NAME")));
    if (selection.names.empty())
        return invocation.usage_error(fmt::format("the name of the {} is missing", selection.kind->singular()),
                                      fmt::format("orrery describe {} NAME", selection.kind->singular()));
    TRY(const auto* kinds, invocation.kinds());
    auto& streams = invocation.streams;
    const bool colour = streams.colour();
    const auto now = streams.clock->wall();
    for (std::size_t i = 0; i < selection.names.size(); ++i) {
        const auto& name = selection.names[i];
        TRY(const auto answer, api->get(selection.kind->route(name)));
        const auto& object = answer.body;
        if (i > 0) streams.out << '\n';
        streams.out << paint(fmt::format("{} {}", selection.kind->kind, printable(name)), Style::bold, colour) << '\n';
        json::object head;
        if (const auto* labels = at_path(object, "labels");
            labels != nullptr && labels->is_object() && !labels->get_object().empty())
            head["labels"] = value_text(*labels);
        for (const std::string_view part : {"revision", "created_at", "updated_at"})
            if (const auto* value = at_path(object, part))
                head[part.ends_with("_at") ? part.substr(0, part.size() - 3) : part] = *value;
        std::string out;
        describe_value(out, head, 2, 0, colour, now);
        for (const auto& [title, part] : {std::pair{"Spec", "spec"}, std::pair{"Status", "status"}}) {
            const auto* value = at_path(object, part);
            if (value == nullptr || !value->is_object() || value->get_object().empty()) continue;
            out += fmt::format("\n{}\n", paint(title, Style::bold, colour));
            describe_value(out, *value, 2, 0, colour, now);
        }
        out += fmt::format("\n{}\n", paint("Events", Style::bold, colour));
        streams.out << out << event_lines(invocation, *kinds, *api, *selection.kind, name);
    }
    return exit_code::ok;
}

Result<int> run_kinds(Invocation& invocation) {
    if (invocation.text("output", "table") == "json") {
        TRY(auto* api, invocation.api());
        TRY(const auto answer, api->get("/v1/kinds"));
        invocation.streams.out << to_pretty_json(answer.body) << '\n';
        return exit_code::ok;
    }
    TRY(const auto* kinds, invocation.kinds());
    Table table({"KIND", "NAMES", "VERBS", "DESCRIPTION"});
    for (const auto& kind : kinds->all()) {
        std::vector<std::string> names = {kind.plural};
        for (const auto& name : kind.names)
            if (name != kind.plural && name != kind.singular()) names.push_back(name);
        table.add(
            {{kind.kind}, {fmt::format("{}", fmt::join(names, ","))}, {fmt::format("{}", fmt::join(kind.verbs, ","))}, {kind.doc}});
    }
    invocation.streams.out << table.render(invocation.streams.width, invocation.streams.colour());
    return exit_code::ok;
}

Result<int> run_explain(Invocation& invocation) {
    TRY(const auto* kinds, invocation.kinds());
    const auto given = invocation.text("KIND");
    const auto dot = given.find('.');
    TRY(const auto* kind, kinds->find(given.substr(0, dot)));
    const auto below = dot == std::string::npos ? std::string{} : given.substr(dot + 1);
    auto& out = invocation.streams.out;
    const bool colour = invocation.streams.colour();
    std::string text;
    for (const auto& field : kind->fields) {
        if (!below.empty() && field.path != below && !field.path.starts_with(below + ".") && !field.path.starts_with(below + "["))
            continue;
        std::vector<std::string> notes = {field.forms.empty() ? field.type : fmt::format("{}", fmt::join(field.forms, " or "))};
        if (field.required) notes.emplace_back("required");
        if (!field.default_value.is_null()) notes.push_back("default " + value_text(field.default_value));
        if (!field.one_of.empty()) notes.push_back(fmt::format("one of {}", fmt::join(field.one_of, ", ")));
        if (!field.reference.empty()) notes.push_back("refers to a " + field.reference);
        if (field.secret) notes.emplace_back("secret: stored encrypted, never shown");
        if (field.immutable) notes.emplace_back("immutable");
        text += fmt::format("  {}  {}\n", paint(field.path, Style::cyan, colour),
                            paint(fmt::format("{}", fmt::join(notes, "; ")), Style::dim, colour));
        if (!field.doc.empty()) text += fmt::format("      {}\n", field.doc);
    }
    if (text.empty() && !below.empty()) {
        const auto in_spec =
            std::any_of(kind->fields.begin(), kind->fields.end(), [&](const auto& field) { return field.path == "spec." + below; });
        return Error{Code::not_found, fmt::format("{} has no field {}", kind->kind, below),
                     in_spec ? fmt::format("did you mean {}.spec.{}?", kind->singular(), below)
                             : fmt::format("\"orrery explain {}\" lists all fields", kind->singular())};
    }
    if (below.empty()) {
        out << paint(kind->kind, Style::bold, colour) << ": " << kind->doc << '\n';
        out << fmt::format("names: {}; verbs: {}\n", fmt::join(kind->names, ", "), fmt::join(kind->verbs, ", "));
        if (!kind->indexed.empty()) out << fmt::format("indexed fields (--field): {}\n", fmt::join(kind->indexed, ", "));
        out << '\n' << paint("Fields", Style::bold, colour) << '\n';
    }
    out << text;
    if (below.empty() && !kind->example.empty())
        out << '\n'
            << paint("Example", Style::bold, colour) << '\n'
            << kind->example << (kind->example.ends_with('\n') ? "" : "\n");
    return exit_code::ok;
}

} // namespace orrery::cli
