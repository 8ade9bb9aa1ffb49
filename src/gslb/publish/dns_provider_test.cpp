#include "gslb/publish/dns_provider.h"
#include "gslb/publish/publication_plan.h"

#include <gtest/gtest.h>

namespace orrery::gslb {

TEST(RecordSet, HasACanonicalForm) {
    const auto a = record_set(RecordType::a, 30, {"192.0.2.2", "192.0.2.1", "192.0.2.2"});
    ASSERT_TRUE(a.ok());
    EXPECT_EQ(a->text(), "A 192.0.2.1 192.0.2.2 (ttl 30)");
    const auto aaaa = record_set(RecordType::aaaa, 5, {"2001:DB8:0:0::1"});
    ASSERT_TRUE(aaaa.ok());
    EXPECT_EQ(aaaa->text(), "AAAA 2001:db8::1 (ttl 5)");
    const auto cname = record_set(RecordType::cname, 5, {"Other.Example"});
    ASSERT_TRUE(cname.ok());
    EXPECT_EQ(cname->text(), "CNAME other.example. (ttl 5)");
}

TEST(RecordSet, RefusesInvalidRecords) {
    using Values = std::vector<std::string>;
    for (const auto& [type, values] : std::vector<std::pair<RecordType, Values>>{{RecordType::a, {}},
                                                                                 {RecordType::a, {"2001:db8::1"}},
                                                                                 {RecordType::a, {"192.0.2.1 "}},
                                                                                 {RecordType::aaaa, {"192.0.2.1"}},
                                                                                 {RecordType::aaaa, {"fe80::1%eth0"}},
                                                                                 {RecordType::cname, {"a.example", "b.example"}},
                                                                                 {RecordType::cname, {"a b.example"}},
                                                                                 {RecordType::cname, {""}}})
        EXPECT_FALSE(record_set(type, 30, values).ok()) << name_of(type);
    EXPECT_FALSE(record_set(RecordType::a, 0x80000000U, {"192.0.2.1"}).ok());
}

TEST(Mark, DistinguishesOurEarlierAnswerFromOneThatWasChanged) {
    auto set = *record_set(RecordType::a, 30, {"192.0.2.1"});
    EXPECT_EQ(ownership(set, "site-1"), Ownership::unmarked);
    set.mark = mark_of("site-1", set);
    EXPECT_LE(set.mark.size(), 100U);
    EXPECT_EQ(ownership(set, "site-1"), Ownership::ours);
    EXPECT_EQ(ownership(set, "site"), Ownership::anothers);
    EXPECT_EQ(ownership(set, "site-2"), Ownership::anothers);
    auto ttl = set, value = set;
    ttl.ttl = 31;
    value.values = {"192.0.2.2"};
    EXPECT_EQ(ownership(ttl, "site-1"), Ownership::altered);
    EXPECT_EQ(ownership(value, "site-1"), Ownership::altered);
    set.mark = "made by hand";
    EXPECT_EQ(ownership(set, "site-1"), Ownership::anothers);
    EXPECT_TRUE(is_owner("site-1") && is_owner(std::string(40, 'a')));
    EXPECT_FALSE(is_owner("") || is_owner("a b") || is_owner("a\"") || is_owner(std::string(41, 'a')));
}

TEST(Plan, ByTable) {
    const auto set = [](RecordType type, std::string value, std::string_view owner) {
        auto out = *record_set(type, 30, {std::move(value)});
        if (!owner.empty()) out.mark = mark_of(owner, out);
        return out;
    };
    const auto a1 = set(RecordType::a, "192.0.2.1", "me"), a2 = set(RecordType::a, "192.0.2.2", "me");
    const auto six = set(RecordType::aaaa, "2001:db8::1", "me"), alias = set(RecordType::cname, "x.test.", "me");
    auto altered = a1;
    altered.values = {"203.0.113.1"};
    auto altered_to_a2 = a2;
    altered_to_a2.mark = a1.mark;
    const auto bare = set(RecordType::a, "192.0.2.1", ""), theirs = set(RecordType::cname, "x.test.", "you");
    using Action = Plan::Action;
    struct Row {
        RecordSets wanted, current;
        std::optional<RecordSets> published;
        Action plain, repair, adopt;
    };
    const std::vector<Row> rows = {
        {{a1}, {a1}, {}, Action::in_place, Action::in_place, Action::in_place},
        {{a2}, {a1}, {}, Action::write, Action::write, Action::write},
        {{a1}, {}, {}, Action::write, Action::write, Action::write},
        {{a1}, {}, RecordSets{a1}, Action::drift, Action::write, Action::drift},
        {{a1, six}, {a1}, RecordSets{a1}, Action::write, Action::write, Action::write},
        {{a1}, {a1, six}, {}, Action::write, Action::write, Action::write},
        {{alias}, {a1, six}, {}, Action::write, Action::write, Action::write},
        {{a1}, {altered}, RecordSets{a1}, Action::drift, Action::write, Action::drift},
        {{a1}, {altered}, {}, Action::drift, Action::write, Action::drift},
        {{a2}, {altered_to_a2}, {}, Action::write, Action::write, Action::write}, // only its mark is wrong
        {{a1}, {bare}, {}, Action::drift, Action::drift, Action::write},
        {{a1}, {bare}, RecordSets{a1}, Action::in_place, Action::in_place, Action::in_place},
        {{a2}, {bare}, RecordSets{a1}, Action::write, Action::write, Action::write},
        {{a2}, {bare}, RecordSets{a2}, Action::drift, Action::write, Action::drift},
        {{a1}, {theirs}, {}, Action::drift, Action::drift, Action::write},
        {{a1}, {theirs}, RecordSets{a1}, Action::drift, Action::write, Action::drift},
        {{}, {a1}, {}, Action::withhold, Action::withhold, Action::withhold},
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto& row = rows[i];
        const auto* published = row.published ? &*row.published : nullptr;
        const auto plan = plan_for(row.wanted, false, row.current, published, {"me"});
        EXPECT_EQ(plan.action, row.plain) << i << " " << plan.message;
        EXPECT_EQ(plan_for(row.wanted, false, row.current, published, {"me", true, false}).action, row.repair) << i;
        EXPECT_EQ(plan_for(row.wanted, false, row.current, published, {"me", false, true}).action, row.adopt) << i;
        if (plan.action == Action::write)
            for (const auto& one : plan.after) EXPECT_EQ(ownership(one, "me"), Ownership::ours) << i;
        EXPECT_EQ(plan.action == Action::drift || plan.action == Action::withhold, !plan.message.empty()) << i;
    }
    EXPECT_EQ(plan_for({}, true, {a1}, nullptr, {"me"}).action, Action::write);
    EXPECT_EQ(plan_for({}, true, {}, nullptr, {"me"}).action, Action::in_place);
}

} // namespace orrery::gslb
