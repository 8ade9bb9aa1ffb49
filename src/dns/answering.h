#pragma once

#include "dns/edns.h"
#include "dns/snapshot.h"

#include <optional>
#include <string_view>

namespace orrery::dns {

/// What is at a name, or near it.
struct Located {
    enum class How { nowhere, exact, wildcard, missing, delegated };
    How how = How::nowhere;
    const Entry* entry = nullptr; ///< what answers; of a missing name the closest that exists, of a delegated one the cut
};
Located locate(const Snapshot& snapshot, const NameKey& key);

/// One answer being made. It is written here by what there is at the name; from choices in answering_choice.cpp, with signatures in
/// answering_signed.cpp.
class Answering {
    using Section = Writer::Section;
    using Kind = RateLimit::Kind;

public:
    Answering(const Authority::Options& options, const Snapshot& snapshot, Answerer& self, const Query& query, const Asker& asker,
              const AskedOptions& asked, const Clock& clock, Writer& writer)
        : clock_(clock),
          options_(options),
          snapshot_(snapshot),
          self_(self),
          query_(query),
          asker_(asker),
          asked_(asked),
          writer_(writer) {}

    Writer::Finish finish{.authoritative = false};
    std::uint8_t scope = 0;
    Kind kind = Kind::error;
    /// An extended error for who asks with EDNS. What it refers to outlives the answer.
    struct Detail {
        std::uint16_t code = 0;
        std::string_view text;
    };
    std::optional<Detail> detail;

    void answer();

private:
    void refuse(Rcode rcode, std::optional<Detail> why = std::nullopt);
    /// A zone over TCP that was asked for and not given.
    void no_transfer();
    /// It does not fit. Nothing of it is better than a part: over TCP there is all of it.
    void truncate();
    void chaos();
    bool is_signed(const ZoneView& zone) const { return zone.key && query_.edns && query_.edns->dnssec_ok; }
    /// `entry`: what is at the name, or the wildcard that stands for it; nothing where there is no name.
    void negative(const ZoneView& zone, const NameKey& key, const Entry* entry, Rcode rcode);
    /// Proof that the name has nothing of the type (RFC 9824): the name is said to be there, with no types but those it has.
    bool deny(const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry);
    /// The signatures of a set that was answered with. They were made with the set, unless a wildcard stands for the name.
    bool sign_set(Section section, const Name& owner, const NameKey& key, const Entry& entry, const Entry::Set& set,
                  const ZoneView& zone);
    /// Signs what nobody could have signed before it was asked for; so many a second.
    bool sign(Section section, const Name& owner, const NameKey& key, const ZoneView& zone, const SetToSign& set);
    /// The SOA for a negative answer, with pointers to the end of the question's name, which is the zone's.
    bool soa(const ZoneView& zone, const NameKey& key);
    void refer(const Entry& cut);
    static Name plain_name(Bytes wire);
    /// The name is there, and is ours to answer for.
    void at(const Entry& entry, const NameKey& key, bool wild);
    /// RFC 8482: something small that is true.
    void any(const Entry& entry, const ZoneView& zone, const NameKey& key);
    /// Whether it said what there is to say; else static records may.
    bool dynamic(const Entry& entry, const ZoneView& zone, const NameKey& key, bool wild);
    /// The CNAME, and what it leads to as long as that is in the same zone and the same for all who ask.
    void follow(const Entry& first, const NameKey& first_key, const ZoneView& zone);
    /// RFC 2308 2.1, 6604: the code is that of the last name, and its zone's SOA says for how long.
    void end_of_chain(const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry, Rcode rcode);
    void chain_dynamic(const Entry& entry, const Name& owner, const NameKey& key, const ZoneView& zone);

    const Clock& clock_;
    const Authority::Options& options_;
    const Snapshot& snapshot_;
    Answerer& self_;
    const Query& query_;
    const Asker& asker_;
    const AskedOptions& asked_;
    Writer& writer_;
};

} // namespace orrery::dns
