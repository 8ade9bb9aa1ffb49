#include "gslb/clients/geo_databases.h"

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

/// Distinguishes a replaced file from the one before.
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
    std::shared_ptr<const MaxmindDatabase> database; ///< null: see `error`
    std::string error;
};

Result<MaxmindDatabase> read_database(const std::filesystem::path& file, const FileIdentity& identity, std::uintmax_t most) {
    if (identity.size < 0) return Error{Code::not_found, fmt::format("there is no file {}", file.string())};
    if (static_cast<std::uintmax_t>(identity.size) > most)
        return Error{Code::too_large, fmt::format("{} is larger than {} bytes", file.string(), most)};
    std::ifstream in(file, std::ios::binary);
    std::string bytes(static_cast<std::size_t>(identity.size), '\0');
    if (!in || !in.read(bytes.data(), identity.size))
        return Error{Code::unavailable, fmt::format("{} cannot be read", file.string())};
    if (!(FileIdentity::of(file) == identity)) return Error{Code::unavailable, fmt::format("{} is being written", file.string())};
    auto database = MaxmindDatabase::read(std::move(bytes));
    if (!database.ok()) return Error{Code::invalid, fmt::format("{}: {}", file.string(), database.error().message)};
    return database;
}

Reading read_file(const std::filesystem::path& file, std::uintmax_t most) {
    Reading out{.identity = FileIdentity::of(file)};
    auto database = read_database(file, out.identity, most);
    if (database.ok())
        out.database = std::make_shared<const MaxmindDatabase>(std::move(*database));
    else
        out.error = database.error().message;
    return out;
}

} // namespace

struct GeoDatabases::State {
    State(asio::any_io_executor executor_, Clock& clock_, Options options_)
        : clock(clock_), options(std::move(options_)), work(std::move(executor_)), thread(1) {}

    struct File {
        std::filesystem::path path;
        FileIdentity seen; ///< of the last attempt to read it
        std::shared_ptr<const MaxmindDatabase> database;
        std::string error;
    };
    struct Answer {
        GeoQuery query;
        std::weak_ptr<const GeoClasses> held;
        std::shared_ptr<const GeoClasses> fresh; ///< not fetched yet
        bool stale = false;                      ///< to be computed (again)
        bool wanted = false;                     ///< a caller waits for it
    };
    using Databases = std::vector<std::shared_ptr<const MaxmindDatabase>>;

    Clock& clock;
    Options options;
    Notifier work;
    std::vector<File> files;
    std::map<std::string, Answer> answers;
    std::function<void()> on_change;
    bool running = false;
    std::uint64_t readings = 0, refused = 0;
    Pool thread; // ends first

    void apply_reading(File& file, Reading reading) {
        file.seen = reading.identity;
        file.error = std::move(reading.error);
        if (reading.database) {
            ++readings;
            file.database = std::move(reading.database);
            log::info(Context::background(), "geo database loaded: file={} database={}", file.path.string(),
                      describe(*file.database));
            for (auto& [key, answer] : answers) answer.stale = true;
            return;
        }
        ++refused;
        log::error(Context::background(), "geo database not loaded: {}{}", file.error,
                   file.database ? "; the previous version stays in use" : "");
    }

    static std::string describe(const MaxmindDatabase& database) {
        return fmt::format("{} of {}", database.type().empty() ? "a database" : database.type(),
                           to_rfc3339(database.built()).substr(0, 10));
    }

    Databases databases() const {
        Databases out;
        for (const auto& file : files)
            if (file.database) out.push_back(file.database);
        return out;
    }

    std::string message() const {
        if (files.empty()) return "no geo database: dns.geo_databases is not set";
        std::vector<std::string> known, troubles;
        for (const auto& file : files)
            if (file.database)
                known.push_back(describe(*file.database));
            else
                troubles.push_back(file.error);
        if (known.empty()) return fmt::format("no geo database: {}", fmt::join(troubles, "; "));
        auto out = fmt::format("geo databases: {}", fmt::join(known, " and "));
        if (!troubles.empty()) out += fmt::format("; {}", fmt::join(troubles, "; "));
        return out;
    }

