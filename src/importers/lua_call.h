#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Private to the importers: the part of Lua that LUA records of PowerDNS mostly consist of.
namespace orrery::importers {

/// A constant of Lua: a string, a number, or a table of values and named values.
struct LuaValue {
    enum class Kind { text, number, table };
    Kind kind = Kind::text;
    std::string text; ///< of strings, numbers and booleans
    std::vector<LuaValue> items = {};
    std::map<std::string, LuaValue> named = {};
};

/// One call with constants: `function(argument, ...)`.
struct LuaCall {
    std::string function;
    std::vector<LuaValue> arguments;
};

/// Parses a program that is one call with constants; nullopt for any other program.
std::optional<LuaCall> parse_lua_call(std::string_view program);

} // namespace orrery::importers
