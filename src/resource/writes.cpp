#include "core/text.h"
#include "core/truncate.h"
#include "resource/resources_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace orrery::resource {

namespace {

/// How often a write is tried again after a conflict. Each conflict is a success of another writer, so this is reached only under a
/// crowd on one resource.
constexpr int max_attempts = 16;
constexpr std::size_t max_new_references = 50; // two operations each, of which a transaction has 120

json::object labels_and_spec(const Object& object) {
    json::object labels, out;
    for (const auto& [key, value] : object.labels) labels.emplace(key, json::string(value));
    out.emplace("labels", std::move(labels));
    out.emplace("spec", object.spec);
    return out;
}

/// What differs between them. Most writes change one part only, and then only that is copied.
std::vector<Difference> differences_of(const Kind& kind, const Object* before, const Object& after) {
    if (before == nullptr) return differences(kind, json::object(), labels_and_spec(after));
    Object old_part, new_part;
    if (before->labels != after.labels) old_part.labels = before->labels, new_part.labels = after.labels;
    if (before->spec != after.spec) old_part.spec = before->spec, new_part.spec = after.spec;
    return differences(kind, labels_and_spec(old_part), labels_and_spec(new_part));
}

/// `users` are "Node/n1 (spec.ssh.key)". Few are listed in the message, many only in the fields.
Error referred_to(const Kind& kind, std::string_view name, const std::vector<std::string>& users, std::size_t more) {
    const auto total = users.size() + more;
    auto by = total <= 3 ? fmt::format("{}", fmt::join(users, ", ")) : fmt::format("{} resources", total);
    if (more > 0) by += fmt::format(", of which {} are listed", users.size());
    Error error{Code::conflict, fmt::format("{} {} is referred to by {}", kind.name(), name, by), "change or remove those first"};
    for (const std::string_view user : users) {
        const auto space = user.find(" (");
        const auto where = space == std::string_view::npos ? std::string_view("refers to it") : user.substr(space + 2);
        error.fields.push_back({std::string(user.substr(0, space)), std::string(where.substr(0, where.rfind(')')))});
    }
    return error;
}

Error wrong_revision(const Kind& kind, const Object& before, store::Revision expected) {
    Error error{Code::conflict,
                fmt::format("{} {} is at revision {}, not {}: it was changed since you read it", kind.name(), before.name,
                            before.revision, expected),
                "read it again and repeat the change on what it is now"};
    error.fields.push_back({"If-Match", fmt::format("is not its present revision, which is {}", before.revision)});
    return error;
}

std::string guard_key(const std::string& target_key) { return fmt::format("{}/{}", reference_guards, target_key); }

/// The references of an object: the key of the target, and the path of the reference.
std::map<std::string, std::pair<const Field*, std::string>> references_of(const Registry& registry, const Kind& kind,
                                                                          json::object& spec) {
    std::map<std::string, std::pair<const Field*, std::string>> out;
    if (!kind.has_references()) return out;
    visit_references(kind.spec(), spec, "spec", [&](const Field& field, const std::string& path, json::value& value) {
        const auto* target = registry.find(field.reference());
        if (target != nullptr && value.is_string())
            out.try_emplace(target->prefix() + std::string(std::string_view(value.get_string())), &field, path);
    });
    return out;
}

/// A secret left out keeps its value, if what it belongs to is still there.
void fill_absent_secrets(const Field& declared, const json::object& before, json::object& after) {
    for (const auto& field : declared.children()) {
        const auto* stored = before.if_contains(field.name());
        if (stored == nullptr) continue;
        auto* given = after.if_contains(field.name());
        if (field.is_secret() && given == nullptr)
            after.emplace(field.name(), *stored);
        else if (given != nullptr && field.type() == Type::object && given->is_object() && stored->is_object())
            fill_absent_secrets(field, stored->get_object(), given->get_object());
    }
}

} // namespace

