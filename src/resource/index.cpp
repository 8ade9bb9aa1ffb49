#include "resource/index.h"

#include "resource/object.h"

#include <boost/json/monotonic_resource.hpp>
#include <boost/json/parse.hpp>

#include <algorithm>
#include <array>

namespace orrery::resource {

namespace {

/// What a posting is found by. The separator occurs in no kind, label or name; a field's value is last, so it may hold anything.
std::string posting_key(const Kind& kind, char what, std::string_view first, std::string_view second = {}) {
    std::string key;
    key.reserve(kind.plural().size() + first.size() + second.size() + 4);
    key.append(kind.plural()).append(1, '\0').append(1, what).append(first).append(1, '\0').append(second);
    return key;
}

/// Stored text begins with kind, name and labels, so that this need not be parsed.
bool has_no_labels(const Kind& kind, std::string_view name, std::string_view stored) {
    constexpr std::string_view none = R"("labels":{})";
    const auto offset = std::string_view(R"({"kind":"","name":"",)").size() + kind.name().size() + name.size();
    return stored.size() > offset && stored.substr(offset).starts_with(none);
}

} // namespace

std::vector<std::string> Index::keys_of(const Kind& kind, const store::Record& record) const {
    std::vector<std::string> keys;
    const auto name = std::string_view(record.key).substr(kind.prefix().size());
    const bool reads_spec = kind.has_indexes() || kind.has_references();
    if (kind.has_indexes()) keys.push_back(posting_key(kind, 'a', {}));
    if (!reads_spec && has_no_labels(kind, name, record.value)) return keys;
    std::array<unsigned char, 4096> buffer; // NOLINT: filled by the parser
    json::monotonic_resource memory(buffer.data(), buffer.size());
    json::parse_options options;
    options.max_depth = max_stored_depth;
    json::error_code failed;
    auto document = json::parse(record.value, failed, &memory, options);
    if (failed || !document.is_object()) return keys; // readers of the record report the error
    auto& object = document.get_object();
    if (const auto* labels = object.if_contains("labels"); labels != nullptr && labels->is_object())
        for (const auto& [key, value] : labels->get_object()) {
            if (!value.is_string()) continue;
            keys.push_back(posting_key(kind, 'l', key));
            keys.push_back(posting_key(kind, 'v', key, std::string_view(value.get_string())));
        }
    auto* spec = object.if_contains("spec");
    if (spec == nullptr || !spec->is_object() || !reads_spec) return keys;
    for (const auto& field : kind.spec().children()) {
        if (!field.is_indexed()) continue;
        const auto* value = spec->get_object().if_contains(field.name());
        if (value != nullptr && value->is_string())
            keys.push_back(posting_key(kind, 'f', field.name(), std::string_view(value->get_string())));
    }
    if (kind.has_references())
        visit_references(kind.spec(), spec->get_object(), "spec", [&](const Field& field, const std::string&, json::value& value) {
            const auto* target = registry_.find(field.reference());
            if (target == nullptr || !value.is_string()) return;
            auto key = posting_key(*target, 'r', std::string_view(value.get_string()));
            if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(std::move(key));
        });
    return keys;
}

void Index::remove_from(const Entry* entry, Posting* posting) {
    posting->entries.erase(entry);
    if (posting->entries.empty()) postings_.erase(std::string(*posting->key));
}

void Index::change(const Kind& kind, const store::Event& event) {
    if (event.record && event.previous && same_but_for_status(*event.previous, *event.record)) return;
    auto wanted = event.record ? keys_of(kind, *event.record) : std::vector<std::string>();
    auto found = entries_.find(event.key);
    if (wanted.empty() && found == entries_.end()) return;
    if (found == entries_.end()) {
        auto made = std::make_unique<Entry>(Entry{&kind, event.key.substr(kind.prefix().size()), {}});
        found = entries_.emplace(event.key, std::move(made)).first;
    }
    auto& entry = *found->second;
    std::vector<Posting*> postings;
    postings.reserve(wanted.size());
    for (auto& key : wanted) {
        auto at = postings_.try_emplace(std::move(key)).first;
        at->second.key = &at->first;
        postings.push_back(&at->second);
    }
    if (postings == entry.postings) return; // a change of status, mostly
    // What is new mostly comes last: events are named by their time.
    for (auto* posting : postings) posting->entries.insert(posting->entries.end(), &entry);
    for (auto* posting : entry.postings)
        if (std::find(postings.begin(), postings.end(), posting) == postings.end()) remove_from(&entry, posting);
    entry.postings = std::move(postings);
    if (entry.postings.empty()) entries_.erase(found);
}

const Index::Posting* Index::find(const std::string& key) const {
    const auto at = postings_.find(key);
    return at == postings_.end() ? nullptr : &at->second;
}

const Index::Posting* Index::with_label(const Kind& kind, std::string_view key) const { return find(posting_key(kind, 'l', key)); }
const Index::Posting* Index::with_label(const Kind& kind, std::string_view key, std::string_view value) const {
    return find(posting_key(kind, 'v', key, value));
}
const Index::Posting* Index::with_field(const Kind& kind, std::string_view field, std::string_view value) const {
    return find(posting_key(kind, 'f', field, value));
}
const Index::Posting* Index::referring_to(const Kind& kind, std::string_view name) const {
    return find(posting_key(kind, 'r', name));
}
const Index::Posting* Index::all(const Kind& kind) const { return find(posting_key(kind, 'a', {})); }

const Index::Entry* Index::entry(const Kind& kind, std::string_view name) const {
    const auto at = entries_.find(kind.prefix() + std::string(name));
    return at == entries_.end() ? nullptr : at->second.get();
}

} // namespace orrery::resource
