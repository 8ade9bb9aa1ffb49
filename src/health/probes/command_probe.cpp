#include "health/probes/command_probe.h"

#include <fmt/format.h>

namespace orrery::health {

namespace {

std::string limited(std::string text) {
    if (text.size() > max_text) text.resize(max_text);
    return text;
}

class CommandProbe final : public Probe {
public:
    CommandProbe(CommandRunner& runner, std::string node, std::vector<std::string> argv)
        : runner_(runner), node_(std::move(node)), argv_(std::move(argv)) {}
    std::string identity() const override {
        std::string out = "command " + node_;
        for (const auto& word : argv_) out += fmt::format(" {}:{}", word.size(), word);
        return out;
    }
    std::string host() const override { return node_; }
    asio::awaitable<Observation> run(Context ctx) const override {
        auto ended = co_await within_deadline(ctx, runner_.run(ctx, node_, argv_, {}));
        if (!ended.ok())
            co_return Observation{.outcome = Outcome::local_error,
                                  .text = limited(fmt::format("{} on {}: {}", argv_.front(), node_, ended.error().message))};
        Observation seen;
        seen.outcome = ended->exit_code == 0 ? Outcome::ok : ended->exit_code == 1 ? Outcome::warning : Outcome::failed;
        seen.text = limited(ended->output);
        if (seen.text.empty() && ended->exit_code != 0) seen.text = fmt::format("exit code {}", ended->exit_code);
        co_return seen;
    }

private:
    CommandRunner& runner_;
    std::string node_;
    std::vector<std::string> argv_;
};

} // namespace

ProbePtr command_probe(CommandRunner& runner, std::string node, std::vector<std::string> argv) {
    return std::make_shared<CommandProbe>(runner, std::move(node), std::move(argv));
}

} // namespace orrery::health
