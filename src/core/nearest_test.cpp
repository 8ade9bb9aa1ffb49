#include "core/nearest.h"

#include <gtest/gtest.h>

#include <iterator>

namespace orrery {

TEST(Nearest, SuggestsOnlySimilarNames) {
    constexpr std::string_view words[] = {"listen", "store", "log"};
    EXPECT_EQ(nearest("lisetn", std::begin(words), std::end(words)), "listen");
    EXPECT_EQ(nearest("zebra", std::begin(words), std::end(words)), "");
    const std::string_view fields[] = {"name", "on", "run"};
    EXPECT_EQ(nearest("rnu", std::begin(fields), std::end(fields)), "run") << "two letters in the wrong order are one mistake";
    const std::string_view commands[] = {"login", "logout", "job"};
    for (const auto* word : {"logs", "rollout", "top"})
        EXPECT_EQ(nearest(word, std::begin(commands), std::end(commands)), "") << word;
}

} // namespace orrery