std::string Resources::State::sealing_path(const Kind& kind, std::string_view name, std::string_view path) {
    return fmt::format("{}/{}/{}", kind.name(), name, path);
}

void Resources::State::seal_secrets(const Kind& kind, Object& object) const {
    if (!kind.has_secrets()) return;
    visit_secrets(kind.spec(), object.spec, "spec", [&](const Field&, const std::string& path, json::value& value) {
        if (value.is_string())
            value =
                json::object{{"$sealed", sealer.seal(std::string_view(value.get_string()), sealing_path(kind, object.name, path))}};
    });
}

void Resources::State::join_secrets(const Kind& kind, const Object* before, Object& after, bool absent_keeps,
                                    std::vector<FieldError>& errors) const {
    if (!kind.has_secrets()) return;
    std::map<std::string, json::value> stored;
    if (before != nullptr) {
        auto spec = before->spec;
        visit_secrets(kind.spec(), spec, "spec",
                      [&](const Field&, const std::string& path, json::value& value) { stored.emplace(path, value); });
    }
    visit_secrets(kind.spec(), after.spec, "spec", [&](const Field&, const std::string& path, json::value& value) {
        if (!value.is_string()) {
            errors.push_back({path, "must be a text"});
            return;
        }
        const auto kept = stored.find(path);
        const std::string_view plain = value.get_string();
        if (plain == sealed_mark) {
            if (kept == stored.end())
                errors.push_back({path, fmt::format("says {}, but nothing is stored there that could be kept", sealed_mark)});
            else
                value = kept->second;
        } else if (kept != stored.end()) {
            const auto* sealed = sealed_text(kept->second);
            const auto opened = sealed == nullptr ? Result<std::string>()
                                                  : sealer.unseal(std::string_view(*sealed), sealing_path(kind, after.name, path));
            if (opened.ok() && *opened == plain) value = kept->second; // the same again is no change
        }
    });
    if (before != nullptr && absent_keeps) fill_absent_secrets(kind.spec(), before->spec, after.spec);
}

Result<Object> Resources::State::wanted(const Kind& kind, const Wish& wish, const Object* before) const {
    Object after = wish.object;
    if (wish.how == How::patch) {
        Object shown = *before;
        mask_secrets(kind, shown.spec);
        json::value document = labels_and_spec(shown);
        if (!wish.patch.is_object()) return Error{Code::invalid, "a patch must be an object with labels or spec"};
        merge_patch(document, wish.patch);
        TRY(after, read_object(kind, shown.name, document));
    }
    after.kind = kind.name();
    after.created_at = before == nullptr ? clock.wall() : before->created_at;
    after.revision = before == nullptr ? 0 : before->revision;
    after.status = before == nullptr ? json::object() : before->status;
    if (wish.how == How::status) {
        auto status = wish.object.status;
        after = *before;
        std::vector<FieldError> errors;
        if (!kind.status().children().empty()) check_fields(kind.status(), status, "status", errors);
        TRY([[maybe_unused]] auto valid, verdict(kind, after.name, std::move(errors)));
        after.status = std::move(status);
        return after;
    }
    std::vector<FieldError> errors;
    if (auto right = check_format(Format::name, after.name); !right.empty()) errors.push_back({"name", std::move(right)});
    check_labels(after.labels, errors);
    join_secrets(kind, before, after, wish.how == How::replace, errors);
    TRY([[maybe_unused]] auto joined, verdict(kind, after.name, std::move(errors)));
    errors.clear();
    check_fields(kind.spec(), after.spec, "spec", errors, Secrets::joined);
    if (before != nullptr) check_immutable(kind.spec(), before->spec, after.spec, "spec", errors);
    TRY([[maybe_unused]] auto valid, verdict(kind, after.name, std::move(errors)));
    return after;
}

