#pragma once

#include "dns/choice.h"
#include "dns/client_map.h"
#include "dns/draw.h"
#include "dns/name.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

namespace orrery::dns {

/// A choice made ready: every record it may answer with is bytes already, to be copied behind the question (its owner is a pointer
/// to the name asked for).
struct ReadyChoice {
    explicit ReadyChoice(const Choice& from);

    static constexpr std::size_t a_size = 16, aaaa_size = 28;
    const Choice& choice; ///< whoever made this keeps it
    AliasTable table;     ///< of Picking::one
    struct Family {
        std::vector<std::uint8_t> all;      ///< the records of all that have an address of this family, in order, none twice
        std::uint16_t all_count = 0;        ///<
        std::vector<std::int16_t> place_of; ///< of a candidate's record in `all`; −1: none
        // In a signed zone, the data of RRSIG records: of all together, and where one is picked of each alone.
        std::vector<std::uint8_t> signature;
        std::vector<std::vector<std::uint8_t>> signatures;
    };
    Family v4, v6;
    std::vector<std::uint8_t> alias; ///< the CNAME record
};

/// A dynamic name made ready.
struct Dynamic {
    explicit Dynamic(std::shared_ptr<const Tailored> from);
    std::shared_ptr<const Tailored> tailored;
    std::vector<ReadyChoice> choices;
    std::shared_ptr<const ClientTable> clients;
    bool has_alias = false, has_v4 = false, has_v6 = false; ///< in any of its choices
    bool by_client = false;                                 ///< the answer depends on who asks
};

/// What a name answers with, in one block of memory: this, its sets of records, its name, its records' bytes.
struct Entry {
    enum Flag : std::uint8_t {
        apex = 1,
        cut = 2,       ///< delegated from here
        below_cut = 4, ///< glue, or hidden by a delegation above
        wildcard_child = 8,
        alias = 16, ///< has a CNAME among its static records
        is_wildcard = 32,
        nothing = 64, ///< only a place between others
    };
    struct Set {
        std::uint16_t type = 0, count = 0;
        std::uint32_t at = 0, size = 0; ///< of the bytes: whole records, each with a pointer to the question as its owner
        std::uint32_t signature_at = 0; ///< RRSIG records in the same form, if the zone is signed
        std::uint16_t signature_size = 0, signature_count = 0;
    };
    static constexpr std::uint32_t nowhere = 0xFFFFFFFF;
    static constexpr std::size_t alignment = 64; ///< of the block: what it needs of the cache is as little as can be
    /// One of several by weight, the same for all who ask: what most dynamic names are. Here the draw's cells and the records stand
    /// in the entry's own bytes, so that such an answer touches no other memory; `dynamic` says the same at length.
    struct Quick {
        struct Cell {
            std::uint32_t keep = 0;
            std::int16_t own = 0, other = 0; ///< places of records; −1: no address of this family
        };
        std::uint32_t at = 0; ///< of the cells; the records come after them
        std::uint16_t cells = 0;
    };

    std::uint64_t hash = 0;
    std::uint32_t zone = 0;              ///< its place among the snapshot's zones
    std::uint32_t parent_zone = nowhere; ///< of an apex, where we serve the zone above too: that answers for DS
    std::uint8_t flags = 0, name_size = 0;
    std::uint16_t set_count = 0;
    std::uint32_t bytes_size = 0;
    std::array<Quick, 2> quick; ///< of A, of AAAA
    std::unique_ptr<const Dynamic> dynamic;

    bool is(Flag flag) const { return (flags & flag) != 0; }
    std::span<const Set> sets() const { return {reinterpret_cast<const Set*>(this + 1), set_count}; }
    Bytes name() const { return {reinterpret_cast<const std::uint8_t*>(sets().data() + set_count), name_size}; }
    Bytes bytes(std::size_t at, std::size_t size) const { return {name().data() + name_size + at, size}; }
    Bytes bytes(const Set& set) const { return bytes(set.at, set.size); }
    /// Which record a draw of `quick` gives, as AliasTable says it; nothing where it has no address of the family.
    Bytes drawn(const Quick& from, std::size_t record_size, std::uint64_t random) const {
        const auto cell_at = static_cast<std::uint32_t>((random >> 32) * from.cells >> 32);
        Quick::Cell cell;
        std::memcpy(&cell, bytes(from.at + cell_at * sizeof cell, sizeof cell).data(), sizeof cell);
        const auto place = static_cast<std::uint32_t>(random) < cell.keep ? cell.own : cell.other;
        if (place < 0) return {};
        return bytes(from.at + from.cells * sizeof cell + static_cast<std::size_t>(place) * record_size, record_size);
    }
    const Set* set(std::uint16_t type) const {
        for (const auto& one : sets())
            if (one.type == type) return &one;
        return nullptr;
    }
};

struct FreeEntry {
    std::pmr::memory_resource* memory;
    void operator()(const Entry* entry) const;
};
using EntryPtr = std::unique_ptr<const Entry, FreeEntry>;
/// Copies what it is given; `like` says the rest.
EntryPtr make_entry(std::pmr::memory_resource* memory, Entry like, Bytes name, std::span<const Entry::Set> sets, Bytes bytes);

/// The records of a set, as they stand in an entry's bytes.
struct RecordView {
    std::uint32_t ttl = 0;
    Bytes data;
};
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
/// Appends a record whose owner is a pointer to the question.
void append_record(std::vector<std::uint8_t>& out, std::uint16_t type, std::uint32_t ttl, Bytes data);

} // namespace orrery::dns
