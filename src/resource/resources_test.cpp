#include "core/test_fixture.h"
#include "core/text.h"
#include "resource/resource_fixture.h"
#include "resource/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::resource {

using namespace std::chrono_literals;

namespace {

using resource::testing::a_node;
using resource::testing::a_secret;
using resource::testing::an_object;
using resource::testing::ResourceFixture;
using ::testing::HasSubstr;
using ::testing::Not;

const Context somebody = Context::make("alice", "ctx1");

/// The spec of the newest event.
json::object newest_event(const ResourceFixture& fixture) {
    ListQuery query;
    query.newest_first = true;
    query.limit = 1;
    auto page = fixture.resources->list(fixture.events(), query);
    if (!page.ok() || page->records.empty()) return {};
    return from_stored(*page->records[0])->spec;
}

std::string public_text(const ResourceFixture& fixture, const Kind& kind, std::string_view name) {
    std::string out;
    if (const auto record = fixture.resources->find(kind, name)) fixture.resources->append_public_json(kind, *record, out);
    return out;
}

} // namespace

CO_TEST(Resources, CreateReadReplaceAndRemove) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    WriteOptions options;
    options.reason = "a test";
    auto created = co_await resources.create(somebody, fixture.nodes(), a_node("n1", {{"rack", "r1"}}), options);
    CO_ASSERT_OK(created);
    EXPECT_EQ(created->action, Outcome::Action::created);
    EXPECT_EQ(created->object.revision, 1);
    EXPECT_EQ(created->object.spec.at("ssh").at("port"), 22);
    auto event = newest_event(fixture);
    EXPECT_EQ(event.at("subject"), "Node/n1");
    EXPECT_EQ(event.at("action"), "created");
    EXPECT_EQ(event.at("actor"), "alice");
    EXPECT_EQ(event.at("context"), "ctx1");
    EXPECT_EQ(event.at("reason"), "a test");

    auto again = co_await resources.create(somebody, fixture.nodes(), a_node("n1"), {});
    EXPECT_EQ(again.error().code, Code::conflict);
    EXPECT_TRUE(again.error().fields.empty()); // not a failed precondition

    fixture.clock.advance(5s);
    auto same = co_await resources.replace(somebody, fixture.nodes(), a_node("n1", {{"rack", "r1"}}), {});
    CO_ASSERT_OK(same);
    EXPECT_EQ(same->action, Outcome::Action::unchanged);
    EXPECT_EQ(fixture.store.revision(), 1);

    auto moved = co_await resources.replace(somebody, fixture.nodes(), a_node("n1", {{"rack", "r2"}}), {});
    CO_ASSERT_OK(moved);
    EXPECT_EQ(moved->action, Outcome::Action::updated);
    EXPECT_EQ(moved->differences.size(), 1U);
    EXPECT_EQ(moved->object.created_at, created->object.created_at);
    EXPECT_EQ(moved->object.updated_at, created->object.updated_at + 5s);
    EXPECT_EQ(to_json_text(newest_event(fixture).at("evidence")),
              R"({"changes":[{"path":"labels.rack","before":"r1","after":"r2"}]})");

    auto read = resources.get(fixture.nodes(), "n1");
    CO_ASSERT_OK(read);
    EXPECT_EQ(read->labels.at("rack"), "r2");
    EXPECT_EQ(to_json_text(read->to_json()), public_text(fixture, fixture.nodes(), "n1")); // both ways to the same text

    auto removed = co_await resources.remove(somebody, fixture.nodes(), "n1", {});
    CO_ASSERT_OK(removed);
    EXPECT_EQ(removed->action, Outcome::Action::removed);
    EXPECT_EQ(newest_event(fixture).at("action"), "removed");
    EXPECT_EQ(resources.get(fixture.nodes(), "n1").error().code, Code::not_found);
    auto gone = co_await resources.remove(somebody, fixture.nodes(), "n1", {});
    EXPECT_EQ(gone.error().code, Code::not_found);
    auto absent = co_await resources.replace(somebody, fixture.nodes(), a_node("n1"), {});
    EXPECT_EQ(absent.error().code, Code::not_found);
}