void Resources::State::hold_references(const Kind& kind, const Object* before, Object& after, const WriteOptions& options,
                                       store::Transaction& transaction, std::vector<FieldError>& errors) const {
    // An existing reference is guarded: its target is not removed while this resource, whose revision is compared, refers to
    // it. A new reference is guarded on both sides: this write compares that the target exists, and writes a key that the
    // removal of the target compares.
    auto old_spec = before == nullptr ? json::object() : before->spec;
    const auto existing = references_of(registry, kind, old_spec);
    std::size_t added = 0;
    for (const auto& [key, from] : references_of(registry, kind, after.spec)) {
        if (existing.contains(key)) continue;
        const auto target = store.find(key);
        const auto& [field, path] = from;
        if (!target) {
            errors.push_back({path, fmt::format("refers to {} \"{}\", which does not exist", field->reference(),
                                                key.substr(key.find('/') + 1))});
        } else if (++added > max_new_references) {
            errors.push_back(
                {path, fmt::format("is one new reference too many: at most {} can be added in one write", max_new_references)});
        } else {
            transaction.expect_created(key, target->created);
            transaction.put(guard_key(key), after.key(kind));
        }
    }
    check_named_secrets(kind, old_spec, after, options, errors);
}

void Resources::State::check_named_secrets(const Kind& kind, json::object& old_spec, Object& after, const WriteOptions& options,
                                           std::vector<FieldError>& errors) const {
    std::set<std::string> existing; // where a Secret lost a value later, other fields can still be changed
    visit_named_secrets(kind.spec(), old_spec, "spec",
                        [&](const std::string&, const SecretReference& named) { existing.insert(named.name + "." + named.key); });
    visit_named_secrets(kind.spec(), after.spec, "spec", [&](const std::string& path, const SecretReference& named) {
        if (existing.contains(named.name + "." + named.key)) return;
        if (!options.may_name_secrets) {
            errors.push_back({path, "names a Secret, and this token is limited to kinds without Secret"});
            return;
        }
        const auto record = store.find("secrets/" + named.name);
        if (!record) return; // reported already
        const auto secret = from_stored(*record);
        const auto* values = secret.ok() ? secret->spec.if_contains("values") : nullptr;
        if (values == nullptr || !values->is_object() || values->get_object().contains(named.key)) return;
        std::vector<std::string_view> known;
        for (const auto& [key, ignored] : values->get_object()) known.push_back(key);
        errors.push_back({path, fmt::format("Secret \"{}\" has no value \"{}\"; it has {}", named.name, truncate(named.key, 64),
                                            fmt::join(known, ", "))});
    });
}

std::optional<Error> Resources::State::precondition_error(const Kind& kind, const Wish& wish, const Object* before) {
    if (wish.how == How::create && before != nullptr)
        return Error{Code::conflict, fmt::format("{} {} exists already", kind.name(), before->name), kind.remedy_if_exists()};
    if (wish.how != How::create && before == nullptr)
        return Error{Code::not_found, fmt::format("there is no {} named \"{}\"", kind.name(), truncate(wish.object.name, 253))};
    const auto& required = wish.options.if_revision;
    if (before != nullptr && required && *required != before->revision) return wrong_revision(kind, *before, *required);
    return std::nullopt;
}

void Resources::State::add_changes(const Context& ctx, const Kind& kind, const Wish& wish, const store::RecordPtr& record,
                                   std::string text, const Expectations& expect, const Outcome& outcome,
                                   store::Transaction& transaction) const {
    const auto key = wish.object.key(kind);
    transaction.expect(key, record ? record->modified : 0);
    transaction.put(key, std::move(text));
    for (const auto& [other, revision] : expect)
        if (other != key) transaction.expect(other, revision);
    if (wish.options.fence != nullptr) wish.options.fence->guard(transaction);
    const bool only_status = wish.how == How::status || (wish.status && record && outcome.differences.empty());
    if (kind.is_audited() && !only_status)
        put_event(ctx,
                  {fmt::format("{}/{}", kind.name(), outcome.object.name), record ? "updated" : "created", wish.options.reason,
                   evidence_of(outcome.differences)},
                  transaction);
}

