#include "dns/authority_fixture.h"
#include "dns/query_log.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace orrery::dns {

namespace {

namespace fs = std::filesystem;

struct LogFolder {
    LogFolder() : path(fs::temp_directory_path() / ("orrery-query-log-" + std::to_string(::getpid()))) {
        fs::create_directories(path);
    }
    ~LogFolder() { fs::remove_all(path); }
    std::vector<std::string> lines(const std::string& file) const {
        std::ifstream in(path / file);
        std::vector<std::string> out;
        for (std::string line; std::getline(in, line);) out.push_back(line);
        return out;
    }
    fs::path path;
};

std::shared_ptr<Authority> logged(std::size_t ring, std::uint32_t every = 1) {
    auto out = std::make_shared<Authority>(Authority::Options{.query_log_capacity = ring, .query_log_sample_every = every});
    Authority::Update update{.revision = 7};
    update.zones.push_back(example_zone());
    EXPECT_TRUE(out->apply(std::move(update)).ok());
    return out;
}

void ask(const Authority& authority, const std::string& of, std::uint16_t type = type::a) {
    Octets out(4096);
    const TestQuery question{.of = of, .type = type};
    authority.respond(question.bytes(), question.client(), out);
}

} // namespace

TEST(QueryLog, WritesOneLinePerQuery) {
    const LogFolder folder;
    const auto authority = logged(64);
    QueryLog log(authority, {.file = folder.path / "queries"});
    ASSERT_TRUE(log.start().ok());
    ask(*authority, "www.example.test");
    ask(*authority, "No thing.example.test", type::mx);
    ask(*authority, ".", type::ns);
    log.stop();
    const auto lines = folder.lines("queries");
    ASSERT_EQ(lines.size(), 3U);
    EXPECT_EQ(lines[0].substr(24), " udp 203.0.113.5 www.example.test A IN NOERROR 66");
    EXPECT_EQ(lines[1].substr(24, 57), " udp 203.0.113.5 No\\032thing.example.test MX IN NXDOMAIN ");
    EXPECT_EQ(lines[2].substr(24), " udp 203.0.113.5 . NS IN REFUSED 17");
    EXPECT_TRUE(from_rfc3339(lines[0].substr(0, 24)).ok()) << lines[0];
    EXPECT_EQ(log.counts().written, 3U);
    EXPECT_EQ(log.counts().lost, 0U);
}

TEST(QueryLog, LogsOneOfEveryNQueries) {
    const LogFolder folder;
    const auto authority = logged(64, 10);
    QueryLog log(authority, {.file = folder.path / "queries"});
    ASSERT_TRUE(log.start().ok());
    for (int i = 0; i < 50; ++i) ask(*authority, "www.example.test");
    log.stop();
    EXPECT_EQ(log.counts().written, 5U);
    EXPECT_EQ(authority->statistics().query_log_dropped, 0U); // they were not wanted
}

TEST(QueryLog, RotatesAFullFile) {
    const LogFolder folder;
    const auto authority = logged(1024);
    for (int round = 0; round < 4; ++round) {
        QueryLog log(authority, {.file = folder.path / "queries", .max_file_bytes = 2000});
        ASSERT_TRUE(log.start().ok());
        for (int i = 0; i < 20; ++i) ask(*authority, "r" + std::to_string(round) + ".example.test");
        log.stop();
    }
    EXPECT_NE(folder.lines("queries").back().find("r3.example.test"), std::string::npos);
    EXPECT_NE(folder.lines("queries.1").back().find("r2.example.test"), std::string::npos);
    std::size_t files = 0;
    for (const auto& one : fs::directory_iterator(folder.path)) files += fs::file_size(one) <= 2000 ? 1 : 100;
    EXPECT_EQ(files, 2U);
    // The file was moved away, as logrotate does: a new one is created.
    QueryLog log(authority, {.file = folder.path / "queries"});
    ASSERT_TRUE(log.start().ok());
    fs::rename(folder.path / "queries", folder.path / "moved");
    ask(*authority, "after.example.test");
    log.stop();
    ASSERT_EQ(folder.lines("queries").size(), 1U);
}

TEST(QueryLog, ABatchNeverExceedsTheFileSize) {
    const LogFolder folder;
    const auto authority = logged(1024);
    for (int i = 0; i < 100; ++i) ask(*authority, "r" + std::to_string(i) + ".example.test");
    QueryLog log(authority, {.file = folder.path / "queries", .max_file_bytes = 2000});
    ASSERT_TRUE(log.start().ok());
    log.stop();
    EXPECT_EQ(log.counts().written, 100U);
    EXPECT_NE(folder.lines("queries").back().find("r99.example.test"), std::string::npos);
    for (const auto& one : fs::directory_iterator(folder.path)) EXPECT_LE(fs::file_size(one), 2000U) << one.path();
}

TEST(QueryLog, CountsWriteErrorsWithoutBlocking) {
    const LogFolder folder;
    const auto authority = logged(8);
    const auto refused = QueryLog(authority, {.file = folder.path / "none" / "queries"}).start();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("No such file"), std::string::npos);
    QueryLog log(authority, {.file = "/dev/full"});
    ASSERT_TRUE(log.start().ok());
    for (int i = 0; i < 5; ++i) ask(*authority, "www.example.test");
    log.stop();
    EXPECT_EQ(log.counts().written, 0U);
    EXPECT_EQ(log.counts().lost, 5U);
}

} // namespace orrery::dns
