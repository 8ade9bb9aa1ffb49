#include "dns/name_table.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

namespace orrery::dns {

namespace {
constexpr unsigned root_bits = 17, node_bits = 6, max_shift = root_bits + 7 * node_bits;
/// Bytes to prefetch of an entry: its fields and, for most entries, its name, inline table and records.
constexpr std::size_t entry_prefetch_bytes = 192;
const NameTable::Page empty_page;
bool is_node(std::uintptr_t slot) { return (slot & 1) != 0; }
const Entry* entry_of(std::uintptr_t slot) { return reinterpret_cast<const Entry*>(slot); } // NOLINT: tagged pointer
bool matches(const Entry& entry, std::uint64_t hash, Bytes name) {
    return entry.hash == hash && entry.name_size == name.size() && std::memcmp(entry.name().data(), name.data(), name.size()) == 0;
}
} // namespace

static_assert(NameTable::Root::width * NameTable::Page::width == 1U << root_bits);

/// A trie node with up to 64 slots, of which only the used ones are stored. At the maximum depth all hash bits are used up, so the
/// node is a plain list (a collision node).
struct NameTable::Node {
    std::uint64_t used = 0; ///< bitmap of used slots; unused in a collision node
    std::uint32_t count = 0;
    std::uint32_t is_list = 0; ///< collision node
    Slot slots[1];             // NOLINT: `count` slots