Task<Resources::State::Attempt> Resources::State::prepare_write(Context ctx, const Kind& kind, const Wish& wish,
                                                                store::Transaction& transaction) {
    Attempt attempt;
    const auto& options = wish.options;
    const auto record = store.find(wish.object.key(kind));
    std::optional<Object> before;
    if (record) {
        CO_TRY(before, from_stored(*record));
    }
    const Object* current = before ? &*before : nullptr;
    attempt.refused = precondition_error(kind, wish, current);
    attempt.doubtful = attempt.refused.has_value();
    if (attempt.refused) co_return attempt;
    CO_TRY(auto after, wanted(kind, wish, current));
    if (wish.status) after.status = *wish.status;

    after.updated_at = std::max(clock.wall(), after.created_at);
    Draft draft{current, after, {}, options.dry_run, &self, {}, options.self_registration, {}};
    if (wish.how != How::status && kind.preparation()) {
        CO_TRY(std::ignore, co_await kind.preparation()(ctx, draft));
        std::vector<FieldError> errors;
        check_fields(kind.spec(), after.spec, "spec", errors, Secrets::joined);
        CO_TRY(std::ignore, verdict(kind, after.name, std::move(errors)));
    }
    std::vector<FieldError> errors;
    hold_references(kind, current, after, options, transaction, errors);
    for (const auto& used : draft.uses)
        if (const auto target = store.find(used)) {
            transaction.expect_created(used, target->created);
            transaction.put(guard_key(used), after.key(kind));
        }
    if (!errors.empty()) {
        attempt.refused = verdict(kind, after.name, std::move(errors)).error();
        attempt.doubtful = true;
        co_return attempt;
    }

    auto& outcome = attempt.outcome;
    outcome.differences = differences_of(kind, current, after);
    outcome.action = before ? Outcome::Action::updated : Outcome::Action::created;
    const bool changes = !before || !outcome.differences.empty() || before->status != after.status;
    if (!changes) {
        outcome.action = Outcome::Action::unchanged;
        outcome.object = std::move(*before);
        mask_secrets(kind, outcome.object.spec);
        co_return attempt;
    }
    outcome.once = std::move(draft.once);
    seal_secrets(kind, after);
    auto text = to_stored(after);
    if (text.size() > max_object_size)
        co_return Error{Code::too_large,
                        fmt::format("{} {} has {} bytes; the limit is {}", kind.name(), after.name, text.size(), max_object_size)};
    outcome.object = std::move(after);
    mask_secrets(kind, outcome.object.spec);
    if (!options.dry_run) add_changes(ctx, kind, wish, record, std::move(text), draft.expect, outcome, transaction);
    co_return attempt;
}

Task<Resources::State::Attempt> Resources::State::commit(Context ctx, store::Transaction transaction, Attempt attempt) {
    auto revision = co_await store.apply(ctx, std::move(transaction));
    if (!revision.ok() && revision.error().code == Code::conflict)
        attempt.lost_race = true;
    else if (!revision.ok())
        co_return std::move(revision).error();
    else
        attempt.outcome.object.revision = *revision;
    co_return attempt;
}

Task<Resources::State::Attempt> Resources::State::attempt_write(Context ctx, const Kind& kind, const Wish& wish) {
    store::Transaction transaction;
    CO_TRY(auto attempt, co_await prepare_write(ctx, kind, wish, transaction));
    if (attempt.refused || wish.options.dry_run || attempt.outcome.action == Outcome::Action::unchanged) co_return attempt;
    co_return co_await commit(ctx, std::move(transaction), std::move(attempt));
}

