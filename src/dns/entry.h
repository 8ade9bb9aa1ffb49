#pragma once

#include "dns/compiled_answers.h"
#include "dns/name.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

namespace orrery::dns {

/// The data of one name, in one block of memory: this struct, its RRset descriptors, the name, the encoded records. Immutable once
/// it is in a NameTable.
struct Entry {
    enum Flag : std::uint8_t {
        apex = 1,
        cut = 2,       ///< a delegation point
        below_cut = 4, ///< glue, or occluded by a delegation
        has_wildcard_child = 8,
        has_cname = 16, ///< among its static records
        is_wildcard = 32,
        empty_non_terminal = 64, ///< exists only because names below it do
    };
    struct Rrset {
        std::uint16_t type = 0, count = 0;
        std::uint32_t offset = 0, size = 0; ///< of the encoded records; each owner is a pointer to the query name
        std::uint32_t signature_offset = 0; ///< RRSIG records in the same form, in a signed zone
        std::uint16_t signature_size = 0, signature_count = 0;
    };
    static constexpr std::uint32_t no_zone = 0xFFFFFFFF;
    static constexpr std::size_t alignment = 64; ///< of the block: one cache line
    /// Fast path of the most common dynamic name: one address by weight, independent of the client. The cells of the alias table
    /// and the records are part of the entry's bytes, so a response touches no other memory. `dynamic` holds the same data.
    struct InlineTable {
        struct Cell {
            std::uint32_t keep = 0;
            std::int16_t own = 0, other = 0; ///< record indexes; -1: no address of this family
        };
        std::uint32_t offset = 0; ///< of the cells; the records follow them
        std::uint16_t cells = 0;  ///< number of cells; 0: no fast path
    };

    std::uint64_t hash = 0;
    std::uint32_t zone = 0;              ///< index in Snapshot::zones
    std::uint32_t parent_zone = no_zone; ///< of an apex whose parent zone is also served here; it answers DS queries
    std::uint8_t flags = 0, name_size = 0;
    std::uint16_t rrset_count = 0;
    std::uint32_t bytes_size = 0;
    std::array<InlineTable, 2> inline_tables; ///< for A, for AAAA
    std::unique_ptr<const CompiledDynamicName> dynamic;

    bool is(Flag flag) const { return (flags & flag) != 0; }
    std::span<const Rrset> rrsets() const { return {reinterpret_cast<const Rrset*>(this + 1), rrset_count}; }
    Bytes name() const { return {reinterpret_cast<const std::uint8_t*>(rrsets().data() + rrset_count), name_size}; }
    Bytes bytes(std::size_t offset, std::size_t size) const { return {name().data() + name_size + offset, size}; }
    Bytes bytes(const Rrset& rrset) const { return bytes(rrset.offset, rrset.size); }
    /// The record that AliasTable::draw would select; empty if the selected candidate has no address of the family.
    Bytes draw_record(const InlineTable& table, std::size_t record_size, std::uint64_t random) const {
        const auto cell_at = static_cast<std::uint32_t>((random >> 32) * table.cells >> 32);
        InlineTable::Cell cell;
        std::memcpy(&cell, bytes(table.offset + cell_at * sizeof cell, sizeof cell).data(), sizeof cell);
        const auto record = static_cast<std::uint32_t>(random) < cell.keep ? cell.own : cell.other;
        if (record < 0) return {};
        return bytes(table.offset + table.cells * sizeof cell + static_cast<std::size_t>(record) * record_size, record_size);
    }
    const Rrset* rrset(std::uint16_t type) const {
        for (const auto& one : rrsets())
            if (one.type == type) return &one;
        return nullptr;
    }
};

struct EntryDeleter {
    std::pmr::memory_resource* memory;
    void operator()(const Entry* entry) const;
};
using EntryPtr = std::unique_ptr<const Entry, EntryDeleter>;
/// Allocates an entry and copies name, RRsets and bytes into it. `fields` provides the other fields.
EntryPtr make_entry(std::pmr::memory_resource* memory, Entry fields, Bytes name, std::span<const Entry::Rrset> rrsets, Bytes bytes);

/// One encoded record of an RRset.
struct RecordView {
    std::uint32_t ttl = 0;
    Bytes data;
};
/// Iterates over the encoded records of an RRset.
class RecordViews {
public:
    explicit RecordViews(Bytes bytes) : rest_(bytes) {}
    bool next(RecordView& out) {
        if (rest_.size() < 12) return false;
        out.ttl = std::uint32_t{rest_[6]} << 24 | std::uint32_t{rest_[7]} << 16 | std::uint32_t{rest_[8]} << 8 | rest_[9];
        const std::size_t size = std::size_t{rest_[10]} << 8 | rest_[11];
        out.data = rest_.subspan(12, size);
        rest_ = rest_.subspan(12 + size);
        return true;
    }

private:
    Bytes rest_;
};

} // namespace orrery::dns
