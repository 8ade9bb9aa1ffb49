#include "core/test_fixture.h"
#include "drivers/puppet/tar.h"
#include "net/process.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

namespace orrery::drivers::tar_test {

CO_TEST(Tar, IsReadByTar) {
    testing::TemporaryFolder folder;
    std::filesystem::create_directories(folder / "m/manifests");
    std::filesystem::create_directories(folder / "m/.git");
    std::filesystem::create_directories(folder / "out");
    std::ofstream(folder / "m/manifests/init.pp") << "class m {}\n";
    std::ofstream(folder / "m/.git/config") << "hidden";
    Tar tar;
    const auto deep = std::string(90, 'd') + "/" + std::string(90, 'f');
    auto first = tar.add("a", "");
    auto second = tar.add(deep, std::string(1000, 'x'), 0600);
    auto third = tar.add_folder("modules/m", folder / "m");
    auto bad = tar.add(std::string(300, 'n'), "x");
    auto large = tar.add("large", std::string(Tar::max_size + 1, 'x'));
    auto none = tar.add_folder("x", folder / "missing");
    const auto bytes = tar.finish();
    auto ran = co_await net::run_process(Context::background(),
                                         {.argv = {"tar", "-xf", "-", "-C", (folder / "out").string()}, .input = bytes});
    CO_ASSERT_OK(first);
    CO_ASSERT_OK(second);
    CO_ASSERT_OK(third);
    EXPECT_EQ(bad.error().code, Code::invalid);
    EXPECT_EQ(large.error().code, Code::too_large);
    EXPECT_EQ(none.error().code, Code::not_found);
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->exit_code, 0) << ran->errors;
    EXPECT_EQ(std::filesystem::file_size(folder.path() / "out" / deep), 1000u);
    std::ifstream init(folder / "out/modules/m/manifests/init.pp");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(init), {}), "class m {}\n");
    EXPECT_FALSE(std::filesystem::exists(folder / "out/modules/m/.git"));
}

} // namespace orrery::drivers::tar_test
