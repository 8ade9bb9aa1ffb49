#pragma once

#include "dns/alias_table.h"
#include "dns/dynamic_name.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace orrery::dns {

/// An answer set in wire format: every record it may answer with is encoded in advance. The owner of each record is a compression
/// pointer to the query name, so a response copies the bytes unchanged.
struct CompiledAnswerSet {
    explicit CompiledAnswerSet(const AnswerSet& from);

    static constexpr std::size_t a_size = 16, aaaa_size = 28; ///< encoded size of one record
    const AnswerSet& answer_set;                              ///< owned by the caller of the constructor
    struct Family {
        const AnswerSet* source = nullptr; ///< the answer set, or `filtered` if some candidates lack an address of this family
        std::unique_ptr<const AnswerSet> filtered;
        AliasTable alias_table;              ///< for SelectionPolicy::weighted
        std::vector<std::uint8_t> records;   ///< one record for each distinct address of this family
        std::uint16_t record_count = 0;      ///< number of records in `records`
        std::vector<std::int16_t> record_of; ///< index of the record of each candidate of `source`; -1: no address
        // In a signed zone, RRSIG RDATA: of the whole RRset and, for SelectionPolicy::weighted, of each record alone.
        std::vector<std::uint8_t> signature;
        std::vector<std::vector<std::uint8_t>> record_signatures;
    };
    Family v4, v6;
    std::vector<std::uint8_t> alias; ///< the CNAME record
};

/// A dynamic name with all answer sets in wire format. Immutable once an Entry holds it.
struct CompiledDynamicName {
    explicit CompiledDynamicName(std::shared_ptr<const DynamicName> from);
    std::shared_ptr<const DynamicName> definition;
    std::vector<CompiledAnswerSet> answer_sets; ///< equal answer sets of the definition are merged
    std::shared_ptr<const ClientTable> clients;
    bool has_alias = false, has_v4 = false, has_v6 = false; ///< in any of its answer sets
    bool depends_on_client = false;
};

/// Appends a record whose owner is a compression pointer to the query name.
void append_record(std::vector<std::uint8_t>& out, std::uint16_t type, std::uint32_t ttl, Bytes data);

} // namespace orrery::dns
