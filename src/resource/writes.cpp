#include "core/text.h"
#include "resource/resources_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::resource {

namespace {

/// How often a write that others came between is tried again. Each time somebody has succeeded, so this is reached only under a
/// crowd on one resource.
constexpr int most_attempts = 16;
constexpr std::size_t most_new_references = 50; // two operations each, of which a transaction has 120

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

Error wrong_revision(const Kind& kind, const Object& before, store::Revision expected) {
    Error error{Code::conflict,
                fmt::format("{} {} is at revision {}, not {}: somebody changed it meanwhile", kind.name(), before.name,
                            before.revision, expected),
                "read it again and repeat the change on what it is now"};
    error.fields.push_back({"If-Match", fmt::format("is not its present revision, which is {}", before.revision)});
    return error;
}

std::string guard_key(const std::string& target_key) { return fmt::format("{}/{}", reference_guards, target_key); }

/// The references in an object: the target's key in the store and where the reference stands.
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

std::string Resources::State::place_of(const Kind& kind, std::string_view name, std::string_view path) {
    return fmt::format("{}/{}/{}", kind.name(), name, path);
}

void Resources::State::seal_secrets(const Kind& kind, Object& object) const {
    if (!kind.has_secrets()) return;
    visit_secrets(kind.spec(), object.spec, "spec", [&](const Field&, const std::string& path, json::value& value) {
        if (value.is_string())
            value = json::object{{"$sealed", sealer.seal(std::string_view(value.get_string()), place_of(kind, object.name, path))}};
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
                                                  : sealer.unseal(std::string_view(*sealed), place_of(kind, after.name, path));
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

void Resources::State::hold_references(const Kind& kind, const Object* before, Object& after, store::Transaction& transaction,
                                       std::vector<FieldError>& errors) const {
    // A reference that stands already is held: its target is not removed while this resource, whose revision is compared, refers to
    // it. A new one is held from both sides: this write compares that the target is there, and touches a key that the target's
    // removal compares.
    auto old_spec = before == nullptr ? json::object() : before->spec;
    const auto standing = references_of(registry, kind, old_spec);
    std::size_t added = 0;
    for (const auto& [key, from] : references_of(registry, kind, after.spec)) {
        if (standing.contains(key)) continue;
        const auto target = store.find(key);
        const auto& [field, path] = from;
        if (!target) {
            errors.push_back({path, fmt::format("refers to {} \"{}\", which does not exist", field->reference(),
                                                key.substr(key.find('/') + 1))});
        } else if (++added > most_new_references) {
            errors.push_back(
                {path, fmt::format("is one new reference too many: at most {} can be added in one write", most_new_references)});
        } else {
            transaction.expect_created(key, target->created);
            transaction.put(guard_key(key), after.key(kind));
        }
    }
}

Task<Resources::State::Attempt> Resources::State::attempt_write(Context ctx, const Kind& kind, const Wish& wish) {
    Attempt attempt;
    const auto& options = wish.options;
    const auto key = wish.object.key(kind);
    const auto record = store.find(key);
    const auto refuse = [&](Error error, bool doubtful) {
        attempt.refused = std::move(error);
        attempt.doubtful = doubtful;
    };
    std::optional<Object> before;
    if (record) {
        CO_TRY(before, from_stored(*record));
    }
    if (wish.how == How::create && before) {
        refuse(
            {Code::conflict, fmt::format("{} {} exists already", kind.name(), before->name), "choose another name, or replace it"},
            true);
        co_return attempt;
    }
    if (wish.how != How::create && !before) {
        refuse({Code::not_found, fmt::format("there is no {} named \"{}\"", kind.name(), wish.object.name.substr(0, 253))}, true);
        co_return attempt;
    }
    if (before && options.if_revision && *options.if_revision != before->revision) {
        refuse(wrong_revision(kind, *before, *options.if_revision), true);
        co_return attempt;
    }
    const Object* standing = before ? &*before : nullptr;
    CO_TRY(auto after, wanted(kind, wish, standing));

    Draft draft{standing, after, {}, options.dry_run, &self, {}};
    if (wish.how != How::status && kind.preparation()) {
        CO_TRY(std::ignore, co_await kind.preparation()(ctx, draft));
        std::vector<FieldError> errors;
        check_fields(kind.spec(), after.spec, "spec", errors, Secrets::joined);
        CO_TRY(std::ignore, verdict(kind, after.name, std::move(errors)));
    }
    store::Transaction transaction;
    std::vector<FieldError> errors;
    hold_references(kind, standing, after, transaction, errors);
    if (!errors.empty()) {
        refuse(verdict(kind, after.name, std::move(errors)).error(), true);
        co_return attempt;
    }

    auto& outcome = attempt.outcome;
    outcome.differences = differences_of(kind, standing, after);
    outcome.what = !before ? Outcome::What::created : Outcome::What::updated;
    if (before && outcome.differences.empty() && before->status == after.status) {
        outcome.what = Outcome::What::unchanged;
        outcome.object = std::move(*before);
        mask_secrets(kind, outcome.object.spec);
        co_return attempt;
    }
    outcome.once = std::move(draft.once);
    after.updated_at = std::max(clock.wall(), after.created_at);
    seal_secrets(kind, after);
    auto text = to_stored(after);
    if (text.size() > max_object_size)
        co_return Error{Code::too_large, fmt::format("{} {} has {} bytes, at most {} are kept", kind.name(), after.name,
                                                     text.size(), max_object_size)};
    outcome.object = std::move(after);
    mask_secrets(kind, outcome.object.spec);
    if (options.dry_run) co_return attempt;

    transaction.expect(key, record ? record->modified : 0);
    transaction.put(key, std::move(text));
    for (auto& [other, revision] : draft.expect)
        if (other != key) transaction.expect(other, revision);
    if (options.fence != nullptr) options.fence->guard(transaction);
    if (kind.is_audited() && wish.how != How::status)
        put_event(ctx,
                  {fmt::format("{}/{}", kind.name(), outcome.object.name), before ? "updated" : "created", options.because,
                   evidence_of(outcome.differences)},
                  transaction);
    auto revision = co_await store.apply(ctx, std::move(transaction));
    if (!revision.ok() && revision.error().code == Code::conflict)
        attempt.lost_race = true;
    else if (!revision.ok())
        co_return std::move(revision).error();
    else
        outcome.object.revision = *revision;
    co_return attempt;
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
        refuse({Code::not_found, fmt::format("there is no {} named \"{}\"", kind.name(), name.substr(0, 253))});
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
        Error error{Code::conflict,
                    fmt::format("{} {} is referred to by {}{}", kind.name(), name, fmt::join(users, ", "),
                                more > 0 ? fmt::format(" and {} more", more) : ""),
                    "change or remove those first"};
        for (const auto& user : users)
            error.fields.push_back({user.substr(0, user.find(' ')), fmt::format("refers to it{}", user.substr(user.find(' ')))});
        refuse(std::move(error));
        co_return attempt;
    }
    Removal removal{before, &self, {}};
    if (kind.removal_check()) {
        CO_TRY(std::ignore, kind.removal_check()(removal));
    }
    attempt.outcome.what = Outcome::What::removed;
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
        put_event(ctx, {fmt::format("{}/{}", kind.name(), name), "removed", options.because, json::object()}, transaction);
    auto revision = co_await store.apply(ctx, std::move(transaction));
    if (!revision.ok() && revision.error().code == Code::conflict)
        attempt.lost_race = true;
    else if (!revision.ok())
        co_return std::move(revision).error();
    else
        attempt.outcome.object.revision = *revision;
    co_return attempt;
}

Task<Outcome> Resources::State::write(Context ctx, const Kind& kind, Wish wish) {
    CO_TRY(const auto turn, co_await Turns::take(ctx, turns, wish.object.key(kind)));
    bool certain = false;
    // Losing again and again under a fence means that the fence has fallen: another server leads.
    const int attempts = wish.options.fence == nullptr ? most_attempts : 4;
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
