#include "gslb/publication_plan.h"
#include "gslb/publisher.h"

#include <gtest/gtest.h>

namespace orrery::gslb {

TEST(RecordSet, HasOneFormThatCompares) {
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

TEST(RecordSet, RefusesWhatCannotStandThere) {
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

TEST(Mark, TellsAnOwnEarlierAnswerFromOneThatSomebodyChanged) {
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
    using What = Plan::What;
    struct Row {
        RecordSets wanted, stands;
        std::optional<RecordSets> published;
        What plain, repair, adopt;
    };
    const std::vector<Row> rows = {
        {{a1}, {a1}, {}, What::in_place, What::in_place, What::in_place},
        {{a2}, {a1}, {}, What::write, What::write, What::write},
        {{a1}, {}, {}, What::write, What::write, What::write},
        {{a1}, {}, RecordSets{a1}, What::drift, What::write, What::drift},
        {{a1, six}, {a1}, RecordSets{a1}, What::write, What::write, What::write},
        {{a1}, {a1, six}, {}, What::write, What::write, What::write},
        {{alias}, {a1, six}, {}, What::write, What::write, What::write},
        {{a1}, {altered}, RecordSets{a1}, What::drift, What::write, What::drift},
        {{a1}, {altered}, {}, What::drift, What::write, What::drift},
        {{a2}, {altered_to_a2}, {}, What::write, What::write, What::write}, // only its mark is wrong
        {{a1}, {bare}, {}, What::drift, What::drift, What::write},
        {{a1}, {bare}, RecordSets{a1}, What::in_place, What::in_place, What::in_place},
        {{a2}, {bare}, RecordSets{a1}, What::write, What::write, What::write},
        {{a2}, {bare}, RecordSets{a2}, What::drift, What::write, What::drift},
        {{a1}, {theirs}, {}, What::drift, What::drift, What::write},
        {{a1}, {theirs}, RecordSets{a1}, What::drift, What::write, What::drift},
        {{}, {a1}, {}, What::withhold, What::withhold, What::withhold},
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto& row = rows[i];
        const auto* published = row.published ? &*row.published : nullptr;
        const auto plan = plan_for(row.wanted, false, row.stands, published, {"me"});
        EXPECT_EQ(plan.what, row.plain) << i << " " << plan.why;
        EXPECT_EQ(plan_for(row.wanted, false, row.stands, published, {"me", true, false}).what, row.repair) << i;
        EXPECT_EQ(plan_for(row.wanted, false, row.stands, published, {"me", false, true}).what, row.adopt) << i;
        if (plan.what == What::write)
            for (const auto& one : plan.after) EXPECT_EQ(ownership(one, "me"), Ownership::ours) << i;
        EXPECT_EQ(plan.what == What::drift || plan.what == What::withhold, !plan.why.empty()) << i;
    }
    EXPECT_EQ(plan_for({}, true, {a1}, nullptr, {"me"}).what, What::write);
    EXPECT_EQ(plan_for({}, true, {}, nullptr, {"me"}).what, What::in_place);
}

} // namespace orrery::gslb
