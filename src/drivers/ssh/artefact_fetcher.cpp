#include "core/truncate.h"
#include "drivers/ssh/programs.h"
#include "drivers/ssh/ssh.h"

#include <fmt/format.h>

namespace orrery::drivers {

namespace {

// Follows files_program. Reads a path and the maximum size from standard input. Prints the state of the file in one line, and then
// its content. As with files that are written, a link is followed only where it belongs to root or to the user who runs this: the
// link of another user could lead to a file that only root may read.
constexpr auto fetch_program = R"sh(
IFS= read -r path && IFS= read -r max_size || exit 1
unsafe() { printf 'unsafe %s\n' "$error"; exit; }
enter "${path%/*}/" 0; q=$? name=${path##*/} links=0
if [ "$q" = 2 ]; then echo absent; exit; fi
[ "$q" = 0 ] || unsafe
while [ -L "./$name" ]; do
  link_owner=$(stat -c %u -- "./$name") links=$((links + 1))
  if [ "$link_owner" != 0 ] && [ "$link_owner" != "$me" ]; then
    error="it is a symbolic link that belongs to user $link_owner"; unsafe
  fi
  if [ "$links" -gt 40 ]; then error='too many symbolic links'; unsafe; fi
  target=$(readlink -- "./$name") name=${target##*/}
  case $target in
  */*)
    enter "${target%/*}/" 0; q=$?
    if [ "$q" = 2 ]; then echo absent; exit; fi
    [ "$q" = 0 ] || unsafe ;;
  esac
done
if [ ! -e "./$name" ]; then echo absent; exit; fi
if [ ! -f "./$name" ]; then echo other; exit; fi
if [ ! -r "./$name" ]; then echo unreadable; exit; fi
pin_file || unsafe
size=$(wc -c <"$file") || exit 1
if [ "$size" -gt "$max_size" ]; then echo "large $((size))"; exit; fi
echo file
exec head -c "$max_size" "$file"
)sh";

class SshArtefactFetcher final : public jobs::ArtefactFetcher {
public:
    explicit SshArtefactFetcher(RemoteAttempts& remote) : remote_(remote) {}

    Task<Found> fetch(Context ctx, jobs::Attempt attempt, jobs::Target target, std::string path, std::size_t max_size) override {
        if (!path.starts_with('/') || path.ends_with('/') || path.find_first_of(std::string_view("\n\r\0", 3)) != path.npos)
            co_return Found{{}, "must be an absolute path of a file, on one line"};
        auto input = fmt::format("{}\n{}\n", path, max_size);
        auto ran = co_await remote_.run(ctx, target.node, sudo_of(attempt, target.node),
                                        {"sh", "-c", std::string(files_program) + fetch_program}, std::move(input), max_size + 64);
        if (!ran.ok()) co_return ran.error();
        const auto line = ran->output.substr(0, ran->output.find('\n'));
        if (ran->exit_code != 0 || line.size() == ran->output.size())
            co_return Found{{}, fmt::format("cannot be read: {}", truncate(ran->errors, 300))};
        if (line == "absent") co_return Found{{}, "is not there"};
        if (line == "other") co_return Found{{}, "is not a file: pack a folder into one"};
        if (line.starts_with("unsafe ")) co_return Found{{}, fmt::format("is not fetched: {}", line.substr(7))};
        if (line == "unreadable") co_return Found{{}, "may not be read"};
        if (line.starts_with("large "))
            co_return Found{{}, fmt::format("has {} bytes, and {} is the limit", line.substr(6), max_size)};
        ran->output.erase(0, line.size() + 1);
        co_return Found{std::move(ran->output), {}};
    }

private:
    RemoteAttempts& remote_;
};

} // namespace

std::unique_ptr<jobs::ArtefactFetcher> ssh_artefact_fetcher(RemoteAttempts& remote) {
    return std::make_unique<SshArtefactFetcher>(remote);
}

} // namespace orrery::drivers
