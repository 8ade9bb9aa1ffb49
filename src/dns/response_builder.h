#pragma once

#include "dns/authority.h"
#include "dns/edns.h"
#include "dns/snapshot.h"

#include <array>
#include <optional>
#include <string_view>

namespace orrery::dns {

/// Where a query name is in the snapshot.
struct LookupResult {
    enum class Kind { not_authoritative, exact, wildcard, nxdomain, delegation };
    Kind kind = Kind::not_authoritative;
    const Entry* entry = nullptr; ///< nxdomain: the closest encloser; delegation: the zone cut; otherwise the entry that answers
};
LookupResult find_name(const Snapshot& snapshot, const NameKey& key);

/// Builds the response to one query from the snapshot, by the data at the query name. Lives on the stack of the answering thread.
/// Dynamic names are in response_builder_dynamic.cpp, DNSSEC is in response_builder_dnssec.cpp.
class ResponseBuilder {
    using Section = Writer::Section;
    using Kind = RateLimit::Kind;

public:
    ResponseBuilder(const Authority::Options& options, const Snapshot& snapshot, ThreadState& self, const Query& query,
                    const Client& client, const QueryOptions& query_options, const Clock& clock, Writer& writer)
        : clock_(clock),
          options_(options),
          snapshot_(snapshot),
          self_(self),
          query_(query),
          client_(client),
          query_options_(query_options),
          writer_(writer) {}

    Writer::Header header{.authoritative = false};
    std::uint8_t scope = 0; ///< ECS scope prefix length
    Kind kind = Kind::error;
    /// An extended DNS error, sent to clients with EDNS. `text` must outlive the response.
    struct ExtendedError {
        std::uint16_t code = 0;
        std::string_view text;
    };
    std::optional<ExtendedError> extended_error;

    void build();
    /// Replaces the response by an error without records.
    void reject(Rcode rcode, std::optional<ExtendedError> reason = std::nullopt);

private:
    bool is_address_query() const { return query_.type == type::a || query_.type == type::aaaa; }
    /// Rejects query types that are no data types; true if it did.
    bool reject_meta_type();
    /// Rejects an AXFR or IXFR query over TCP that Authority::transfer did not accept.
    void reject_transfer();
    /// Replaces a response that does not fit by an empty one with TC; over TCP, where a retry would not help, by SERVFAIL.
    void truncate();
    /// Class CH: version.bind and id.server.
    void build_chaos();
    bool is_signed(const ZoneView& zone) const { return zone.key && query_.edns && query_.edns->dnssec_ok; }

    // --- Negative responses and referrals. `entry`: the entry at the name, or the wildcard that matches it; null if the name does
    // --- not exist.

    void build_negative(const ZoneView& zone, const NameKey& key, const Entry* entry, Rcode rcode);
    /// Writes the SOA with compression pointers into the query name, which ends with the zone's name.
    bool write_soa(const ZoneView& zone, const NameKey& key);
    void build_referral(const Entry& cut);
    bool write_delegation_proof(const Entry& cut, const Name& owner);
    /// RFC 9471: false if glue that the client cannot get elsewhere does not fit.
    bool write_glue(const Entry& cut, const Name& owner, const Name& target);

    // --- The name exists -----------------------------------------------------------------------------------------------

    void build_at(const Entry& entry, const NameKey& key, bool is_wildcard);
    /// Type ANY: one small RRset (RFC 8482).
    void build_any(const Entry& entry, const ZoneView& zone, const NameKey& key);
    /// Writes a CNAME chain, as long as the targets are in the same zone and do not depend on the client.
    void follow_cname(const Entry& first, const NameKey& first_key, const ZoneView& zone);
    /// Negative end of a CNAME chain (RFC 2308 section 2.1, RFC 6604): the rcode is that of the last name.
    void end_chain(const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry, Rcode rcode);

    // --- Dynamic names -------------------------------------------------------------------------------------------------

    /// The address that decides the answer set: the client subnet (ECS) if the query has one, otherwise the source address.
    struct EffectiveClient {
        const std::array<std::uint8_t, 16>& address;
        bool v6 = false;
        bool from_ecs = false;
    };
    EffectiveClient effective_client() const;
    /// The answer set for this client; sets `scope` and `extended_error`.
    const CompiledAnswerSet& answer_set_for_client(const CompiledDynamicName& dynamic);
    /// False if the name has no dynamic data for the query type; static records may answer then.
    bool build_dynamic(const Entry& entry, const ZoneView& zone, const NameKey& key, bool is_wildcard);
    void build_empty_answer_set(const AnswerSet& answer_set, const Entry& entry, const ZoneView& zone, const NameKey& key);
    void build_addresses(const CompiledAnswerSet& compiled, const Entry& entry, const ZoneView& zone, const NameKey& key,
                         bool is_wildcard);
    /// The addresses of a dynamic name at the end of a CNAME chain.
    void end_chain_with_addresses(const Entry& entry, const Name& owner, const NameKey& key, const ZoneView& zone);
    SelectionInput selection_input(const AnswerSet& answer_set);
    struct Selected {
        std::array<std::uint16_t, Authority::max_candidates> records; ///< distinct record indexes
        std::size_t count = 0;
    };
    /// Applies the selection policy; candidates without an address and duplicate addresses are left out.
    static void select_records(const CompiledAnswerSet::Family& family, const SelectionInput& input, Selected& out);

    // --- DNSSEC --------------------------------------------------------------------------------------------------------

    /// Compact denial of existence (RFC 9824): an NSEC record that lists the types the name has.
    bool write_denial(const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry);
    /// A query for NSEC or RRSIG itself. In a signed zone every name has them.
    bool is_proof_query() const { return query_.type == type::nsec || query_.type == type::rrsig; }
    void build_proof(const ZoneView& zone, const NameKey& key, const Entry* entry);
    /// Writes the NSEC record and its signature, or only the signature.
    bool write_nsec(Section section, const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry,
                    bool signature_only);
    std::vector<std::uint16_t> nsec_types(const Entry* entry, bool is_in_zone) const;
    /// Writes the signatures of an RRset: those stored with it or, if a wildcard matched, one made on demand.
    bool write_signatures(Section section, const Name& owner, const NameKey& key, const Entry& entry, const Entry::Rrset& rrset,
                          const ZoneView& zone);
    /// Writes a signature that could not be made in advance, from the thread's cache or made now. False if it does not fit, or if
    /// the thread has reached `max_signatures_per_second`.
    bool sign_on_demand(Section section, const Name& owner, const NameKey& key, const ZoneView& zone, const RrsetToSign& rrset);

    const Clock& clock_;
    const Authority::Options& options_;
    const Snapshot& snapshot_;
    ThreadState& self_;
    const Query& query_;
    const Client& client_;
    const QueryOptions& query_options_;
    Writer& writer_;
};

} // namespace orrery::dns
