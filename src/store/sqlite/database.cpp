#include "store/sqlite/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>
#include <cstring>

namespace orrery::store {

namespace {

Error sqlite_error(sqlite3* handle, std::string_view where) {
    const auto doing = where.empty() ? std::string() : fmt::format("{}: ", where);
    const int code = sqlite3_errcode(handle) & 0xff; // the primary code is the low byte of the extended one
    const int system_error = sqlite3_system_errno(handle);
    if (code == SQLITE_FULL || (code == SQLITE_IOERR && (system_error == ENOSPC || system_error == EDQUOT)))
        return Error{Code::no_space, fmt::format("{}the disk is full", doing), "free disk space; writes resume automatically"};
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return Error{Code::unavailable, fmt::format("{}another process has locked the file", doing), "stop the other process"};
    const auto message = system_error != 0 && (code == SQLITE_IOERR || code == SQLITE_CANTOPEN)
                             ? fmt::format("{}{} ({})", doing, sqlite3_errmsg(handle), std::strerror(system_error))
                             : fmt::format("{}{}", doing, sqlite3_errmsg(handle));
    if (code == SQLITE_IOERR || code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PERM)
        return Error{Code::unavailable, message, "check the disk and the permissions of the directory"};
    return Error{Code::internal, message};
}

} // namespace

void Database::Close::operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Result<Database> Database::open(const std::string& path, Mode mode) {
    sqlite3* handle = nullptr;
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    flags |= mode == Mode::read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    if (mode == Mode::create) flags |= SQLITE_OPEN_CREATE;
    const int opened = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
    Database database(handle);
    if (!handle) return Error{Code::internal, "no memory for a database connection"};
    if (opened != SQLITE_OK) return database.last_error(fmt::format("cannot open {}", path));
    sqlite3_busy_timeout(handle, 5000);
    if (mode == Mode::read_only) sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    // Do not run functions from the schema of an untrusted file.
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    return database;
}

Result<Unit> Database::run(const char* sql) {
    if (sqlite3_exec(handle(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) return last_error("SQLite failed");
    return Unit{};
}

Result<Statement> Database::prepare(std::string_view sql) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v3(handle(), sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &statement, nullptr) !=
        SQLITE_OK)
        return last_error("SQLite cannot prepare a statement");
    return Statement(statement, this);
}

Result<std::int64_t> Database::number(std::string_view sql) {
    TRY(auto statement, prepare(sql));
    TRY(const bool row, statement.step());
    if (!row) return Error{Code::not_found, "no such row"};
    return statement.number(0);
}

Result<std::string> Database::text(std::string_view sql) {
    TRY(auto statement, prepare(sql));
    TRY(const bool row, statement.step());
    if (!row || statement.is_null(0)) return Error{Code::not_found, "no such row"};
    return std::string(statement.bytes(0));
}

Error Database::last_error(std::string_view doing) const { return sqlite_error(handle(), doing); }

bool Database::damaged() const {
    // The primary code is the low byte of the extended one.
    const int code = sqlite3_errcode(handle()) & 0xff;
    return code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR || code == SQLITE_FORMAT;
}

void Statement::bind(int index, std::int64_t number) { sqlite3_bind_int64(statement_.get(), index, number); }

void Statement::bind_text(int index, std::string_view text) {
    sqlite3_bind_text(statement_.get(), index, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
}

void Statement::bind_blob(int index, std::string_view bytes) {
    // A null pointer would bind NULL, which denotes a removal.
    sqlite3_bind_blob(statement_.get(), index, bytes.empty() ? "" : bytes.data(), static_cast<int>(bytes.size()), SQLITE_STATIC);
}

void Statement::bind_null(int index) { sqlite3_bind_null(statement_.get(), index); }

Result<bool> Statement::step() {
    const int outcome = sqlite3_step(statement_.get());
    if (outcome == SQLITE_ROW) return true;
    if (outcome == SQLITE_DONE) return false;
    return sqlite_error(database_, {});
}

void Statement::reset() { sqlite3_reset(statement_.get()); }

std::int64_t Statement::number(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string_view Statement::bytes(int column) const {
    const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
    return {data ? data : "", static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

bool Statement::is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }
bool Statement::is_number(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_INTEGER; }

} // namespace orrery::store
