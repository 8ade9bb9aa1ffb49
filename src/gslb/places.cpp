#include "gslb/places.h"

#include "core/log.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sys/stat.h>

namespace orrery::gslb {

namespace {

/// Tells one file at a path from another.
struct FileIdentity {
    std::uint64_t device = 0, inode = 0;
    std::int64_t size = -1, seconds = 0, nanoseconds = 0;
    static FileIdentity of(const std::filesystem::path& file) {
        struct stat found{};
        if (::stat(file.c_str(), &found) != 0) return {};
        return {found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
    }
    bool operator==(const FileIdentity&) const = default;
};

struct Reading {
    FileIdentity identity;
    std::shared_ptr<const GeoDatabase> database; ///< null: `trouble` says why
    std::string trouble;
};

Result<GeoDatabase> read_database(const std::filesystem::path& file, const FileIdentity& identity, std::uintmax_t most) {
    if (identity.size < 0) return Error{Code::not_found, fmt::format("there is no file {}", file.string())};
    if (static_cast<std::uintmax_t>(identity.size) > most)
        return Error{Code::too_large, fmt::format("{} is larger than {} bytes", file.string(), most)};
    std::ifstream in(file, std::ios::binary);
    std::string bytes(static_cast<std::size_t>(identity.size), '\0');
    if (!in || !in.read(bytes.data(), identity.size))
        return Error{Code::unavailable, fmt::format("{} cannot be read", file.string())};
    if (!(FileIdentity::of(file) == identity)) return Error{Code::unavailable, fmt::format("{} is being written", file.string())};
    auto database = GeoDatabase::read(std::move(bytes));
    if (!database.ok()) return Error{Code::invalid, fmt::format("{}: {}", file.string(), database.error().message)};
    return database;
}

Reading read_file(const std::filesystem::path& file, std::uintmax_t most) {
    Reading out{.identity = FileIdentity::of(file)};
    auto database = read_database(file, out.identity, most);
    if (database.ok())
        out.database = std::make_shared<const GeoDatabase>(std::move(*database));
    else
        out.trouble = database.error().message;
    return out;
}

} // namespace

struct Places::State {
    State(asio::any_io_executor executor_, Clock& clock_, Options options_)
        : clock(clock_), options(std::move(options_)), work(std::move(executor_)), thread(1) {}

    struct File {
        std::filesystem::path path;
        FileIdentity seen; ///< that was read, well or not
        std::shared_ptr<const GeoDatabase> database;
        std::string trouble;
    };
    struct Answer {
        GeoQuestion question;
        std::weak_ptr<const GeoClasses> held;
        std::shared_ptr<const GeoClasses> fresh; ///< nobody has asked for it yet
        bool stale = false;                      ///< to be worked out (again)
        bool wanted = false;                     ///< somebody waits for it
    };
    using Databases = std::vector<std::shared_ptr<const GeoDatabase>>;

    Clock& clock;
    Options options;
    Notifier work;
    std::vector<File> files;
    std::map<std::string, Answer> answers;
    std::function<void()> on_change;
    bool running = false;
    std::uint64_t readings = 0, refused = 0;
    Pool thread; // ends first

    void take(File& file, Reading reading) {
        file.seen = reading.identity;
        file.trouble = std::move(reading.trouble);
        if (reading.database) {
            ++readings;
            file.database = std::move(reading.database);
            log::info(Context::background(), "where clients are is known from {}: {}", file.path.string(),
                      words_of(*file.database));
            for (auto& [key, answer] : answers) answer.stale = true;
            return;
        }
        ++refused;
        log::error(Context::background(), "where clients are is not known from the file that is there now: {}{}", file.trouble,
                   file.database ? "; what was read before is used" : "");
    }

    static std::string words_of(const GeoDatabase& database) {
        return fmt::format("{} of {}", database.type().empty() ? "a database" : database.type(),
                           to_rfc3339(database.built()).substr(0, 10));
    }

    Databases databases() const {
        Databases out;
        for (const auto& file : files)
            if (file.database) out.push_back(file.database);
        return out;
    }

    std::string words() const {
        if (files.empty()) return "where clients are is not known: no dns.geo_databases are configured";
        std::vector<std::string> known, troubles;
        for (const auto& file : files)
            if (file.database)
                known.push_back(words_of(*file.database));
            else
                troubles.push_back(file.trouble);
        if (known.empty()) return fmt::format("where clients are is not known: {}", fmt::join(troubles, "; "));
        auto out = fmt::format("where clients are is known from {}", fmt::join(known, " and "));
        if (!troubles.empty()) out += fmt::format("; {}", fmt::join(troubles, "; "));
        return out;
    }

