#pragma once

#include "resource/index.h"
#include "resource/keyed_mutex.h"
#include "resource/resources.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

/// The implementation of Resources, shared by its source files.
namespace orrery::resource {

struct Resources::State {
    State(Resources& self, store::Store& store_, const Registry& registry_, const Sealer& sealer_, Clock& clock_);

    /// The result of one attempt to write. `doubtful`: the error may be caused by an outdated copy of the store.
    struct Attempt {
        Outcome outcome;
        std::optional<Error> refused;
        bool doubtful = false;
        bool lost_race = false; ///< a concurrent write intervened: try again
    };
    enum class How { create, replace, patch, status, remove };
    struct Wish {
        How how;
        Object object;
        json::value patch;
        WriteOptions options;
        std::optional<json::object> status = {}; ///< set together with a create or replace
    };

    /// Adds the changes of a write to the transaction; adds nothing when the write is rejected or changes nothing.
    Task<Attempt> prepare_write(Context ctx, const Kind& kind, const Wish& wish, store::Transaction& transaction);
    /// Why the current state of the resource does not permit the write; nullopt if it does.
    static std::optional<Error> precondition_error(const Kind& kind, const Wish& wish, const Object* before);
    /// Adds the stored text, the compares, the fence and the audit event of a write.
    void add_changes(const Context& ctx, const Kind& kind, const Wish& wish, const store::RecordPtr& record, std::string text,
                     const Expectations& expect, const Outcome& outcome, store::Transaction& transaction) const;
    /// Writes the transaction of an attempt. A conflict is not an error: the attempt lost a race and is repeated.
    Task<Attempt> commit(Context ctx, store::Transaction transaction, Attempt attempt);
    Task<Attempt> attempt_write(Context ctx, const Kind& kind, const Wish& wish);
    Task<Attempt> attempt_remove(Context ctx, const Kind& kind, const std::string& name, const WriteOptions& options);
    Task<Outcome> write(Context ctx, const Kind& kind, Wish wish);

    /// The path that a secret is sealed for: "Secret/site-key/spec.values.private_key".
    static std::string sealing_path(const Kind& kind, std::string_view name, std::string_view path);
    void seal_secrets(const Kind& kind, Object& object) const;
    /// Copies stored secrets to `after` where it has the mark, or, with `absent_keeps`, where it has no value.
    void join_secrets(const Kind& kind, const Object* before, Object& after, bool absent_keeps,
                      std::vector<FieldError>& errors) const;
    Result<Object> wanted(const Kind& kind, const Wish& wish, const Object* before) const;
    /// Checks that new references exist, and adds compares for them to the transaction.
    void hold_references(const Kind& kind, const Object* before, Object& after, const WriteOptions& options,
                         store::Transaction& transaction, std::vector<FieldError>& errors) const;
    /// Checks that newly referenced values of Secrets exist and may be referenced.
    void check_named_secrets(const Kind& kind, json::object& old_spec, Object& after, const WriteOptions& options,
                             std::vector<FieldError>& errors) const;
    /// Adds the audit event of a write.
    void put_event(Context ctx, EventDraft draft, store::Transaction& transaction) const;

    Resources& self;
    store::Store& store;
    const Registry& registry;
    const Sealer& sealer;
    Clock& clock;
    Index index;
    std::shared_ptr<KeyedMutex> write_locks = std::make_shared<KeyedMutex>();
    std::vector<std::shared_ptr<void>> observers;
};

/// The changes as evidence of an event, truncated to its size limit.
json::object evidence_of(const std::vector<Difference>& differences);

} // namespace orrery::resource
