#include "api/problem.h"
#include "api/state.h"
#include "core/log.h"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

/// The store as a whole: what it is, a backup of it, its move to another engine.
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

/// Removes a file when it goes out of sight.
struct Scratch {
    std::filesystem::path path;
    explicit Scratch(std::filesystem::path path_) : path(std::move(path_)) {}
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
};

Task<Unit> backup(Api::State& state, Call call) {
    const auto ctx = call.ctx.without_deadline();
    CO_TRY(auto made, co_await state.admin.backup(ctx));
    const Scratch scratch(made.file);
    std::ifstream file(made.file, std::ios::binary);
    if (!file) co_return Error{Code::internal, fmt::format("the backup {} cannot be read back", made.file)};
    CO_TRY(std::ignore, co_await call.out.begin(
                            ctx, 200,
                            {{"Content-Type", "application/octet-stream"},
                             {"X-Revision", std::to_string(made.revision)},
                             {"Content-Disposition", fmt::format("attachment; filename=\"orrery-{}.backup\"", made.revision)}}));
    // The file was written a moment ago and comes from the page cache: reading it in pieces does not hold the loop up.
    std::string piece(256 * 1024, '\0');
    while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())), file.gcount() > 0) {
        CO_TRY(std::ignore,
               co_await call.out.write(ctx, std::string_view(piece).substr(0, static_cast<std::size_t>(file.gcount()))));
    }
    CO_TRY(std::ignore, co_await state.resources.record(ctx, {.subject = "Store/store",
                                                              .what = "backed-up",
                                                              .because = {},
                                                              .evidence = json::object{{"revision", made.revision}}}));
    co_return co_await call.out.finish(ctx);
}

/// Runs beside the answer, so that a client that goes away does not stop a move half way.
struct Move {
    explicit Move(asio::any_io_executor executor) : changed(std::move(executor)) {}
    Notifier changed;
    std::int64_t done = 0, total = 0;
    std::optional<Result<StoreAdmin::Migration>> outcome;
};

Task<Unit> migrate(Api::State& state, Call call) {
    CO_TRY(auto document, co_await read_document(call, 64 * 1024));
    CO_TRY(auto given, read_texts(document, {"to"}, {}));
    const auto ctx = call.ctx.without_deadline();
    CO_TRY(std::ignore, co_await state.resources.record(ctx, {.subject = "Store/store",
                                                              .what = "migration-begun",
                                                              .because = {},
                                                              .evidence = json::object{{"to", given["to"]}}}));
    auto move = std::make_shared<Move>(co_await asio::this_coro::executor);
    auto* admin = &state.admin;
    auto body = [](StoreAdmin* with, Context context, std::string to, std::shared_ptr<Move> into) -> asio::awaitable<void> {
        into->outcome = co_await with->migrate(std::move(context), std::move(to), [into](std::int64_t done, std::int64_t total) {
            into->done = done;
            into->total = total;
            into->changed.notify_all();
        });
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
                      .summary = "Which store this server stands on, and where it is at",
                      .group = "store",
                      .role = Role::viewer,
                      .response = {{"type", "object"}},
                      .handler = [&state](Call call) { return show_store(state, std::move(call)); }});
    state.router.add({.method = "POST",
                      .pattern = "/v1/store/backup",
                      .summary = "A consistent copy of the whole store, as a file",
                      .group = "store",
                      .role = Role::admin,
                      .handler = [&state](Call call) { return backup(state, std::move(call)); }});
    state.router.add({.method = "POST",
                      .pattern = "/v1/store/migrate",
                      .summary = "Move everything to etcd; progress as server-sent events",
                      .group = "store",
                      .role = Role::admin,
                      .request = {{"type", "object"},
                                  {"properties", json::object{{"to", json::object{{"type", "string"}}}}},
                                  {"required", json::array{"to"}}},
                      .handler = [&state](Call call) { return migrate(state, std::move(call)); }});
}

} // namespace orrery::api
