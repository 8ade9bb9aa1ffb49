#include "resource/resources.h"

#include "core/text.h"
#include "resource/resources_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::resource {

namespace {

constexpr std::size_t most_listed = 5000;

/// Conditions that an entry must meet besides the posting that is walked.
struct Residue {
    std::vector<const Index::Posting*> inside, outside;
    bool holds(const Index::Entry* entry) const {
        // One without an entry has neither labels nor indexed fields.
        if (entry == nullptr) return inside.empty();
        return std::all_of(inside.begin(), inside.end(), [&](const auto* posting) { return posting->entries.contains(entry); }) &&
               std::none_of(outside.begin(), outside.end(), [&](const auto* posting) { return posting->entries.contains(entry); });
    }
};

/// A page in the making: takes names in order until there are more than it may hold.
struct PageInMaking {
    ListPage page;
    std::size_t limit;
    /// False: full, stop.
    bool take(std::string_view name, store::RecordPtr record) {
        if (!record) return true;
        if (page.records.size() == limit) {
            page.next = last;
            return false;
        }
        page.records.push_back(std::move(record));
        last = name;
        return true;
    }
    std::string last{};
};

} // namespace

Resources::State::State(Resources& self_, store::Store& store_, const Registry& registry_, const Sealer& sealer_, Clock& clock_)
    : self(self_), store(store_), registry(registry_), sealer(sealer_), clock(clock_), index(registry_) {
    for (const auto& kind : registry.all())
        observers.push_back(
            store.observe(kind->prefix(), [this, of = kind.get()](const store::Event& event) { index.change(*of, event); }));
}

Resources::Resources(store::Store& store, const Registry& registry, const Sealer& sealer, Clock& clock)
    : state_(std::make_unique<State>(*this, store, registry, sealer, clock)) {}
Resources::~Resources() = default;

const Registry& Resources::registry() const { return state_->registry; }
store::Store& Resources::store() { return state_->store; }

store::RecordPtr Resources::find(const Kind& kind, std::string_view name) const {
    return state_->store.find(kind.prefix() + std::string(name));
}
bool Resources::exists(const Kind& kind, std::string_view name) const { return find(kind, name) != nullptr; }

Result<Object> Resources::get(const Kind& kind, std::string_view name) const {
    const auto record = find(kind, name);
    if (!record) return Error{Code::not_found, fmt::format("there is no {} named \"{}\"", kind.name(), name.substr(0, 253))};
    TRY(auto object, from_stored(*record));
    mask_secrets(kind, object.spec);
    return object;
}

Result<ListPage> Resources::list(const Kind& kind, const ListQuery& query) const {
    const auto& index = state_->index;
    PageInMaking making{{}, std::clamp<std::size_t>(query.limit, 1, most_listed)};
    making.page.revision = state_->store.revision();

    Residue residue;
    bool nobody = false;
    const auto must_be_in = [&](const Index::Posting* posting) {
        if (posting == nullptr)
            nobody = true;
        else
            residue.inside.push_back(posting);
    };
    for (const auto& term : query.labels.terms()) {
        const bool by_value = term.what == LabelSelector::Term::What::equals || term.what == LabelSelector::Term::What::differs;
        const auto* posting = by_value ? index.with_label(kind, term.key, term.value) : index.with_label(kind, term.key);
        if (term.what == LabelSelector::Term::What::equals || term.what == LabelSelector::Term::What::exists)
            must_be_in(posting);
        else if (posting != nullptr)
            residue.outside.push_back(posting);
    }
    for (const auto& [name, value] : query.fields) {
        const auto& fields = kind.spec().children();
        const bool indexed = std::any_of(fields.begin(), fields.end(),
                                         [&](const Field& field) { return field.is_indexed() && field.name() == name; });
        if (!indexed) return Error{Code::invalid, fmt::format("{} cannot be listed by \"{}\"", kind.plural(), name.substr(0, 64))};
        must_be_in(index.with_field(kind, name, value));
    }
    if (nobody || (!query.until.empty() && query.from >= query.until)) return std::move(making.page);
    if (kind.has_indexes()) must_be_in(index.all(kind));
    if (nobody) return std::move(making.page);

    if (residue.inside.empty()) {
        if (query.newest_first)
            return Error{Code::unsupported, fmt::format("{} cannot be listed newest first", kind.plural()), "leave out the order"};
        const auto prefix = kind.prefix();
        const auto in_range = [&](std::string_view name) { return query.until.empty() || name < query.until; };
        auto after = query.after;
        if (query.from > after) { // names from there on, that one too
            after = query.from;
            if (in_range(after) && residue.holds(index.entry(kind, after))) making.take(after, find(kind, after));
        }
        for (;;) {
            auto page = state_->store.range(prefix, making.limit + 1, after.empty() ? std::string_view{} : prefix + after);
            for (auto& record : page.records) {
                const auto name = std::string_view(record->key).substr(prefix.size());
                if (!in_range(name)) return std::move(making.page);
                if ((!residue.outside.empty() && !residue.holds(index.entry(kind, name)))) continue;
                if (!making.take(name, record)) return std::move(making.page);
            }
            if (page.next.empty() || page.records.empty()) return std::move(making.page);
            after = page.records.back()->key.substr(prefix.size());
        }
    }

    const auto smallest = std::min_element(residue.inside.begin(), residue.inside.end(), [](const auto* left, const auto* right) {
        return left->entries.size() < right->entries.size();
    });
    const auto& entries = (*smallest)->entries;
    residue.inside.erase(smallest);
    const auto take = [&](const Index::Entry* entry) {
        return !residue.holds(entry) || making.take(entry->name, find(kind, entry->name));
    };
    auto first = entries.lower_bound(std::string_view(query.from));
    auto last = query.until.empty() ? entries.end() : entries.lower_bound(std::string_view(query.until));
    if (query.newest_first) {
        if (!query.after.empty() && (query.until.empty() || query.after < query.until))
            last = entries.lower_bound(std::string_view(query.after));
        if (!query.after.empty() && query.after < query.from) last = first;
        while (last != first)
            if (!take(*--last)) break;
    } else {
        if (query.after >= query.from && !query.after.empty()) first = entries.upper_bound(std::string_view(query.after));
        if (!query.until.empty() && query.after >= query.until) first = last;
        for (; first != last; ++first)
            if (!take(*first)) break;
    }
    return std::move(making.page);
}