CO_TEST(Resources, AConditionalWriteNeedsTheGivenRevision) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    auto created = co_await resources.create(somebody, fixture.nodes(), a_node("n1"), {});
    CO_ASSERT_OK(created);
    WriteOptions stale;
    stale.if_revision = created->object.revision + 1;
    auto refused = co_await resources.replace(somebody, fixture.nodes(), a_node("n1", {{"a", "b"}}), stale);
    EXPECT_EQ(refused.error().code, Code::conflict);
    CO_ASSERT(refused.error().fields.size() == 1);
    EXPECT_EQ(refused.error().fields[0].path, "If-Match");
    auto not_removed = co_await resources.remove(somebody, fixture.nodes(), "n1", stale);
    EXPECT_EQ(not_removed.error().fields[0].path, "If-Match");
    stale.if_revision = created->object.revision;
    auto done = co_await resources.replace(somebody, fixture.nodes(), a_node("n1", {{"a", "b"}}), stale);
    EXPECT_TRUE(done.ok());
}

CO_TEST(Resources, APatchChangesOnlyWhatItNames) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    {
        auto step = co_await resources.create(somebody, fixture.nodes(), a_node("n1", {{"a", "1"}, {"b", "2"}}), {});
        CO_ASSERT_OK(step);
    }
    auto patched = co_await resources.patch(somebody, fixture.nodes(), "n1",
                                            *parse_json(R"({"labels":{"a":null},"spec":{"ssh":{"port":2222}}})"), {});
    CO_ASSERT_OK(patched);
    EXPECT_EQ(patched->object.labels, (std::map<std::string, std::string>{{"b", "2"}}));
    EXPECT_EQ(patched->object.spec.at("ssh").at("port"), 2222);
    EXPECT_EQ(patched->object.spec.at("ssh").at("user"), "root");
    auto wrong =
        co_await resources.patch(somebody, fixture.nodes(), "n1", *parse_json(R"({"spec":{"ssh":{"port":0},"adress":"x"}})"), {});
    EXPECT_EQ(wrong.error().code, Code::invalid);
    EXPECT_EQ(wrong.error().fields.size(), 2U);
    auto no_object = co_await resources.patch(somebody, fixture.nodes(), "n1", json::value(5), {});
    EXPECT_EQ(no_object.error().code, Code::invalid);
    // A default that is removed comes back.
    auto reset = co_await resources.patch(somebody, fixture.nodes(), "n1", *parse_json(R"({"spec":{"ssh":null}})"), {});
    CO_ASSERT_OK(reset);
    EXPECT_EQ(reset->object.spec.at("ssh").at("port"), 22);
}

CO_TEST(Resources, ADryRunChangesNothing) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    WriteOptions dry;
    dry.dry_run = true;
    auto created = co_await resources.create(somebody, fixture.nodes(), a_node("n1"), dry);
    CO_ASSERT_OK(created);
    EXPECT_EQ(created->action, Outcome::Action::created);
    EXPECT_EQ(created->object.revision, 0);
    {
        auto step = co_await resources.create(somebody, fixture.nodes(), a_node("n1"), {});
        CO_ASSERT_OK(step);
    }
    const auto revision = fixture.store.revision();
    auto patched = co_await resources.patch(somebody, fixture.nodes(), "n1", *parse_json(R"({"labels":{"a":"b"}})"), dry);
    CO_ASSERT_OK(patched);
    EXPECT_EQ(patched->differences.size(), 1U);
    {
        auto step = co_await resources.remove(somebody, fixture.nodes(), "n1", dry);
        CO_ASSERT_OK(step);
    }
    EXPECT_EQ(fixture.store.revision(), revision);
    auto dangling = co_await resources.create(somebody, fixture.nodes(), a_node("n2", {}, "nothing"), dry);
    EXPECT_EQ(dangling.error().fields.at(0).path, "spec.ssh.key");
}

