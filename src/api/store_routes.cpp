#include "api/problem.h"
#include "api/state.h"
#include "core/log.h"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

/// Routes of the store as a whole: description, backup, migration to another engine.
namespace orrery::api {

namespace {

Task<Unit> show_store(Api::State& state, Call call) {
    auto& store = state.store();
    co_return co_await send_json(call, 200,
                                 json::object{{"engine", state.admin.engine()},
                                              {"location", state.admin.location()},
                                              {"identity", store.identity()},
                                              {"revision", store.revision()},
                                              {"compacted", store.compacted()},
                                              {"keys", store.count("")}});
}

/// Removes a temporary file at the end of its scope.
struct TemporaryFile {
    std::filesystem::path path;
    explicit TemporaryFile(std::filesystem::path path_) : path(std::move(path_)) {}
    ~TemporaryFile() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
};

Task<Unit> backup(Api::State& state, Call call) {
    const auto ctx = call.ctx.without_deadline();
    CO_TRY(auto made, co_await state.admin.backup(ctx));
    const TemporaryFile temporary(made.file);
    std::ifstream file(made.file, std::ios::binary);
    if (!file) co_return Error{Code::internal, fmt::format("the backup {} cannot be read back", made.file)};
    CO_TRY(std::ignore, co_await call.out.begin(
                            ctx, 200,
                            {{"Content-Type", "application/octet-stream"},
                             {"X-Revision", std::to_string(made.revision)},
                             {"Content-Disposition", fmt::format("attachment; filename=\"orrery-{}.backup\"", made.revision)}}));
    // The file was just written and is in the page cache: reading it in pieces does not block the loop noticeably.
    std::string piece(256 * 1024, '\0');
    while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())), file.gcount() > 0) {
        CO_TRY(std::ignore,
               co_await call.out.write(ctx, std::string_view(piece).substr(0, static_cast<std::size_t>(file.gcount()))));
    }
    CO_TRY(std::ignore, co_await state.resources.record(ctx, {.subject = "Store/store",
                                                              .action = "backed-up",
                                                              .reason = {},
                                                              .evidence = json::object{{"revision", made.revision}}}));
    co_return co_await call.out.finish(ctx);
}

/// State of a migration. It runs in the background, so that a client that disconnects does not stop it half way.
struct MigrationProgress {
    explicit MigrationProgress(asio::any_io_executor executor) : changed(std::move(executor)) {}
    Notifier changed;
    std::int64_t done = 0, total = 0;
    std::optional<Result<StoreAdmin::Migration>> outcome;
};

Task<Unit> migrate(Api::State& state, Call call) {
    CO_TRY(auto document, co_await read_document(call, 64 * 1024));
    CO_TRY(auto given, read_texts(document, {"to"}, {}));
    // Before the event: a refused URL may contain a password and must not be recorded.
    CO_TRY(std::ignore, state.admin.check_target(given["to"]));
    const auto ctx = call.ctx.without_deadline();
    CO_TRY(std::ignore, co_await state.resources.record(ctx, {.subject = "Store/store",
                                                              .action = "migration-started",
                                                              .reason = {},
                                                              .evidence = json::object{{"to", given["to"]}}}));
    auto move = std::make_shared<MigrationProgress>(co_await asio::this_coro::executor);
    auto* admin = &state.admin;
    auto body = [](StoreAdmin* with, Context context, std::string to,
                   std::shared_ptr<MigrationProgress> into) -> asio::awaitable<void> {
        const auto progress = [into](std::int64_t done, std::int64_t total) {
            into->done = done;
            into->total = total;
            into->changed.notify_all();
        };
        try {
            into->outcome = co_await with->migrate(std::move(context), std::move(to), progress);
        } catch (...) { // the client waits for the outcome
            into->outcome = Error{Code::internal, "the migration ended with an exception", "see the log of the server"};
            into->changed.notify_all();
            throw;
        }
        into->changed.notify_all();
    };
    state.background.spawn(body(admin, ctx, given["to"], move));
    CO_TRY(std::ignore, co_await call.out.begin(ctx, 200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}}));
    while (!move->outcome) {
        std::ignore = co_await move->changed.wait(ctx.with_timeout(std::chrono::seconds(5)));
        CO_TRY(std::ignore, co_await call.out.write(ctx, fmt::format("event: progress\ndata: {{\"done\":{},\"total\":{}}}\n\n",
                                                                     move->done, move->total)));
    }
    const auto& outcome = *move->outcome;
    const auto last =
        outcome.ok()
            ? fmt::format("event: done\ndata: {}\n\n",
                          json::serialize(json::object{{"keys", outcome->keys}, {"digest", outcome->digest}, {"to", given["to"]}}))
            : fmt::format("event: error\ndata: {}\n\n", problem_text(ctx, outcome.error()));
    CO_TRY(std::ignore, co_await call.out.write(ctx, last));
    co_return co_await call.out.finish(ctx);
}

} // namespace

void add_store_routes(Api::State& state) {
    state.router.add({.method = "GET",
                      .pattern = "/v1/store",
                      .summary = "Show the store of this server and its revision",
                      .group = "store",
                      .role = Role::viewer,
                      .response = {{"type", "object"}},
                      .handler = [&state](Call call) { return show_store(state, std::move(call)); }});
    state.router.add({.method = "POST",
                      .pattern = "/v1/store/backup",
                      .summary = "Download a consistent backup of the store",
                      .group = "store",
                      .role = Role::admin,
                      .handler = [&state](Call call) { return backup(state, std::move(call)); }});
    state.router.add({.method = "POST",
                      .pattern = "/v1/store/migrate",
                      .summary = "Migrate the store to etcd; progress as server-sent events",
                      .group = "store",
                      .role = Role::admin,
                      .request = {{"type", "object"},
                                  {"properties", json::object{{"to", json::object{{"type", "string"}}}}},
                                  {"required", json::array{"to"}}},
                      .handler = [&state](Call call) { return migrate(state, std::move(call)); }});
}

} // namespace orrery::api