    static std::size_t size_of(std::size_t count) { return sizeof(Node) + (count == 0 ? 0 : count - 1) * sizeof(Slot); }
    static Node* of(Slot slot) { return reinterpret_cast<Node*>(slot & ~Slot{1}); } // NOLINT: tagged pointer
    Slot slot() const { return reinterpret_cast<Slot>(this) | 1; }
};

NameTable::Node* NameTable::make_node(std::size_t count) {
    auto* node = new (memory()->allocate(Node::size_of(count), alignof(Node))) Node;
    node->count = static_cast<std::uint32_t>(count);
    return node;
}

void NameTable::Garbage::Free::operator()(Node* node) const { memory->deallocate(node, Node::size_of(node->count), alignof(Node)); }
void NameTable::Garbage::Free::operator()(const Page* page) const {
    memory->deallocate(const_cast<Page*>(page), sizeof *page, alignof(Page));
}
NameTable::Garbage::~Garbage() = default;

NameTable::NameTable() : root_(std::make_unique<Root>()) { root_->pages.fill(&empty_page); }

NameTable::~NameTable() {
    for (const auto* page : root_->pages) {
        if (page == &empty_page) continue;
        for (const auto slot : page->slots) free_all(slot);
        Garbage::Free{memory()}(page);
    }
}

void NameTable::free_all(Slot slot) {
    if (slot == 0) return;
    if (!is_node(slot)) {
        EntryDeleter{memory()}(entry_of(slot));
        return;
    }
    auto* node = Node::of(slot);
    for (std::size_t i = 0; i < node->count; ++i) free_all(node->slots[i]);
    Garbage::Free{memory()}(node);
}

const Entry* NameTable::find(const Root& root, std::uint64_t hash, Bytes name) {
    auto slot = root.slot(hash);
    for (unsigned shift = root_bits; slot != 0; shift += node_bits) {
        if (!is_node(slot)) return matches(*entry_of(slot), hash, name) ? entry_of(slot) : nullptr;
        const auto* node = Node::of(slot);
        if (node->is_list != 0) {
            for (std::size_t i = 0; i < node->count; ++i)
                if (matches(*entry_of(node->slots[i]), hash, name)) return entry_of(node->slots[i]);
            return nullptr;
        }
        const auto bit = 1ULL << (hash >> shift & 63);
        if ((node->used & bit) == 0) return nullptr;
        slot = node->slots[std::popcount(node->used & (bit - 1))];
    }
    return nullptr;
}

void NameTable::prefetch(const Root& root, std::span<const std::uint64_t> hashes) {
    // Advances all lookups by one step at a time, so that their cache misses overlap.
    struct Walk {
        const Slot* slot; ///< null: the next step reads the node
        const Node* node;
        std::uint64_t hash;
        unsigned shift;
    };
    std::array<Walk, max_prefetch> walks;
    auto active = std::min(hashes.size(), walks.size());
    for (std::size_t i = 0; i < active; ++i) {
        walks[i] = {&root.slot(hashes[i]), nullptr, hashes[i], root_bits};
        __builtin_prefetch(walks[i].slot);
    }
    while (active > 0) {
        std::size_t next_active = 0;
        for (std::size_t i = 0; i < active; ++i) {
            auto walk = walks[i];
            if (walk.slot != nullptr) {
                const auto slot = *walk.slot;
                if (slot == 0) continue;
                if (!is_node(slot)) {
                    const auto* entry = reinterpret_cast<const char*>(entry_of(slot));
                    for (std::size_t at = 0; at < entry_prefetch_bytes; at += 64) __builtin_prefetch(entry + at);
                    continue;
                }
                walk.slot = nullptr;
                walk.node = Node::of(slot);
                __builtin_prefetch(walk.node);
            } else {
                const auto bit = 1ULL << (walk.hash >> walk.shift & 63);
                if (walk.node->is_list != 0 || (walk.node->used & bit) == 0) continue;
                walk.slot = &walk.node->slots[std::popcount(walk.node->used & (bit - 1))];
                walk.shift += node_bits;
                __builtin_prefetch(walk.slot);
            }
            walks[next_active++] = walk;
        }
        active = next_active;
    }
}

void NameTable::retire(const Entry* entry) { garbage_.entries.emplace_back(entry, EntryDeleter{memory()}); }
void NameTable::retire(Node* node) { garbage_.nodes.emplace_back(node, Garbage::Free{memory()}); }

const NameTable::Root* NameTable::version() {
    shared_ = true;
    writable_pages_.reset();
    return root_.get();
}

NameTable::Slot& NameTable::writable_slot(std::uint64_t hash) {
    if (shared_) {
        auto copy = std::make_unique<Root>(*root_);
        garbage_.roots.push_back(std::move(root_));
        root_ = std::move(copy);
        shared_ = false;
    }
    const auto at = hash % Root::width;
    if (auto& page = root_->pages[at]; !writable_pages_[at]) {
        auto* copy = new (memory()->allocate(sizeof(Page), alignof(Page))) Page(*page);
        if (page != &empty_page) garbage_.pages.emplace_back(page, Garbage::Free{memory()});
        page = copy;
        writable_pages_[at] = true;
    }
    return const_cast<Slot&>(root_->slot(hash));
}

void NameTable::set(EntryPtr entry) {
    auto& slot = writable_slot(entry->hash);
    slot = insert(slot, std::move(entry), root_bits);
}

NameTable::Slot NameTable::insert(Slot into, EntryPtr entry, unsigned shift) {
    if (into == 0) return reinterpret_cast<Slot>(entry.release());
    const auto name = entry->name();
    const auto hash = entry->hash;
    if (!is_node(into)) {
        const auto* there = entry_of(into);
        if (matches(*there, hash, name)) {
            retire(there);
            return reinterpret_cast<Slot>(entry.release());
        }
        if (shift >= max_shift) {
            auto* both = make_node(2);
            both->is_list = 1;
            both->slots[0] = into;
            both->slots[1] = reinterpret_cast<Slot>(entry.release());
            return both->slot();
        }
        auto* one = make_node(1);
        one->used = 1ULL << (there->hash >> shift & 63);
        one->slots[0] = into;
        return insert(one->slot(), std::move(entry), shift);
    }
    auto* node = Node::of(into);
    if (node->is_list != 0) {
        std::size_t at = 0;
        while (at < node->count && !matches(*entry_of(node->slots[at]), hash, name)) ++at;
        auto* copy = make_node(at < node->count ? node->count : node->count + 1U);
        copy->is_list = 1;
        std::memcpy(copy->slots, node->slots, node->count * sizeof(Slot));
        if (at < node->count) retire(entry_of(node->slots[at]));
        copy->slots[at] = reinterpret_cast<Slot>(entry.release());
        retire(node);
        return copy->slot();
    }
    const auto bit = 1ULL << (hash >> shift & 63);
    const auto at = static_cast<std::size_t>(std::popcount(node->used & (bit - 1)));
    if ((node->used & bit) != 0) {
        auto* copy = make_node(node->count);
        copy->used = node->used;
        std::memcpy(copy->slots, node->slots, node->count * sizeof(Slot));
        copy->slots[at] = insert(node->slots[at], std::move(entry), shift + node_bits);
        retire(node);
        return copy->slot();
    }
    auto* copy = make_node(node->count + 1U);
    copy->used = node->used | bit;
    std::memcpy(copy->slots, node->slots, at * sizeof(Slot));
    copy->slots[at] = reinterpret_cast<Slot>(entry.release());
    std::memcpy(copy->slots + at + 1, node->slots + at, (node->count - at) * sizeof(Slot));
    retire(node);
    return copy->slot();
}

void NameTable::erase(std::uint64_t hash, Bytes name) {
    if (find(hash, name) == nullptr) return;
    auto& slot = writable_slot(hash);
    slot = remove(slot, hash, name, root_bits);
}

/// The name must exist.
NameTable::Slot NameTable::remove(Slot from, std::uint64_t hash, Bytes name, unsigned shift) {
    if (!is_node(from)) {
        retire(entry_of(from));
        return 0;
    }
    auto* node = Node::of(from);
    std::size_t at = 0;
    std::uint64_t bit = 0;
    Slot remaining = 0;
    if (node->is_list != 0) {
        while (!matches(*entry_of(node->slots[at]), hash, name)) ++at;
        retire(entry_of(node->slots[at]));
    } else {
        bit = 1ULL << (hash >> shift & 63);
        at = static_cast<std::size_t>(std::popcount(node->used & (bit - 1)));
        remaining = remove(node->slots[at], hash, name, shift + node_bits);
    }
    retire(node);
    if (remaining == 0 && node->count == 1) return 0;
    auto* copy = make_node(remaining == 0 ? node->count - 1U : node->count);
    copy->is_list = node->is_list;
    copy->used = remaining == 0 ? node->used & ~bit : node->used;
    std::memcpy(copy->slots, node->slots, at * sizeof(Slot));
    if (remaining != 0) {
        copy->slots[at] = remaining;
        std::memcpy(copy->slots + at + 1, node->slots + at + 1, (node->count - at - 1) * sizeof(Slot));
    } else {
        std::memcpy(copy->slots + at, node->slots + at + 1, (node->count - at - 1) * sizeof(Slot));
    }
    return copy->slot();
}

} // namespace orrery::dns