CO_TEST(Resources, StatusIsWrittenSeparatelyFromSpec) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    {
        auto step = co_await resources.create(somebody, fixture.nodes(), a_node("n1"), {});
        CO_ASSERT_OK(step);
    }
    const auto events = fixture.store.count("events/");
    {
        auto step = co_await resources.set_status(somebody, fixture.nodes(), "n1", {{"state", "up"}}, {});
        CO_ASSERT_OK(step);
    }
    auto same = co_await resources.set_status(somebody, fixture.nodes(), "n1", {{"state", "up"}}, {});
    CO_ASSERT_OK(same);
    EXPECT_EQ(same->action, Outcome::Action::unchanged);
    EXPECT_EQ(fixture.store.count("events/"), events);
    auto replaced = co_await resources.replace(somebody, fixture.nodes(), a_node("n1", {{"a", "b"}}), {});
    CO_ASSERT_OK(replaced);
    EXPECT_EQ(replaced->object.status.at("state"), "up");
    auto absent = co_await resources.set_status(somebody, fixture.nodes(), "n2", {}, {});
    EXPECT_EQ(absent.error().code, Code::not_found);
}

CO_TEST(Resources, AResourceOverTheSizeLimitIsRefused) {
    ResourceFixture with_big(loop.get_executor(), std::make_shared<store::MemoryStore::Shared>(),
                             {Kind("Big", "bigs", "Large.").spec(text("data", "Much."))});
    auto& large = *with_big.resources;
    auto fits =
        co_await large.create(somebody, with_big.kind("Big"), an_object("Big", "a", {{"data", std::string(1'030'000, 'x')}}), {});
    EXPECT_TRUE(fits.ok()) << fits.error().text();
    auto too_large =
        co_await large.create(somebody, with_big.kind("Big"), an_object("Big", "b", {{"data", std::string(1'040'000, 'x')}}), {});
    EXPECT_EQ(too_large.error().code, Code::too_large);
    auto evidence = newest_event(with_big);
    EXPECT_LT(to_json_text(evidence).size(), 4000U);
}

CO_TEST(Secrets, AreSealedMaskedAndKept) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    constexpr auto canary = "canary-7f3a9";
    auto created =
        co_await resources.create(somebody, fixture.secrets(), a_secret("s", {{"password", canary}, {"other", "x"}}), {});
    CO_ASSERT_OK(created);
    EXPECT_EQ(created->object.spec.at("values").at("password"), "(sealed)");
    EXPECT_EQ(*resources.reveal(fixture.secrets(), "s", "spec.values.password"), canary);
    EXPECT_EQ(resources.reveal(fixture.secrets(), "s", "spec.values.none").error().code, Code::not_found);

    // What was read can be sent back: the values stay; one that is not named is removed.
    auto description = a_secret("s", {{"password", "(sealed)"}});
    description.spec["description"] = "hello";
    auto kept = co_await resources.replace(somebody, fixture.secrets(), description, {});
    CO_ASSERT_OK(kept);
    EXPECT_EQ(*resources.reveal(fixture.secrets(), "s", "spec.values.password"), canary);
    EXPECT_EQ(kept->object.spec.at("values").get_object().size(), 1U);
    auto again = co_await resources.replace(somebody, fixture.secrets(), description, {});
    CO_ASSERT_OK(again);
    EXPECT_EQ(again->action, Outcome::Action::unchanged);
    // The same value in the clear is no change either; another is.
    auto same = co_await resources.patch(somebody, fixture.secrets(), "s",
                                         json::object{{"spec", {{"values", {{"password", canary}}}}}}, {});
    CO_ASSERT_OK(same);
    EXPECT_EQ(same->action, Outcome::Action::unchanged);
    auto other = co_await resources.patch(somebody, fixture.secrets(), "s",
                                          json::object{{"spec", {{"values", {{"password", "canary-7f3a9-2"}}}}}}, {});
    CO_ASSERT_OK(other);
    CO_ASSERT(other->differences.size() == 1);
    EXPECT_EQ(other->differences[0].before, "(secret)");
    EXPECT_EQ(other->differences[0].after, "(secret)");
    EXPECT_EQ(*resources.reveal(fixture.secrets(), "s", "spec.values.password"), "canary-7f3a9-2");

    auto nothing_to_keep = co_await resources.create(somebody, fixture.secrets(), a_secret("t", {{"password", "(sealed)"}}), {});
    EXPECT_EQ(nothing_to_keep.error().code, Code::invalid);
    auto forged = co_await resources.create(somebody, fixture.secrets(),
                                            a_secret("t", {{"password", json::object{{"$sealed", "v1:AAAA"}}}}), {});
    EXPECT_EQ(forged.error().code, Code::invalid);
    auto wrong_type = co_await resources.patch(somebody, fixture.secrets(), "s",
                                               json::object{{"spec", {{"values", {{"password", {canary}}}}}}}, {});
    EXPECT_THAT(wrong_type.error().text(), Not(HasSubstr("canary")));

    // Nowhere in the clear.
    for (const auto& [key, record] : fixture.shared->records) EXPECT_THAT(record->value, Not(HasSubstr("canary"))) << key;
    EXPECT_THAT(public_text(fixture, fixture.secrets(), "s"), Not(HasSubstr("canary")));
    EXPECT_THAT(public_text(fixture, fixture.secrets(), "s"), HasSubstr(R"~("password":"(sealed)")~"));
    EXPECT_THAT(public_text(fixture, fixture.secrets(), "s"), Not(HasSubstr("$sealed")));
    EXPECT_THAT(to_json_text(other->object.to_json()), Not(HasSubstr("canary")));
}

