#include "app/sealing_key.h"

#include <fmt/format.h>

namespace orrery::app {

namespace {

constexpr std::string_view sealer_key = "sys/sealer";

/// Records the key's fingerprint in the store at the first start, and compares it later.
Task<Unit> check_fingerprint(Context ctx, store::Store& store, const resource::Sealer& sealer, std::filesystem::path key_file) {
    for (int attempt = 0; attempt < 3; ++attempt) {
        if (const auto kept = store.find(sealer_key)) {
            if (kept->value == sealer.fingerprint()) co_return Unit{};
            co_return Error{Code::denied,
                            fmt::format("the key in {} is not the one this store's secrets were sealed with", key_file.string()),
                            "put the right key file there: a copy from the first server, or from a backup"};
        }
        store::Transaction transaction;
        transaction.expect(std::string(sealer_key), 0).put(std::string(sealer_key), sealer.fingerprint());
        auto written = co_await store.apply(ctx, std::move(transaction));
        if (!written.ok() && written.error().code != Code::conflict) co_return std::move(written).error();
    }
    co_return Error{Code::conflict, "several servers start at once on an empty store", "start again"};
}

} // namespace

Task<std::unique_ptr<resource::Sealer>> open_sealer(Context ctx, store::Store& store, std::filesystem::path key_file) {
    const bool fresh = store.count("") == 0;
    CO_TRY(auto sealer,
           resource::Sealer::open(key_file, fresh ? resource::Sealer::Missing::make : resource::Sealer::Missing::refuse));
    CO_TRY(std::ignore, co_await check_fingerprint(ctx, store, *sealer, key_file));
    co_return std::move(sealer);
}

} // namespace orrery::app
