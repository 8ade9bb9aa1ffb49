#pragma once

#include "dns/entry.h"
#include "dns/name_key.h"
#include "dns/name_memory.h"

#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

namespace orrery::dns {

/// A map from names to entries of which a writer makes new versions that share all that did not change: a change of one name in
/// 100,000 copies one path. Readers see the version they loaded, whole. One writer at a time; what a change made unreachable is
/// handed out by `take_garbage`, and may be freed, by the writer, when no reader can be in an older version.
class NameTable {
public:
    using Slot = std::uintptr_t; ///< nothing, an Entry, or a Node with its lowest bit set
    struct Node;
    /// The first level is wide, so that most of 100,000 names are one step away, and in pages, so that a change copies few of them.
    struct Page {
        static constexpr std::size_t width = 1 << 10;
        std::array<Slot, width> slots{};
    };
    struct Root {
        static constexpr std::size_t width = 1 << 7;
        std::array<const Page*, width> pages;
        const Slot& slot(std::uint64_t hash) const { return pages[hash % width]->slots[hash / width % Page::width]; }
    };
    /// What became unreachable.
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

    /// The entry of `name`, or nothing. Of readers, with a root they got from a snapshot.
    static const Entry* find(const Root& root, std::uint64_t hash, Bytes name);

    /// Has the memory fetched that `find` will need for each of these, all at once. At most `most_fetched`.
    static void fetch(const Root& root, std::span<const std::uint64_t> hashes);
    static constexpr std::size_t most_fetched = 64;

    /// The version that holds all changes so far. It will not change any more.
    const Root* version();
    /// Where entries must be made.
    std::pmr::memory_resource* memory() { return memory_.get(); }
    void set(EntryPtr entry);
    void erase(std::uint64_t hash, Bytes name);
    const Entry* find(std::uint64_t hash, Bytes name) const { return find(*root_, hash, name); }
    Garbage take_garbage() { return std::exchange(garbage_, {}); }

private:
    Slot& own_slot(std::uint64_t hash);
    Slot put(Slot into, EntryPtr entry, unsigned shift);
    Slot without(Slot from, std::uint64_t hash, Bytes name, unsigned shift);
    Node* make_node(std::size_t count);
    void drop(const Entry* entry);
    void drop(Node* node);
    void free_all(Slot slot);

    NameMemory memory_;
    std::unique_ptr<Root> root_;
    bool shared_ = false; ///< a reader may have the root, and all pages but these
    std::bitset<Root::width> own_pages_;
    Garbage garbage_;
};

} // namespace orrery::dns