CO_TEST(Secrets, AReplaceWithoutAFieldKeepsItsValueAndAPatchCanRemoveIt) {
    ResourceFixture fixture(loop.get_executor(), std::make_shared<store::MemoryStore::Shared>(),
                            {Kind("Login", "logins", "L.")
                                 .spec(text("user", "U.").required())
                                 .spec(text("password", "P.").secret())
                                 .spec(text("pin", "P.").secret().required())});
    auto& resources = *fixture.resources;
    const auto& kind = fixture.kind("Login");
    auto incomplete = co_await resources.create(somebody, kind, an_object("Login", "a", {{"user", "u"}}), {});
    EXPECT_EQ(incomplete.error().fields.at(0).path, "spec.pin");
    {
        auto step = co_await resources.create(somebody, kind,
                                              an_object("Login", "a", {{"user", "u"}, {"password", "one"}, {"pin", "1234"}}), {});
        CO_ASSERT_OK(step);
    }
    // A body without the required secret reads, because the stored one counts.
    auto body = read_object(kind, "a", *parse_json(R"({"spec":{"user":"v"}})"));
    CO_ASSERT_OK(body);
    auto replaced = co_await resources.replace(somebody, kind, *body, {});
    CO_ASSERT_OK(replaced);
    EXPECT_EQ(*resources.reveal(kind, "a", "spec.password"), "one");
    auto patched = co_await resources.patch(somebody, kind, "a", *parse_json(R"({"spec":{"password":null}})"), {});
    CO_ASSERT_OK(patched);
    EXPECT_EQ(resources.reveal(kind, "a", "spec.password").error().code, Code::not_found);
    auto needed = co_await resources.patch(somebody, kind, "a", *parse_json(R"({"spec":{"pin":null}})"), {});
    EXPECT_EQ(needed.error().code, Code::invalid);
}

