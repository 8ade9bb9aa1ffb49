#include "health/probe_kind.h"

#include <gtest/gtest.h>

namespace orrery::health {
namespace {

TEST(ProbeKind, HasTheNameOfItsEnumerator) {
    EXPECT_EQ(name_of(ProbeKind::tcp), "tcp");
    EXPECT_EQ(name_of(ProbeKind::dns), "dns");
    EXPECT_EQ(name_of(ProbeKind::exec), "exec");
    EXPECT_EQ(name_of(ProbeKind::push), "push");
    EXPECT_EQ(probe_kind_names().size(), static_cast<std::size_t>(ProbeKind::push) + 1);
}

TEST(ProbeKind, IsFoundByItsName) {
    for (const auto name : probe_kind_names()) {
        const auto kind = probe_kind_named(name);
        ASSERT_TRUE(kind) << name;
        EXPECT_EQ(name_of(*kind), name);
    }
    EXPECT_FALSE(probe_kind_named("calculated"));
    EXPECT_FALSE(probe_kind_named(""));
    EXPECT_FALSE(probe_kind_named("TCP"));
}

TEST(ProbeKind, IsReadFromASpec) {
    EXPECT_EQ(probe_kind_of({{"kind", "https"}}), ProbeKind::https);
    EXPECT_FALSE(probe_kind_of({{"kind", 7}}));
    EXPECT_FALSE(probe_kind_of({}));
}

} // namespace
} // namespace orrery::health
