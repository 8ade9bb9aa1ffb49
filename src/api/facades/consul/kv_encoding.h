#pragma once

#include "api/facades/consul/kv.h"

#include <optional>
#include <string>
#include <string_view>

/// Private to KeyValues: the encoding of keys and sessions in the store.
namespace orrery::api::consul {

constexpr std::string_view kv_prefix = "consul/kv/", session_prefix = "consul/sessions/", delay_prefix = "consul/lock-delays/";

std::string store_key(std::string_view prefix, std::string_view key);
std::string to_value(const Entry& entry);
std::string to_value(const Session& session);
/// nullopt: the record is malformed.
std::optional<Entry> read_entry(const store::Record& record);
std::optional<Session> read_session(const store::Record& record);

} // namespace orrery::api::consul