namespace {

Task<Unit> stamp(Context, Draft& draft) {
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    if (const auto* word = draft.after.spec.if_contains("word"); word != nullptr && *word == "forbidden")
        co_return Error{Code::denied, "not that word"};
    draft.after.status["checked"] = true;
    const auto* password = draft.after.spec.if_contains("password");
    draft.after.status["password_is_new"] = password != nullptr && password->is_string();
    if (password != nullptr && password->is_string())
        draft.after.spec["password"] = "hash of " + std::string(std::string_view(password->get_string()));
    draft.once["shown"] = "once";
    if (draft.resources->exists(*draft.resources->registry().find("Node"), "pivot"))
        draft.expect.emplace_back("nodes/pivot",
                                  draft.resources->find(*draft.resources->registry().find("Node"), "pivot")->modified);
    co_return Unit{};
}

Kind stamped_kind() {
    Kind kind("Stamped", "stampeds", "S.");
    kind.spec(text("word", "W.").required())
        .spec(text("password", "P.").secret())
        .prepare(&stamp)
        .before_remove([](Removal& removal) -> Result<Unit> {
            if (removal.object.spec.at("word") == "stay") return Error{Code::conflict, "it stays"};
            return Unit{};
        });
    return kind;
}

} // namespace

CO_TEST(Preparation, CanChangeRefuseAndReturnOneTimeValues) {
    ResourceFixture fixture(loop.get_executor(), std::make_shared<store::MemoryStore::Shared>(), {stamped_kind()});
    auto& resources = *fixture.resources;
    const auto& kind = fixture.kind("Stamped");
    auto refused = co_await resources.create(somebody, kind, an_object("Stamped", "a", {{"word", "forbidden"}}), {});
    EXPECT_EQ(refused.error().code, Code::denied);
    auto created = co_await resources.create(somebody, kind, an_object("Stamped", "a", {{"word", "x"}, {"password", "p"}}), {});
    CO_ASSERT_OK(created);
    EXPECT_EQ(created->once.at("shown"), "once");
    EXPECT_EQ(created->object.status.at("password_is_new"), true);
    EXPECT_EQ(*resources.reveal(kind, "a", "spec.password"), "hash of p");
    auto patched = co_await resources.patch(somebody, kind, "a", *parse_json(R"({"spec":{"word":"stay"}})"), {});
    CO_ASSERT_OK(patched);
    EXPECT_EQ(patched->object.status.at("password_is_new"), false);
    EXPECT_EQ(*resources.reveal(kind, "a", "spec.password"), "hash of p");
    auto stays = co_await resources.remove(somebody, kind, "a", {});
    EXPECT_EQ(stays.error().message, "it stays");
    EXPECT_THAT(public_text(fixture, kind, "a"), Not(HasSubstr("hash of")));
}

CO_TEST(Events, AreFilteredBySubjectActorAndTimeNewestFirst) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    fixture.clock.advance(1h); // past the names that other tests have given
    std::vector<WallTime> times;
    for (int i = 0; i < 10; ++i) {
        fixture.clock.advance(1s);
        times.push_back(fixture.clock.wall());
        {
            auto step = co_await resources.record(Context::make(i % 2 == 0 ? "even" : "odd"),
                                                  {fmt::format("Node/n{}", i % 3), "poked", fmt::format("{}", i), {}});
            CO_ASSERT_OK(step);
        }
    }
    const auto because = [&](const ListQuery& query) {
        std::string out;
        auto page = resources.list(fixture.events(), query);
        if (!page.ok()) return page.error().text();
        for (const auto& record : page->records) out += from_stored(*record)->spec.at("reason").get_string();
        return out;
    };
    ListQuery query;
    EXPECT_EQ(because(query), "0123456789");
    query.newest_first = true;
    EXPECT_EQ(because(query), "9876543210");
    query.fields = {{"actor", "odd"}};
    EXPECT_EQ(because(query), "97531");
    query.fields.emplace_back("subject", "Node/n0");
    EXPECT_EQ(because(query), "93");
    query.fields.clear();
    query.from = time_ordered_bound(times[3]);
    query.until = time_ordered_bound(times[7]);
    EXPECT_EQ(because(query), "6543");
    query.fields = {{"context", "nobody's"}};
    EXPECT_EQ(because(query), "");
    query.fields = {{"action", "poked"}};
    EXPECT_THAT(because(query), HasSubstr("cannot be listed by"));
}