void Resources::append_public_json(const Kind& kind, const store::Record& record, std::string& out) const {
    if (!kind.has_secrets() && record.value.size() > 2 && record.value.back() == '}') {
        out.append(record.value, 0, record.value.size() - 1);
        fmt::format_to(std::back_inserter(out), ",\"revision\":{}}}", record.modified);
        return;
    }
    auto object = from_stored(record);
    if (!object.ok()) { // never the raw text: there may be secrets in it
        Object unreadable;
        unreadable.kind = kind.name();
        unreadable.name = record.key.substr(std::min(record.key.size(), kind.prefix().size()));
        unreadable.revision = record.modified;
        unreadable.status.emplace("unreadable", object.error().message);
        append_json(unreadable.to_json(), out);
        return;
    }
    mask_secrets(kind, object->spec);
    append_json(object->to_json(), out);
}

std::vector<std::string> Resources::referrers(const Kind& kind, std::string_view name, std::size_t limit) const {
    std::vector<std::string> out;
    const auto* posting = state_->index.referring_to(kind, name);
    if (posting == nullptr) return out;
    for (const auto* entry : posting->entries) {
        if (out.size() == limit) break;
        std::string paths;
        if (const auto record = find(*entry->kind, entry->name)) {
            auto object = from_stored(*record);
            if (object.ok())
                visit_references(entry->kind->spec(), object->spec, "spec",
                                 [&](const Field& field, const std::string& path, json::value& value) {
                                     if (field.reference() != kind.name() || !value.is_string() || value.get_string() != name ||
                                         paths.size() > 200)
                                         return;
                                     paths += (paths.empty() ? "" : ", ") + path;
                                 });
        }
        out.push_back(fmt::format("{}/{} ({})", entry->kind->name(), entry->name, paths));
    }
    return out;
}

Result<std::string> Resources::reveal(const Kind& kind, std::string_view name, std::string_view path) const {
    const auto record = find(kind, name);
    if (!record) return Error{Code::not_found, fmt::format("there is no {} named \"{}\"", kind.name(), name.substr(0, 253))};
    TRY(auto object, from_stored(*record));
    std::optional<Result<std::string>> revealed;
    visit_secrets(kind.spec(), object.spec, "spec", [&](const Field&, const std::string& at, json::value& value) {
        const auto* sealed = at == path ? sealed_text(value) : nullptr;
        if (sealed != nullptr) revealed = state_->sealer.unseal(std::string_view(*sealed), State::place_of(kind, name, path));
    });
    if (revealed) return std::move(*revealed);
    return Error{Code::not_found, fmt::format("{} {} has no secret {}", kind.name(), name, path)};
}

} // namespace orrery::resource
