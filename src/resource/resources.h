#pragma once

#include "resource/kind.h"
#include "resource/object.h"
#include "resource/sealer.h"
#include "store/leadership.h"
#include "store/store.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::resource {

/// "role=compute,zone!=b,gpu,!legacy": all must hold.
class LabelSelector {
public:
    static Result<LabelSelector> parse(std::string_view text);
    bool matches(const std::map<std::string, std::string>& labels) const;
    bool empty() const { return terms_.empty(); }
    struct Term {
        enum class What { equals, differs, exists, missing };
        What what;
        std::string key, value;
    };
    const std::vector<Term>& terms() const { return terms_; }

private:
    std::vector<Term> terms_;
};

struct ListQuery {
    LabelSelector labels;
    std::vector<std::pair<std::string, std::string>> fields; ///< indexed spec fields and the value asked for
    std::string from, until;                                 ///< names in [from, until): time ranges of events; empty: open
    std::size_t limit = 500;                                 ///< at most 5,000
    std::string after;                                       ///< the name to go on after
    bool newest_first = false;
};

struct ListPage {
    std::vector<store::RecordPtr> records;
    std::string next; ///< the name to give as `after`; empty at the end
    store::Revision revision = 0;
};

struct WriteOptions {
    bool dry_run = false;
    std::optional<store::Revision> if_revision; ///< only if it stands at this revision; else `conflict` with a field "If-Match"
    std::string because;                        ///< the reason a person gave, for the audit event
    const store::Fence* fence = nullptr;        ///< a controller's: the write counts only while it leads
};

struct Outcome {
    enum class What { created, updated, unchanged, removed };
    What what = What::unchanged;
    Object object; ///< as it now stands, secrets taken out
    std::vector<Difference> differences;
    json::object once; ///< shown this one time and kept nowhere (a new token)
};

/// An event for people and for audit: what happened to whom, by whom, why, on what evidence.
struct EventDraft {
    std::string subject; ///< "Node/n1"
    std::string what;    ///< "created", "updated", "removed", "login-refused", ...
    std::string because;
    json::value evidence;
};

/// The resources, as the API and controllers see them: validated, sealed, indexed, audited. Reads are answered from memory: by
/// name, by label, by indexed field, by reference, none by scanning what it does not return. Loop thread only.
class Resources {
public:
    Resources(store::Store& store, const Registry& registry, const Sealer& sealer, Clock& clock);
    ~Resources();

    const Registry& registry() const;
    store::Store& store();

    /// Public form (no secrets). `not_found` in words.
    Result<Object> get(const Kind& kind, std::string_view name) const;
    bool exists(const Kind& kind, std::string_view name) const;
    /// The record with its sealed secrets: for rendering with `public_json` and for code inside the server.
    store::RecordPtr find(const Kind& kind, std::string_view name) const;
    Result<ListPage> list(const Kind& kind, const ListQuery& query) const;
    /// The API's JSON text of a record. Fast: where the kind has no secrets the stored text is used as it is.
    void append_public_json(const Kind& kind, const store::Record& record, std::string& out) const;
    /// Who refers to it: "Node/n1 (spec.ssh.key)"; at most `limit`.
    std::vector<std::string> referrers(const Kind& kind, std::string_view name, std::size_t limit = 20) const;
    /// A secret field in the clear, for drivers that must log in somewhere. Never for an answer.
    Result<std::string> reveal(const Kind& kind, std::string_view name, std::string_view path) const;

    /// `conflict` when it exists. References must exist. Leaves an audit event in the same transaction, as do all below.
    Task<Outcome> create(Context ctx, const Kind& kind, Object object, WriteOptions options);
    /// Labels and spec become exactly those given; status stays. Secret fields that are absent keep their value. `unchanged` writes
    /// nothing.
    Task<Outcome> replace(Context ctx, const Kind& kind, Object object, WriteOptions options);
    /// RFC 7396 on {labels, spec}.
    Task<Outcome> patch(Context ctx, const Kind& kind, std::string name, json::value patch, WriteOptions options);
    /// `conflict` with the list of who refers.
    Task<Outcome> remove(Context ctx, const Kind& kind, std::string name, WriteOptions options);
    /// Controllers only. No audit event: status is a consequence, and the decision behind it has an event of its own.
    Task<Outcome> set_status(Context ctx, const Kind& kind, std::string name, json::object status, WriteOptions options);

    /// The same for several of one kind, in one transaction of at most `store::max_changes`: `make` says what the status of each is
    /// to be, nothing: as it is. Those that are no more are passed over; where others wrote meanwhile, each is written by itself.
    using MakeStatus = std::function<std::optional<json::object>(const Object& now)>;
    Task<Unit> set_statuses(Context ctx, const Kind& kind, std::vector<std::string> names, MakeStatus make,
                            const store::Fence* fence);

    /// Appends an event. A failure is logged here too, so that whoever has done its work already need not care.
    Task<Unit> record(Context ctx, EventDraft event);
    /// Removes events from before `older_than`, and the oldest beyond `keep_at_most`, some at a time; how many. `fence` as in
    /// WriteOptions.
    Task<int> remove_old_events(Context ctx, WallTime older_than, std::size_t keep_at_most, const store::Fence* fence);

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::resource