CO_TEST(Events, OldOnesAreRemovedAndTheNewestKept) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    fixture.clock.advance(48h); // past the names that other tests have given
    for (int i = 0; i < 300; ++i) {
        fixture.clock.advance(1s);
        {
            auto step = co_await resources.record(somebody, {"Node/a", "poked", fmt::format("{}", i), {}});
            CO_ASSERT_OK(step);
        }
    }
    auto removed = co_await resources.remove_old_events(somebody, fixture.clock.wall() - 250s, 1000, nullptr);
    CO_ASSERT_OK(removed);
    EXPECT_EQ(*removed, 49);
    removed = co_await resources.remove_old_events(somebody, fixture.clock.wall() - 250s, 10, nullptr);
    CO_ASSERT_OK(removed);
    EXPECT_EQ(*removed, 241);
    EXPECT_EQ(fixture.store.count("events/"), 10U);
    EXPECT_EQ(newest_event(fixture).at("reason"), "299");
    const store::Fence fence("sys/leader/x", 7);
    auto fenced = co_await resources.remove_old_events(somebody, fixture.clock.wall(), 1, &fence);
    EXPECT_EQ(fenced.error().code, Code::conflict);
}

CO_TEST(Writes, UnderAFenceSucceedOnlyWhileItIsValid) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    store::Transaction won;
    won.put("sys/leader/controllers", "me");
    auto term = co_await fixture.store.apply(somebody, won);
    CO_ASSERT_OK(term);
    const store::Fence fence("sys/leader/controllers", *term);
    WriteOptions options;
    options.fence = &fence;
    {
        auto step = co_await resources.create(somebody, fixture.nodes(), a_node("n1"), options);
        CO_ASSERT_OK(step);
    }
    store::Transaction lost;
    lost.remove("sys/leader/controllers");
    {
        auto step = co_await fixture.store.apply(somebody, lost);
        CO_ASSERT_OK(step);
    }
    auto refused = co_await resources.set_status(somebody, fixture.nodes(), "n1", {{"a", 1}}, options);
    EXPECT_EQ(refused.error().code, Code::conflict);
}

CO_TEST(Writes, AnErrorOfTheStoreIsReported) {
    ResourceFixture fixture(loop.get_executor());
    fixture.store.fail_with = Error{Code::no_space, "the disk is full"};
    auto created = co_await fixture.resources->create(somebody, fixture.nodes(), a_node("n1"), {});
    EXPECT_EQ(created.error().code, Code::no_space);
}

CO_TEST(Writes, SeveralStatusesAreOneTransaction) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    std::vector<std::string> names;
    for (int i = 0; i < 5; ++i) {
        names.push_back("n" + std::to_string(i));
        auto created = co_await resources.create(somebody, fixture.nodes(), a_node(names.back(), {{"status", "x"}}), {});
        CO_ASSERT_OK(created);
    }
    const auto before = fixture.store.find("nodes/n1");
    names.push_back("nobody");
    const auto revision = fixture.store.revision();
    const auto up = [](const Object& now) {
        return now.name == "n4" ? std::nullopt : std::optional(json::object{{"state", now.name + " is up"}});
    };
    auto written = co_await resources.set_statuses(somebody, fixture.nodes(), names, up, nullptr);
    CO_ASSERT_OK(written);
    EXPECT_EQ(fixture.store.revision(), revision + 1);
    EXPECT_EQ(resources.get(fixture.nodes(), "n3")->status.at("state"), "n3 is up");
    EXPECT_FALSE(resources.get(fixture.nodes(), "n4")->status.contains("state"));
    EXPECT_TRUE(same_but_for_status(*before, *fixture.store.find("nodes/n1")));
    written = co_await resources.set_statuses(somebody, fixture.nodes(), names, up, nullptr);
    CO_ASSERT_OK(written);
    EXPECT_EQ(fixture.store.revision(), revision + 1) << "the same again is nothing";
    auto labelled = co_await resources.replace(somebody, fixture.nodes(), a_node("n1", {{"a", "b"}}), {});
    CO_ASSERT_OK(labelled);
    EXPECT_FALSE(same_but_for_status(*before, *fixture.store.find("nodes/n1")));
}

} // namespace orrery::resource
