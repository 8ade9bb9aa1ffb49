#pragma once

#include "dns/entry.h"
#include "dns/name_arena.h"
#include "dns/name_key.h"

#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

namespace orrery::dns {

/// A persistent hash array mapped trie from names to entries. Each change makes a new version that shares all unchanged nodes: a
/// change of one name among 100,000 copies one path. Readers use the version they loaded. One writer at a time: it collects the
/// nodes that a change made unreachable with `release_garbage`, and frees them when no reader can use an older version.
class NameTable {
public:
    using Slot = std::uintptr_t; ///< 0, an Entry*, or a Node* with its lowest bit set
    struct Node;
    /// The first level is wide, so that most of 100,000 names are one step away. It is divided into pages, so that a change copies
    /// one page only.
    struct Page {
        static constexpr std::size_t width = 1 << 10;
        std::array<Slot, width> slots{};
    };
    struct Root {
        static constexpr std::size_t width = 1 << 7;
        std::array<const Page*, width> pages;
        const Slot& slot(std::uint64_t hash) const { return pages[hash % width]->slots[hash / width % Page::width]; }
    };
    /// Unreachable nodes, pages, entries and roots. The destructor frees them.
    class Garbage {
    public:
        Garbage() = default;
        Garbage(Garbage&&) noexcept = default;
        Garbage& operator=(Garbage&&) noexcept = default;
        ~Garbage();

    private:
        friend class NameTable;
        struct Free {
            std::pmr::memory_resource* memory;
            void operator()(Node* node) const;
            void operator()(const Page* page) const;
        };
        std::vector<std::unique_ptr<Node, Free>> nodes;
        std::vector<std::unique_ptr<const Page, Free>> pages;
        std::vector<EntryPtr> entries;
        std::vector<std::unique_ptr<const Root>> roots;
    };

    NameTable();
    ~NameTable();
    NameTable(const NameTable&) = delete;
    NameTable& operator=(const NameTable&) = delete;

    /// The entry of `name`, or null. For readers, with the root of a snapshot.
    static const Entry* find(const Root& root, std::uint64_t hash, Bytes name);

    /// Prefetches the memory that `find` will read for these hashes; the cache misses overlap. At most `max_prefetch` hashes.
    static void prefetch(const Root& root, std::span<const std::uint64_t> hashes);
    static constexpr std::size_t max_prefetch = 64;

    /// Freezes and returns the current version; later changes make a new one.
    const Root* version();
    /// The arena in which entries must be allocated.
    std::pmr::memory_resource* memory() { return arena_.get(); }
    void set(EntryPtr entry);
    void erase(std::uint64_t hash, Bytes name);
    const Entry* find(std::uint64_t hash, Bytes name) const { return find(*root_, hash, name); }
    Garbage release_garbage() { return std::exchange(garbage_, {}); }

private:
    Slot& writable_slot(std::uint64_t hash);
    Slot insert(Slot into, EntryPtr entry, unsigned shift);
    Slot remove(Slot from, std::uint64_t hash, Bytes name, unsigned shift);
    Node* make_node(std::size_t count);
    void retire(const Entry* entry);
    void retire(Node* node);
    void free_all(Slot slot);

    NameArena arena_;
    std::unique_ptr<Root> root_;
    bool shared_ = false;                     ///< a reader may use the root
    std::bitset<Root::width> writable_pages_; ///< pages that no reader uses
    Garbage garbage_;
};

} // namespace orrery::dns