    static std::shared_ptr<const GeoClasses> worked_out(const GeoQuestion& question, const Databases& databases,
                                                        std::string words) {
        std::vector<const GeoDatabase*> all;
        for (const auto& one : databases) all.push_back(one.get());
        auto out = geo_classes(question, all);
        out.words = std::move(words);
        return std::make_shared<const GeoClasses>(std::move(out));
    }

    asio::awaitable<void> look_at_files() {
        for (auto& file : files) {
            const auto path = file.path;
            const auto seen = file.seen;
            const auto most = options.most_bytes;
            auto reading = co_await blocking(thread, [path, seen, most]() -> Result<std::optional<Reading>> {
                if (FileIdentity::of(path) == seen) return std::optional<Reading>();
                return std::optional(read_file(path, most));
            });
            // One that is gone may be about to be replaced: what was read from it stands.
            if (reading.ok() && *reading) take(file, std::move(**reading));
        }
    }

    asio::awaitable<void> answer_questions() {
        bool some = false;
        while (true) {
            tidy();
            const auto next = std::find_if(answers.begin(), answers.end(), [](const auto& one) { return one.second.stale; });
            if (next == answers.end()) break;
            next->second.stale = false; // unless a file is another meanwhile
            next->second.wanted = true;
            const auto key = next->first;
            auto made = co_await blocking(
                thread,
                [question = next->second.question, all = databases(),
                 said = words()]() -> Result<std::shared_ptr<const GeoClasses>> { return worked_out(question, all, said); });
            answers.at(key).fresh = std::move(*made);
            some = true;
        }
        if (!some || !on_change) co_return;
        on_change();
        // Whoever did not take it then does not use it any more.
        for (auto& [key, answer] : answers)
            if (std::exchange(answer.fresh, nullptr)) answer.wanted = answer.stale;
    }

    /// What nobody keeps is forgotten.
    void tidy() {
        std::erase_if(answers, [](const auto& one) { return !one.second.wanted && one.second.held.expired(); });
    }
};

Places::Places(asio::any_io_executor executor, Clock& clock, Options options)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(options))) {
    for (const auto& path : state_->options.files) {
        auto& file = state_->files.emplace_back();
        file.path = path;
        state_->take(file, read_file(path, state_->options.most_bytes));
    }
}

Places::~Places() { state_->thread.join(); }

std::shared_ptr<const GeoClasses> Places::sort(const GeoQuestion& question) {
    auto& answer = state_->answers[question.key()];
    if (answer.fresh) {
        auto out = std::exchange(answer.fresh, nullptr);
        answer.held = out;
        answer.wanted = answer.stale;
        return out;
    }
    if (auto held = answer.held.lock()) return held;
    answer.question = question;
    if (!state_->running) {
        auto out = State::worked_out(question, state_->databases(), state_->words());
        answer.held = out;
        return out;
    }
    if (!std::exchange(answer.wanted, true)) answer.stale = true;
    state_->work.notify_all();
    return nullptr;
}

void Places::report_to(std::function<void()> on_change) { state_->on_change = std::move(on_change); }

asio::awaitable<void> Places::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    state->running = true;
    TaskGroup pulse(co_await asio::this_coro::executor);
    pulse.spawn([](std::shared_ptr<State> of) -> asio::awaitable<void> {
        while ((co_await of->clock.sleep(of->options.look_every)).ok()) {
            co_await of->look_at_files();
            of->work.notify_all();
        }
    }(state));
    while (true) {
        co_await state->answer_questions();
        if (!(co_await state->work.wait(ctx.without_deadline())).ok()) break;
    }
    co_await pulse.stop();
    state->running = false;
}

std::vector<std::pair<std::string, double>> Places::gauges() const {
    if (state_->files.empty()) return {};
    double missing = 0;
    for (const auto& file : state_->files) missing += file.trouble.empty() ? 0 : 1;
    return {{"orrery_gslb_geo_databases_read_total", static_cast<double>(state_->readings)},
            {"orrery_gslb_geo_databases_refused_total", static_cast<double>(state_->refused)},
            {"orrery_gslb_geo_databases_in_trouble", missing}};
}

} // namespace orrery::gslb
