#pragma once

#include "core/task.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// What names answer, as a DNS service outside is told and asked. One decision goes through any number of publishers; each is a
/// driver behind `Publisher`. Names are lower case with the last dot ("www.gslb.example.").
namespace orrery::gslb {

enum class RecordType { a, aaaa, cname };
std::string_view name_of(RecordType type); ///< "A", "AAAA", "CNAME"

/// All records of one type at one name.
struct RecordSet {
    RecordType type = RecordType::a;
    std::uint32_t ttl = 30;
    std::vector<std::string> values; ///< as `record_set` writes them: sorted, none twice, never none at all
    std::string mark;                ///< who wrote it, see `mark_of`; empty: nobody said

    /// The same answers for the same time, whoever wrote them.
    bool same_data(const RecordSet& other) const { return type == other.type && ttl == other.ttl && values == other.values; }
    std::string text() const; ///< "A 192.0.2.1 192.0.2.2 (ttl 30)"
};
/// At most one of each type, in the order of the types.
using RecordSets = std::vector<RecordSet>;
bool same_data(const RecordSets& left, const RecordSets& right);
const RecordSet* find(const RecordSets& sets, RecordType type);
std::string text_of(const RecordSets& sets); ///< "nothing" for none

/// A set in the one form that compares: addresses as the system writes them, aliases in lower case with the last dot. `invalid`
/// for what is no such value, for none, and for more than one alias.
Result<RecordSet> record_set(RecordType type, std::uint32_t ttl, std::vector<std::string> values);
/// Reads values that a foreign service gave: what cannot be read is kept as it is, so that it shows as a difference.
RecordSet foreign_record_set(RecordType type, std::uint32_t ttl, std::vector<std::string> values, std::string mark = {});

/// The mark that goes with a set: whose it is, and a digest of what was written, so that whoever reads it later (also after a
/// restart, also another server of ours) can tell an own earlier answer from one that somebody changed by hand.
/// "orrery owner=site-1 set=9f86d081884c7d65": at most 100 characters, printable, without quotes.
std::string mark_of(std::string_view owner, const RecordSet& set);
enum class Ownership {
    ours,     ///< marked as ours and as we wrote it
    altered,  ///< marked as ours, but no longer what we wrote
    anothers, ///< another owner's mark
    unmarked,
};
Ownership ownership(const RecordSet& set, std::string_view owner);
/// What may stand in a mark as an owner: 1 to 40 of letters, digits, '.', '_' and '-'.
bool is_owner(std::string_view text);

/// What stands at a name.
struct Standing {
    std::string name;
    RecordSets sets;
    bool settled = true; ///< false: the service has it but does not serve it everywhere yet
    std::string trouble; ///< the service's own words where it says that it cannot serve it
};

/// What is to become of a name.
struct Change {
    std::string name;
    RecordSets before; ///< what was read a moment ago; what stands must still be this
    RecordSets after;  ///< marked
    /// Nothing is to be left at the name. Without it a change to nothing is refused: an answer lost by mistake is an outage.
    bool empties = false;
    std::string reason; ///< one line for people, where the service has a place for it
};

/// What became of a change.
struct Accepted {
    bool settled = true; ///< false: taken, but served later
};

/// Port: a DNS service that answers are published through. Belongs to the loop thread. Calls end at the context's deadline.
/// Errors, of a call or of one change, are classed by what to do next:
///   conflict                       what stands is not `before`: somebody else was there. Nothing was written for that name
///   invalid, too_large             the service does not take this as it is; again only when something changed
///   not_found                      there is no such zone
///   unauthenticated, denied        our credentials are not taken, or may not do this
///   unavailable, timeout, throttled  not now; it may or may not have been done; read again, then try again
class Publisher {
public:
    virtual ~Publisher() = default;
    /// For people: "PowerDNS at http://127.0.0.1:8081". Without secrets.
    virtual std::string description() const = 0;
    /// What stands at these names of the zone, one for each, in their order; nothing at a name is an empty list of sets.
    virtual Task<std::vector<Standing>> read(Context ctx, std::string zone, std::vector<std::string> names) = 0;
    /// Makes all changes, in as few requests as the service allows. One result for each, in their order.
    virtual Task<std::vector<Result<Accepted>>> publish(Context ctx, std::string zone, std::vector<Change> changes) = 0;
    /// What the service would make of these sets (its least TTL, its spelling), so that this is compared and not a wish.
    virtual Task<std::vector<Standing>> normalised(Context, std::string /*zone*/, std::vector<Standing> wanted) {
        co_return wanted;
    }
    /// The most changes in one call of `publish`, and names in one of `read`.
    virtual std::size_t most_at_once() const { return 1000; }
};

/// What a name server answers for a name.
struct Answered {
    RecordSets sets; ///< of addresses or an alias; empty: it says that there are none
    bool authoritative = false;
};

/// Port: asks name servers what they answer.
class NameServers {
public:
    virtual ~NameServers() = default;
    /// One result for each name, in their order: what `server` ("192.0.2.53", "[2001:db8::53]:5353") answers; `unavailable` or
    /// `timeout` where there was no answer that can be trusted.
    virtual Task<std::vector<Result<Answered>>> ask(Context ctx, std::string server, std::vector<std::string> names) = 0;
};

/// For drivers: `invalid` for a change to nothing that does not say so.
Result<Unit> guard_against_emptying(const Change& change);

} // namespace orrery::gslb
