#pragma once

#include "resource/index.h"
#include "resource/resources.h"
#include "resource/turns.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

/// Private to Resources: its parts, shared by the files that implement it.
namespace orrery::resource {

struct Resources::State {
    State(Resources& self, store::Store& store_, const Registry& registry_, const Sealer& sealer_, Clock& clock_);

    /// What one attempt at a write came to. An error that may only be due to this server's copy being behind is `doubtful`.
    struct Attempt {
        Outcome outcome;
        std::optional<Error> refused;
        bool doubtful = false;
        bool lost_race = false; ///< somebody else wrote in between: try again
    };
    enum class How { create, replace, patch, status, remove };
    struct Wish {
        How how;
        Object object;
        json::value patch;
        WriteOptions options;
    };

    Task<Attempt> attempt_write(Context ctx, const Kind& kind, const Wish& wish);
    Task<Attempt> attempt_remove(Context ctx, const Kind& kind, const std::string& name, const WriteOptions& options);
    Task<Outcome> write(Context ctx, const Kind& kind, Wish wish);

    /// The sealed form with each secret's place: "Secret/site-key/spec.values.private_key".
    static std::string place_of(const Kind& kind, std::string_view name, std::string_view path);
    void seal_secrets(const Kind& kind, Object& object) const;
    /// Puts stored secrets where `after` says "keep", by the mark or, with `absent_keeps`, by leaving out.
    void join_secrets(const Kind& kind, const Object* before, Object& after, bool absent_keeps,
                      std::vector<FieldError>& errors) const;
    Result<Object> wanted(const Kind& kind, const Wish& wish, const Object* before) const;
    /// That new references hold, now and when the transaction is made.
    void hold_references(const Kind& kind, const Object* before, Object& after, store::Transaction& transaction,
                         std::vector<FieldError>& errors) const;
    /// Adds the audit event of a write.
    void put_event(Context ctx, EventDraft draft, store::Transaction& transaction) const;

    Resources& self;
    store::Store& store;
    const Registry& registry;
    const Sealer& sealer;
    Clock& clock;
    Index index;
    std::shared_ptr<Turns> turns = std::make_shared<Turns>();
    std::vector<std::shared_ptr<void>> observers;
};

/// The changes as evidence of an event, cut to what an event may hold.
json::object evidence_of(const std::vector<Difference>& differences);

} // namespace orrery::resource
