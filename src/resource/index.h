#pragma once

#include "resource/kind.h"
#include "store/store.h"

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orrery::resource {

/// Inverted indexes of labels, indexed fields and references, updated by an observer of the store, so that lists read little more
/// than what they return. Resources without labels, references and indexed fields use no memory here. Loop thread only.
class Index {
public:
    struct Posting;
    /// One resource that is in at least one posting.
    struct Entry {
        const Kind* kind;
        std::string name;
        std::vector<Posting*> postings;
    };
    struct ByName {
        using is_transparent = void;
        bool operator()(const Entry* left, const Entry* right) const {
            return left->kind == right->kind ? left->name < right->name : left->kind->plural() < right->kind->plural();
        }
        bool operator()(const Entry* left, std::string_view name) const { return left->name < name; }
        bool operator()(std::string_view name, const Entry* right) const { return name < right->name; }
    };
    /// The resources that share a label, value or reference, ordered by name (references: by kind, then name).
    struct Posting {
        const std::string* key = nullptr;
        std::set<const Entry*, ByName> entries;
    };

    explicit Index(const Registry& registry) : registry_(registry) {}

    void change(const Kind& kind, const store::Event& event);

    /// These functions return null when no resource matches.
    const Posting* with_label(const Kind& kind, std::string_view key) const;
    const Posting* with_label(const Kind& kind, std::string_view key, std::string_view value) const;
    const Posting* with_field(const Kind& kind, std::string_view field, std::string_view value) const;
    const Posting* referring_to(const Kind& kind, std::string_view name) const;
    /// All of a kind that has indexed fields; null for other kinds.
    const Posting* all(const Kind& kind) const;
    /// Null for a resource without labels, references and indexed fields.
    const Entry* entry(const Kind& kind, std::string_view name) const;

private:
    std::vector<std::string> keys_of(const Kind& kind, const store::Record& record) const;
    const Posting* find(const std::string& key) const;
    void remove_from(const Entry* entry, Posting* posting);

    const Registry& registry_;
    std::unordered_map<std::string, Posting> postings_;
    std::unordered_map<std::string, std::unique_ptr<Entry>> entries_; ///< by key of the store
};

} // namespace orrery::resource