Task<Unit> Resources::write_together(Context ctx, std::vector<JointWrite> writes, std::vector<EventDraft> events,
                                     WriteOptions options) {
    auto& state = *state_;
    // In one order, so that two of these never wait for each other.
    std::sort(writes.begin(), writes.end(), [](const JointWrite& left, const JointWrite& right) {
        return left.object.key(*left.kind) < right.object.key(*right.kind);
    });
    std::vector<KeyedMutex::Lock> locks;
    for (const auto& write : writes) {
        CO_TRY(auto lock, co_await KeyedMutex::lock(ctx, state.write_locks, write.object.key(*write.kind)));
        locks.push_back(std::move(lock));
    }
    store::Transaction transaction;
    bool changes = !events.empty();
    for (auto& write : writes) {
        State::Wish wish{write.revision == 0 ? State::How::create : State::How::replace,
                         std::move(write.object),
                         {},
                         options,
                         std::move(write.status)};
        if (write.revision != 0) wish.options.if_revision = write.revision;
        CO_TRY(auto attempt, co_await state.prepare_write(ctx, *write.kind, wish, transaction));
        if (attempt.refused) co_return std::move(*attempt.refused);
        changes = changes || attempt.outcome.action != Outcome::Action::unchanged;
    }
    for (auto& event : events) state.put_event(ctx, std::move(event), transaction);
    if (!changes || options.dry_run) co_return Unit{};
    CO_TRY(std::ignore, co_await state.store.apply(ctx, std::move(transaction)));
    co_return Unit{};
}

Task<Resources::State::Attempt> Resources::State::attempt_remove(Context ctx, const Kind& kind, const std::string& name,
                                                                 const WriteOptions& options) {
    Attempt attempt;
    const auto key = kind.prefix() + name;
    const auto record = store.find(key);
    const auto refuse = [&](Error error) {
        attempt.refused = std::move(error);
        attempt.doubtful = true;
    };
    if (!record) {
        refuse({Code::not_found, fmt::format("there is no {} named \"{}\"", kind.name(), truncate(name, 253))});
        co_return attempt;
    }
    CO_TRY(auto before, from_stored(*record));
    if (options.if_revision && *options.if_revision != before.revision) {
        refuse(wrong_revision(kind, before, *options.if_revision));
        co_return attempt;
    }
    if (const auto users = self.referrers(kind, name, 20); !users.empty()) {
        const auto* all = index.referring_to(kind, name);
        const auto more = all == nullptr || all->entries.size() <= users.size() ? 0 : all->entries.size() - users.size();
        refuse(referred_to(kind, name, users, more));
        co_return attempt;
    }
    Removal removal{before, &self, {}};
    if (kind.removal_check()) {
        CO_TRY(std::ignore, kind.removal_check()(removal));
    }
    attempt.outcome.action = Outcome::Action::removed;
    attempt.outcome.object = before;
    mask_secrets(kind, attempt.outcome.object.spec);
    if (options.dry_run) co_return attempt;

    store::Transaction transaction;
    transaction.expect(key, record->modified);
    transaction.remove(key);
    const auto guard = store.find(guard_key(key));
    transaction.expect(guard_key(key), guard ? guard->modified : 0);
    if (guard) transaction.remove(guard_key(key));
    for (auto& [other, revision] : removal.expect)
        if (other != key) transaction.expect(other, revision);
    if (options.fence != nullptr) options.fence->guard(transaction);
    if (kind.is_audited())
        put_event(ctx, {fmt::format("{}/{}", kind.name(), name), "removed", options.reason, json::object()}, transaction);
    co_return co_await commit(ctx, std::move(transaction), std::move(attempt));
}

