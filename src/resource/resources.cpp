#include "resource/resources.h"

#include "core/text.h"
#include "core/truncate.h"
#include "resource/resources_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::resource {

namespace {

constexpr std::size_t max_listed = 5000;

/// The postings that the result of a query must be in, and must not be in.
struct ListFilter {
    std::vector<const Index::Posting*> inside, outside;
    bool is_empty = false; ///< no resource matches
    bool holds(const Index::Entry* entry) const {
        // A resource without an entry has neither labels nor indexed fields.
        if (entry == nullptr) return inside.empty();
        return std::all_of(inside.begin(), inside.end(), [&](const auto* posting) { return posting->entries.contains(entry); }) &&
               std::none_of(outside.begin(), outside.end(), [&](const auto* posting) { return posting->entries.contains(entry); });
    }
};

/// Collects the records of a page in order, up to the limit.
struct PageBuilder {
    ListPage page;
    std::size_t limit;
    /// False when the page is full.
    bool add(std::string_view name, store::RecordPtr record) {
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

Result<ListFilter> filter_of(const Index& index, const Kind& kind, const ListQuery& query) {
    using Op = LabelSelector::Term::Op;
    ListFilter filter;
    const auto must_be_in = [&](const Index::Posting* posting) {
        if (posting == nullptr)
            filter.is_empty = true;
        else
            filter.inside.push_back(posting);
    };
    for (const auto& term : query.labels.terms()) {
        const bool by_value = term.op == Op::equals || term.op == Op::differs;
        const auto* posting = by_value ? index.with_label(kind, term.key, term.value) : index.with_label(kind, term.key);
        if (term.op == Op::equals || term.op == Op::exists)
            must_be_in(posting);
        else if (posting != nullptr)
            filter.outside.push_back(posting);
    }
    for (const auto& [name, value] : query.fields) {
        const auto& fields = kind.spec().children();
        const bool indexed = std::any_of(fields.begin(), fields.end(),
                                         [&](const Field& field) { return field.is_indexed() && field.name() == name; });
        if (!indexed) return Error{Code::invalid, fmt::format("{} cannot be listed by \"{}\"", kind.plural(), truncate(name, 64))};
        must_be_in(index.with_field(kind, name, value));
    }
    if (kind.has_indexes()) must_be_in(index.all(kind));
    return filter;
}

/// Reads the records of the kind in order, for queries without a positive term.
void list_by_scan(const Kind& kind, const ListQuery& query, const ListFilter& filter, PageBuilder& builder,
                  const Resources& resources, const Index& index) {
    const auto prefix = kind.prefix();
    const auto in_range = [&](std::string_view name) { return query.until.empty() || name < query.until; };
    auto after = query.after;
    if (query.from > after) { // `from` is inclusive, the `after` of the store is not
        after = query.from;
        if (in_range(after) && filter.holds(index.entry(kind, after))) builder.add(after, resources.find(kind, after));
    }
    for (;;) {
        auto page = resources.store().range(prefix, builder.limit + 1, after.empty() ? std::string_view{} : prefix + after);
        for (auto& record : page.records) {
            const auto name = std::string_view(record->key).substr(prefix.size());
            if (!in_range(name)) return;
            if ((!filter.outside.empty() && !filter.holds(index.entry(kind, name)))) continue;
            if (!builder.add(name, record)) return;
        }
        if (page.next.empty() || page.records.empty()) return;
        after = page.records.back()->key.substr(prefix.size());
    }
}

/// Iterates over the smallest posting of the filter.
void list_by_index(const Kind& kind, const ListQuery& query, ListFilter filter, PageBuilder& builder, const Resources& resources) {
    const auto smallest = std::min_element(filter.inside.begin(), filter.inside.end(), [](const auto* left, const auto* right) {
        return left->entries.size() < right->entries.size();
    });
    const auto& entries = (*smallest)->entries;
    filter.inside.erase(smallest);
    const auto add = [&](const Index::Entry* entry) {
        return !filter.holds(entry) || builder.add(entry->name, resources.find(kind, entry->name));
    };
    auto first = entries.lower_bound(std::string_view(query.from));
    auto last = query.until.empty() ? entries.end() : entries.lower_bound(std::string_view(query.until));
    if (query.newest_first) {
        if (!query.after.empty() && (query.until.empty() || query.after < query.until))
            last = entries.lower_bound(std::string_view(query.after));
        if (!query.after.empty() && query.after < query.from) last = first;
        while (last != first)
            if (!add(*--last)) break;
    } else {
        if (query.after >= query.from && !query.after.empty()) first = entries.upper_bound(std::string_view(query.after));
        if (!query.until.empty() && query.after >= query.until) first = last;
        for (; first != last; ++first)
            if (!add(*first)) break;
    }
}

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
store::Store& Resources::store() const { return state_->store; }

store::RecordPtr Resources::find(const Kind& kind, std::string_view name) const {
    return state_->store.find(kind.prefix() + std::string(name));
}
bool Resources::exists(const Kind& kind, std::string_view name) const { return find(kind, name) != nullptr; }

Result<Object> Resources::get(const Kind& kind, std::string_view name) const {
    const auto record = find(kind, name);
    if (!record) return Error{Code::not_found, fmt::format("there is no {} named \"{}\"", kind.name(), truncate(name, 253))};
    TRY(auto object, from_stored(*record));
    mask_secrets(kind, object.spec);
    return object;
}

Result<ListPage> Resources::list(const Kind& kind, const ListQuery& query) const {
    PageBuilder builder{{}, std::clamp<std::size_t>(query.limit, 1, max_listed)};
    builder.page.revision = state_->store.revision();
    TRY(auto filter, filter_of(state_->index, kind, query));
    if (filter.is_empty || (!query.until.empty() && query.from >= query.until)) return std::move(builder.page);
    if (!filter.inside.empty()) {
        list_by_index(kind, query, std::move(filter), builder, *this);
        return std::move(builder.page);
    }
    if (query.newest_first)
        return Error{Code::unsupported, fmt::format("{} cannot be listed newest first", kind.plural()), "leave out the order"};
    list_by_scan(kind, query, filter, builder, *this, state_->index);
    return std::move(builder.page);
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
    static const Index::Posting nobody;
    for (const auto* entry : (posting == nullptr ? nobody : *posting).entries) {
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
    for (const auto& users : state_->registry.users_of(kind)) {
        if (out.size() >= limit) break;
        for (auto& one : users(*this, name, limit - out.size())) out.push_back(std::move(one));
    }
    return out;
}

std::string Resources::keyed_hash(std::string_view purpose, std::string_view text) const {
    return state_->sealer.keyed_hash(purpose, text);
}

Result<std::string> Resources::reveal(const Kind& kind, std::string_view name, std::string_view path) const {
    const auto record = find(kind, name);
    if (!record) return Error{Code::not_found, fmt::format("there is no {} named \"{}\"", kind.name(), truncate(name, 253))};
    TRY(auto object, from_stored(*record));
    std::optional<Result<std::string>> revealed;
    visit_secrets(kind.spec(), object.spec, "spec", [&](const Field&, const std::string& at, json::value& value) {
        const auto* sealed = at == path ? sealed_text(value) : nullptr;
        if (sealed != nullptr) revealed = state_->sealer.unseal(std::string_view(*sealed), State::sealing_path(kind, name, path));
    });
    if (revealed) return std::move(*revealed);
    return Error{Code::not_found, fmt::format("{} {} has no secret {}", kind.name(), name, path)};
}

Result<std::string> Resources::reveal_named(std::string_view named) const {
    const auto reference = SecretReference::parse(named);
    const auto* kind = state_->registry.find("Secret");
    if (!reference || kind == nullptr)
        return Error{Code::not_found, fmt::format("\"{}\" names no value of a Secret", truncate(named, 253))};
    if (!exists(*kind, reference->name)) return Error{Code::not_found, fmt::format("there is no Secret {}", reference->name)};
    auto value = reveal(*kind, reference->name, "spec.values." + reference->key);
    if (!value.ok() && value.error().code == Code::not_found)
        return Error{Code::not_found, fmt::format("Secret {} has no value \"{}\"", reference->name, reference->key)};
    return value;
}

} // namespace orrery::resource
