#include "store/store.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::store {

Transaction& Transaction::expect(std::string key, Revision modified) {
    compares.push_back({std::move(key), Compare::Target::modified, modified});
    return *this;
}

Transaction& Transaction::expect_created(std::string key, Revision created) {
    compares.push_back({std::move(key), Compare::Target::created, created});
    return *this;
}

Transaction& Transaction::put(std::string key, std::string value, LeaseId lease) {
    changes.push_back({Change::Op::put, std::move(key), std::move(value), lease});
    return *this;
}

Transaction& Transaction::remove(std::string key) {
    changes.push_back({Change::Op::remove, std::move(key), {}, 0});
    return *this;
}

namespace {

Result<Unit> validate_key(const std::string& key) {
    if (key.empty()) return Error{Code::invalid, "a key must not be empty"};
    if (key.front() == '/')
        return Error{Code::invalid, fmt::format("the key \"{}\" starts with a slash", key.substr(0, 80)), "omit the leading slash"};
    if (static_cast<unsigned char>(key.front()) > static_cast<unsigned char>(uncached_prefix))
        return Error{Code::invalid, fmt::format("the key \"{}\" starts with a character above ~", key.substr(0, 80))};
    if (key.size() > max_key_size)
        return Error{Code::too_large, fmt::format("the key \"{}...\" has {} bytes, at most {} are allowed", key.substr(0, 40),
                                                  key.size(), max_key_size)};
    return Unit{};
}

/// The first key that occurs twice, or null.
const std::string* duplicate_key(const std::vector<Change>& changes) {
    if (changes.size() <= 8) {
        for (std::size_t i = 1; i < changes.size(); ++i)
            for (std::size_t j = 0; j < i; ++j)
                if (changes[i].key == changes[j].key) return &changes[i].key;
        return nullptr;
    }
    std::vector<const std::string*> keys;
    for (const auto& change : changes) keys.push_back(&change.key);
    std::ranges::sort(keys, {}, [](const std::string* key) -> const std::string& { return *key; });
    const auto found = std::ranges::adjacent_find(keys, [](const auto* left, const auto* right) { return *left == *right; });
    return found == keys.end() ? nullptr : *found;
}

} // namespace

Result<Unit> validate(const Transaction& transaction) {
    if (transaction.changes.size() > max_changes || transaction.compares.size() > max_changes)
        return Error{Code::too_large,
                     fmt::format("a transaction of {} changes and {} comparisons, at most {} of each are allowed",
                                 transaction.changes.size(), transaction.compares.size(), max_changes),
                     "split it into several transactions"};
    std::size_t size = 0;
    for (const auto& compare : transaction.compares) {
        TRY(std::ignore, validate_key(compare.key));
        size += compare.key.size();
    }
    for (const auto& change : transaction.changes) {
        TRY(std::ignore, validate_key(change.key));
        if (change.value.size() > max_value_size)
            return Error{Code::too_large, fmt::format("the value of \"{}\" has {} bytes, at most {} are allowed", change.key,
                                                      change.value.size(), max_value_size)};
        size += change.key.size() + change.value.size();
    }
    if (size > max_transaction_size)
        return Error{Code::too_large,
                     fmt::format("the transaction has {} bytes, at most {} are allowed", size, max_transaction_size),
                     "split it into several transactions"};
    if (const auto* key = duplicate_key(transaction.changes))
        return Error{Code::invalid, fmt::format("the key \"{}\" is changed twice in one transaction", *key),
                     "change each key once"};
    return Unit{};
}

Task<Page> Store::fetch(Context, std::string, std::size_t, std::string, Values) {
    co_return Error{Code::unsupported, "this store has no uncached keys"};
}

} // namespace orrery::store
