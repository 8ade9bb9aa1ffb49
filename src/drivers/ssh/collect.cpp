#include "drivers/ssh/ssh.h"

#include <fmt/format.h>

namespace orrery::drivers {

namespace {

// Reads a path and how large the file may be; says in one line how it stands, and then what the file holds.
constexpr auto collect_program = R"sh(
IFS= read -r path && IFS= read -r most || exit 1
if [ ! -e "$path" ]; then echo absent; exit; fi
if [ ! -f "$path" ]; then echo other; exit; fi
if [ ! -r "$path" ]; then echo unreadable; exit; fi
size=$(wc -c <"$path") || exit 1
if [ "$size" -gt "$most" ]; then echo "large $((size))"; exit; fi
echo file
exec head -c "$most" -- "$path"
)sh";

class SshCollector final : public jobs::Collector {
public:
    explicit SshCollector(RemoteAttempts& remote) : remote_(remote) {}

    Task<Found> fetch(Context ctx, jobs::Attempt attempt, jobs::Target target, std::string path, std::size_t most) override {
        auto input = fmt::format("{}\n{}\n", path, most);
        auto ran = co_await remote_.run(ctx, target.node, sudo_of(attempt, target.node), {"sh", "-c", collect_program},
                                        std::move(input), most + 64);
        if (!ran.ok()) co_return ran.error();
        const auto line = ran->output.substr(0, ran->output.find('\n'));
        if (ran->exit_code != 0 || line.size() == ran->output.size())
            co_return Found{{}, fmt::format("cannot be read: {}", ran->errors.substr(0, 300))};
        if (line == "absent") co_return Found{{}, "is not there"};
        if (line == "other") co_return Found{{}, "is no file: pack a folder into one"};
        if (line == "unreadable") co_return Found{{}, "may not be read"};
        if (line.starts_with("large ")) co_return Found{{}, fmt::format("has {} bytes, and {} is the limit", line.substr(6), most)};
        ran->output.erase(0, line.size() + 1);
        co_return Found{std::move(ran->output), {}};
    }

private:
    RemoteAttempts& remote_;
};

} // namespace

std::unique_ptr<jobs::Collector> ssh_collector(RemoteAttempts& remote) { return std::make_unique<SshCollector>(remote); }

} // namespace orrery::drivers
