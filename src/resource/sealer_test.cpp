#include "core/test_fixture.h"
#include "resource/sealer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sys/stat.h>

namespace orrery::resource {

TEST(Sealer, OpensAValueOnlyUnderThePathItWasSealedFor) {
    const auto sealer = Sealer::ephemeral();
    const auto sealed = sealer->seal("hunter2", "Secret/a/spec.values.x");
    EXPECT_EQ(sealed.find("hunter2"), std::string::npos);
    EXPECT_NE(sealed, sealer->seal("hunter2", "Secret/a/spec.values.x"));
    EXPECT_EQ(*sealer->unseal(sealed, "Secret/a/spec.values.x"), "hunter2");
    EXPECT_EQ(sealer->unseal(sealed, "Secret/b/spec.values.x").error().code, Code::denied);
    EXPECT_EQ(Sealer::ephemeral()->unseal(sealed, "Secret/a/spec.values.x").error().code, Code::denied);
    EXPECT_EQ(*sealer->unseal(sealer->seal("", "x"), "x"), "");
}

TEST(Sealer, DetectsEveryChangedOrMissingCharacter) {
    const auto sealer = Sealer::ephemeral();
    const auto sealed = sealer->seal("some secret", "x");
    for (std::size_t i = 0; i < sealed.size(); ++i) {
        EXPECT_FALSE(sealer->unseal(sealed.substr(0, i), "x").ok()) << i;
        auto changed = sealed;
        changed[i] = changed[i] == 'A' ? 'B' : 'A';
        EXPECT_FALSE(sealer->unseal(changed, "x").ok()) << i;
    }
}

TEST(Sealer, CreatesItsKeyFileOnceReadableByItsOwnerOnly) {
    const orrery::testing::TemporaryFolder folder;
    const auto path = folder / "key";
    EXPECT_EQ(Sealer::open(path, Sealer::Missing::refuse).error().code, Code::not_found);
    const auto made = Sealer::open(path, Sealer::Missing::make);
    ASSERT_TRUE(made.ok()) << made.error().text();
    struct stat about{};
    ASSERT_EQ(::stat(path.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777U, 0600U);
    const auto again = Sealer::open(path, Sealer::Missing::make);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ((*again)->fingerprint(), (*made)->fingerprint());
    EXPECT_NE((*again)->fingerprint(), Sealer::ephemeral()->fingerprint());
    EXPECT_EQ(*(*again)->unseal((*made)->seal("x", "w"), "w"), "x");
}

TEST(Sealer, RefusesAKeyFileThatOthersCanReadOrThatHoldsNoKey) {
    const orrery::testing::TemporaryFolder folder;
    const auto path = folder / "key";
    const auto write = [&](std::string_view text) {
        std::ofstream(path, std::ios::binary) << text;
        ::chmod(path.c_str(), 0600);
    };
    write(std::string(32, 'k'));
    EXPECT_TRUE(Sealer::open(path, Sealer::Missing::refuse).ok());
    ::chmod(path.c_str(), 0640);
    EXPECT_EQ(Sealer::open(path, Sealer::Missing::refuse).error().code, Code::denied);
    for (const auto& bad :
         {std::string(), std::string(31, 'k'), std::string(33, 'k'), std::string("c2hvcnQ="), std::string(5000, 'k')}) {
        write(bad);
        EXPECT_EQ(Sealer::open(path, Sealer::Missing::make).error().code, Code::invalid) << bad.size();
    }
}

} // namespace orrery::resource