    static std::shared_ptr<const GeoClasses> compute_classes(const GeoQuery& query, const Databases& databases,
                                                             std::string message) {
        std::vector<const MaxmindDatabase*> all;
        for (const auto& one : databases) all.push_back(one.get());
        auto out = geo_classes(query, all);
        out.message = std::move(message);
        return std::make_shared<const GeoClasses>(std::move(out));
    }

    asio::awaitable<void> check_files() {
        for (auto& file : files) {
            const auto path = file.path;
            const auto seen = file.seen;
            const auto most = options.max_bytes;
            auto reading = co_await blocking(thread, [path, seen, most]() -> Result<std::optional<Reading>> {
                if (FileIdentity::of(path) == seen) return std::optional<Reading>();
                return std::optional(read_file(path, most));
            });
            // A missing file may be about to be replaced: keep what was read from it.
            if (reading.ok() && *reading) apply_reading(file, std::move(**reading));
        }
    }

    asio::awaitable<void> answer_queries() {
        bool some = false;
        while (true) {
            tidy();
            const auto next = std::find_if(answers.begin(), answers.end(), [](const auto& one) { return one.second.stale; });
            if (next == answers.end()) break;
            next->second.stale = false; // unless a file changes meanwhile
            next->second.wanted = true;
            const auto key = next->first;
            auto made = co_await blocking(
                thread,
                [query = next->second.query, all = databases(), status = message()]() -> Result<std::shared_ptr<const GeoClasses>> {
                    return compute_classes(query, all, status);
                });
            answers.at(key).fresh = std::move(*made);
            some = true;
        }
        if (!some || !on_change) co_return;
        on_change();
        // A caller that did not fetch it by now no longer uses it.
        for (auto& [key, answer] : answers)
            if (std::exchange(answer.fresh, nullptr)) answer.wanted = answer.stale;
    }

    /// Drops results that no caller keeps.
    void tidy() {
        std::erase_if(answers, [](const auto& one) { return !one.second.wanted && one.second.held.expired(); });
    }
};

GeoDatabases::GeoDatabases(asio::any_io_executor executor, Clock& clock, Options options)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(options))) {
    for (const auto& path : state_->options.files) {
        auto& file = state_->files.emplace_back();
        file.path = path;
        state_->apply_reading(file, read_file(path, state_->options.max_bytes));
    }
}

GeoDatabases::~GeoDatabases() { state_->thread.join(); }

std::shared_ptr<const GeoClasses> GeoDatabases::classify(const GeoQuery& query) {
    auto& answer = state_->answers[query.key()];
    if (answer.fresh) {
        auto out = std::exchange(answer.fresh, nullptr);
        answer.held = out;
        answer.wanted = answer.stale;
        return out;
    }
    if (auto held = answer.held.lock()) return held;
    answer.query = query;
    if (!state_->running) {
        auto out = State::compute_classes(query, state_->databases(), state_->message());
        answer.held = out;
        return out;
    }
    if (!std::exchange(answer.wanted, true)) answer.stale = true;
    state_->work.notify_all();
    return nullptr;
}

void GeoDatabases::report_to(std::function<void()> on_change) { state_->on_change = std::move(on_change); }

asio::awaitable<void> GeoDatabases::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    struct Running { // also when this ends with an exception: queries are then computed at once
        State& state;
        explicit Running(State& of) : state(of) { state.running = true; }
        ~Running() { state.running = false; }
    } const running(*state);
    TaskGroup pulse(co_await asio::this_coro::executor);
    pulse.spawn([](std::shared_ptr<State> of) -> asio::awaitable<void> {
        while ((co_await of->clock.sleep(of->options.poll_interval)).ok()) {
            co_await of->check_files();
            of->work.notify_all();
        }
    }(state));
    while (true) {
        co_await state->answer_queries();
        if (!(co_await state->work.wait(ctx.without_deadline())).ok()) break;
    }
    co_await pulse.stop();
}

std::vector<std::pair<std::string, double>> GeoDatabases::gauges() const {
    if (state_->files.empty()) return {};
    double missing = 0;
    for (const auto& file : state_->files) missing += file.error.empty() ? 0 : 1;
    return {{"orrery_gslb_geo_databases_read_total", static_cast<double>(state_->readings)},
            {"orrery_gslb_geo_databases_refused_total", static_cast<double>(state_->refused)},
            {"orrery_gslb_geo_databases_failed", missing}};
}

} // namespace orrery::gslb
