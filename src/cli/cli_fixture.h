#pragma once

#include "cli/cli.h"
#include "cli/fake_api.h"
#include "core/test_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <sys/stat.h>

namespace orrery::cli {

/// A clock that always shows noon of one day.
class NoonClock final : public Clock {
public:
    WallTime wall() const override { return *from_rfc3339("2026-11-16T12:00:00.000Z"); }
    SteadyTime steady() const override { return real_clock().steady(); }
    asio::awaitable<Result<Unit>> sleep_until(SteadyTime when) override { return real_clock().sleep_until(when); }
};

/// One user with a home folder, a session and a terminal, and a fake server.
class CliTest : public ::testing::Test {
protected:
    CliTest() {
        environment = {{"HOME", home.path().string()}, {"ORRERY_SERVER", api.url()}};
        save_session(api.url(), "orr_abc");
    }

    void save_session(const std::string& server, const std::string& token) {
        std::filesystem::create_directories(home / ".config/orrery");
        const auto path = home / ".config/orrery/session.yaml";
        std::ofstream(path) << "server: " << server << "\ntoken: " << token << "\n";
        ::chmod(path.c_str(), 0600);
    }
    std::string session() { return contents(home / ".config/orrery/session.yaml"); }
    static std::string contents(const std::filesystem::path& path) {
        std::ifstream in(path);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    std::string file(std::string_view name, std::string_view text) {
        const auto path = home / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
        return path.string();
    }

    int run(std::vector<std::string> args) {
        std::istringstream in(input);
        std::ostringstream out_stream, err_stream;
        Streams streams{.in = in, .out = out_stream, .err = err_stream};
        streams.environment = environment;
        streams.clock = &clock;
        streams.out_is_terminal = terminal;
        streams.in_is_terminal = !answers.empty();
        streams.width = width;
        streams.ask_secret = [this](std::string_view prompt) -> Result<std::string> {
            prompts.emplace_back(prompt);
            if (answers.empty()) return Error{Code::cancelled, "interrupted"};
            auto answer = answers.front();
            answers.pop_front();
            return answer;
        };
        if (edits) streams.run_editor = [this](const std::string& editor, const std::string& path) { return edits(editor, path); };
        const int code = cli::run(std::move(args), streams, application);
        out = out_stream.str();
        err = err_stream.str();
        return code;
    }

    testing::TemporaryFolder home;
    FakeApi api;
    NoonClock clock;
    Application application;
    std::vector<std::pair<std::string, std::string>> environment;
    std::string input, out, err;
    std::deque<std::string> answers;
    std::vector<std::string> prompts;
    std::function<Result<Unit>(const std::string& editor, const std::string& file)> edits; ///< acts as the editor
    bool terminal = false;
    int width = 0;
};

} // namespace orrery::cli