Task<Outcome> Resources::State::write(Context ctx, const Kind& kind, Wish wish) {
    CO_TRY(const auto lock, co_await KeyedMutex::lock(ctx, write_locks, wish.object.key(kind)));
    bool certain = false;
    // Losing again and again under a fence means that the fence has fallen: another server leads.
    const int attempts = wish.options.fence == nullptr ? max_attempts : 4;
    for (int tried = 0; tried < attempts; ++tried) {
        auto attempt = wish.how == How::remove ? co_await attempt_remove(ctx, kind, wish.object.name, wish.options)
                                               : co_await attempt_write(ctx, kind, wish);
        if (!attempt.ok()) co_return std::move(attempt).error();
        if (!attempt->lost_race && !attempt->refused) co_return std::move(attempt->outcome);
        if (attempt->refused && (!attempt->doubtful || certain)) co_return std::move(*attempt->refused);
        // On etcd another server may have written what we have not seen yet.
        const auto seen = store.revision();
        CO_TRY(const auto caught_up, co_await store.catch_up(ctx));
        if (attempt->refused && caught_up == seen) co_return std::move(*attempt->refused);
        certain = attempt->refused.has_value();
    }
    co_return Error{Code::conflict, fmt::format("{} {} is being changed by too many at once", kind.name(), wish.object.name),
                    "try again"};
}

Task<Outcome> Resources::create(Context ctx, const Kind& kind, Object object, WriteOptions options) {
    return state_->write(std::move(ctx), kind, {State::How::create, std::move(object), {}, std::move(options)});
}

Task<Outcome> Resources::replace(Context ctx, const Kind& kind, Object object, WriteOptions options) {
    return state_->write(std::move(ctx), kind, {State::How::replace, std::move(object), {}, std::move(options)});
}

Task<Outcome> Resources::patch(Context ctx, const Kind& kind, std::string name, json::value patch, WriteOptions options) {
    Object named;
    named.name = std::move(name);
    return state_->write(std::move(ctx), kind, {State::How::patch, std::move(named), std::move(patch), std::move(options)});
}

Task<Outcome> Resources::remove(Context ctx, const Kind& kind, std::string name, WriteOptions options) {
    Object named;
    named.name = std::move(name);
    return state_->write(std::move(ctx), kind, {State::How::remove, std::move(named), {}, std::move(options)});
}

Task<Outcome> Resources::set_status(Context ctx, const Kind& kind, std::string name, json::object status, WriteOptions options) {
    Object named;
    named.name = std::move(name);
    named.status = std::move(status);
    return state_->write(std::move(ctx), kind, {State::How::status, std::move(named), {}, std::move(options)});
}

Task<Unit> Resources::set_statuses(Context ctx, const Kind& kind, std::vector<std::string> names, MakeStatus make,
                                   const store::Fence* fence) {
    auto& state = *state_;
    store::Transaction transaction;
    std::vector<std::pair<std::string, json::object>> made;
    std::size_t size = 0;
    for (const auto& name : names) {
        const auto record = find(kind, name);
        if (!record) continue;
        CO_TRY(auto before, from_stored(*record));
        auto status = make(before);
        if (!status || before.status == *status) continue;
        State::Wish wish{State::How::status, {}, {}, {}};
        wish.object.name = name;
        wish.object.status = *status;
        CO_TRY(auto after, state.wanted(kind, wish, &before));
        after.updated_at = std::max(state.clock.wall(), after.created_at);
        auto text = to_stored(after);
        size += text.size();
        transaction.expect(record->key, record->modified);
        transaction.put(record->key, std::move(text));
        made.emplace_back(name, std::move(*status));
    }
    if (made.empty()) co_return Unit{};
    if (made.size() > 1 && size < store::max_transaction_size / 2 && made.size() <= store::max_changes) {
        if (fence != nullptr) fence->guard(transaction);
        const auto written = co_await state.store.apply(ctx, std::move(transaction));
        if (written.ok()) co_return Unit{};
        if (written.error().code != Code::conflict && written.error().code != Code::too_large) co_return written.error();
    }
    for (auto& [name, status] : made) {
        const auto written = co_await set_status(ctx, kind, name, std::move(status), {.fence = fence});
        if (!written.ok() && written.error().code != Code::not_found) co_return written.error();
    }
    co_return Unit{};
}

} // namespace orrery::resource
