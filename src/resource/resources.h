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

/// A label selector such as "role=compute,zone!=b,gpu,!legacy"; all terms must match.
class LabelSelector {
public:
    static Result<LabelSelector> parse(std::string_view text);
    bool matches(const std::map<std::string, std::string>& labels) const;
    bool empty() const { return terms_.empty(); }
    struct Term {
        enum class Op { equals, differs, exists, missing };
        Op op;
        std::string key, value;
    };
    const std::vector<Term>& terms() const { return terms_; }

private:
    std::vector<Term> terms_;
};

struct ListQuery {
    LabelSelector labels;
    std::vector<std::pair<std::string, std::string>> fields; ///< indexed spec fields and the wanted values
    std::string from, until;                                 ///< names in [from, until): time ranges of events; empty: open
    std::size_t limit = 500;                                 ///< at most 5,000
    std::string after;                                       ///< return names after this one
    bool newest_first = false;
};

struct ListPage {
    std::vector<store::RecordPtr> records;
    std::string next; ///< pass it as `after` for the next page; empty at the end
    store::Revision revision = 0;
};

struct WriteOptions {
    bool dry_run = false;
    std::optional<store::Revision> if_revision; ///< required revision; else `conflict` with a field "If-Match"
    std::string reason;                         ///< from the person, for the audit event
    const store::Fence* fence = nullptr;        ///< of a controller: the write fails after the leadership is lost
    bool may_name_secrets = true;               ///< accept new {secret: NAME.KEY} references
    bool self_registration = false;             ///< by a program, through a facade
};

struct Outcome {
    enum class Action { created, updated, unchanged, removed };
    Action action = Action::unchanged;
    Object object; ///< the current object, secrets masked
    std::vector<Difference> differences;
    json::object once; ///< returned once and stored nowhere (a new token)
};

/// An event of the audit trail.
struct EventDraft {
    std::string subject; ///< "Node/n1"
    std::string action;  ///< "created", "updated", "removed", "login-refused", ...
    std::string reason;
    json::value evidence;
};

/// Access to resources for the API and for controllers: validated, sealed, indexed, audited. Reads use memory only; lists by name,
/// label, indexed field or reference use indexes. Loop thread only.
class Resources {
public:
    Resources(store::Store& store, const Registry& registry, const Sealer& sealer, Clock& clock);
    ~Resources();

    const Registry& registry() const;
    store::Store& store() const;

    /// Returns the public form, without secrets. Errors: `not_found`.
    Result<Object> get(const Kind& kind, std::string_view name) const;
    bool exists(const Kind& kind, std::string_view name) const;
    /// The record with sealed secrets, for `append_public_json` and for code inside the server.
    store::RecordPtr find(const Kind& kind, std::string_view name) const;
    Result<ListPage> list(const Kind& kind, const ListQuery& query) const;
    /// Appends the JSON of the API. For kinds without secrets this copies the stored text.
    void append_public_json(const Kind& kind, const store::Record& record, std::string& out) const;
    /// At most `limit` resources that reference or use it (Registry::add_users), as "Node/n1 (spec.ssh.key)".
    std::vector<std::string> referrers(const Kind& kind, std::string_view name, std::size_t limit = 20) const;
    /// Decrypts a secret field, for drivers. Never for responses.
    Result<std::string> reveal(const Kind& kind, std::string_view name, std::string_view path) const;

    /// Decrypts the value of a Secret by "NAME.KEY", for drivers. Errors: `not_found` with the missing part.
    Result<std::string> reveal_named(std::string_view named) const;
    /// Sealer::keyed_hash with the sealing key.
    std::string keyed_hash(std::string_view purpose, std::string_view text) const;

    /// Creates a resource; references must exist. Writes an audit event in the same transaction, as do all writes below. Errors:
    /// `conflict` when it exists.
    Task<Outcome> create(Context ctx, const Kind& kind, Object object, WriteOptions options);
    /// Replaces labels and spec; status does not change. Absent secret fields keep their values. Without a difference nothing is
    /// written.
    Task<Outcome> replace(Context ctx, const Kind& kind, Object object, WriteOptions options);
    /// Applies a JSON merge patch (RFC 7396) to {labels, spec}.
    Task<Outcome> patch(Context ctx, const Kind& kind, std::string name, json::value patch, WriteOptions options);
    /// Errors: `conflict` with the list of referrers.
    Task<Outcome> remove(Context ctx, const Kind& kind, std::string name, WriteOptions options);
    /// Creates or replaces several resources, with further events, in one atomic transaction. They may not reference each other.
    /// Errors: `conflict` when one of them is not at its revision.
    struct JointWrite {
        const Kind* kind = nullptr;
        Object object;
        store::Revision revision = 0;       ///< current revision of a replaced resource; 0: create it
        std::optional<json::object> status; ///< new status; nullopt: unchanged
    };
    Task<Unit> write_together(Context ctx, std::vector<JointWrite> writes, std::vector<EventDraft> events, WriteOptions options);
    /// For controllers. Without an audit event, because the decision behind a status has an event of its own.
    Task<Outcome> set_status(Context ctx, const Kind& kind, std::string name, json::object status, WriteOptions options);

    /// Sets the status of several resources of one kind in one transaction of at most `store::max_changes`. `make` returns the new
    /// status; nullopt: unchanged. Removed resources are skipped. After a conflict each resource is written separately.
    using MakeStatus = std::function<std::optional<json::object>(const Object& now)>;
    Task<Unit> set_statuses(Context ctx, const Kind& kind, std::vector<std::string> names, MakeStatus make,
                            const store::Fence* fence);

    /// Appends an event. Failures are also logged here, so that callers may ignore them.
    Task<Unit> record(Context ctx, EventDraft event);
    /// Removes events older than `older_than` and the oldest events beyond `max_events`, in several transactions, and returns their
    /// number. `fence` as in WriteOptions.
    Task<int> remove_old_events(Context ctx, WallTime older_than, std::size_t max_events, const store::Fence* fence);

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::resource
