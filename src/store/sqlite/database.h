#pragma once

#include "core/result.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace orrery::store {

class Statement;

/// One connection to an SQLite file, used by one thread at a time. The only place that translates SQLite errors.
class Database {
public:
    enum class Mode {
        read_only, ///< changes neither the file nor its log, not even on close
        read_write,
        create, ///< creates the file
    };
    static Result<Database> open(const std::string& path, Mode mode);

    /// Runs statements that return no rows.
    Result<Unit> run(const char* sql);
    Result<Statement> prepare(std::string_view sql);
    /// The first column of the first row; `not_found` if there is no row.
    Result<std::int64_t> number(std::string_view sql);
    Result<std::string> text(std::string_view sql);

    /// The error of the last call on this connection: `no_space` for a full disk, `unavailable` for a failing disk or a file locked
    /// by another process, `internal` otherwise. `doing` is the prefix of the message.
    Error last_error(std::string_view doing) const;
    /// True if the last error means that the file is corrupt.
    bool damaged() const;
    sqlite3* handle() const { return handle_.get(); }

private:
    struct Close {
        void operator()(sqlite3* handle) const;
    };
    explicit Database(sqlite3* handle) : handle_(handle) {}
    std::unique_ptr<sqlite3, Close> handle_;
};

/// A prepared statement, used many times. Bound data must stay valid until the next `reset`.
class Statement {
public:
    void bind(int index, std::int64_t number);
    void bind_text(int index, std::string_view text);
    void bind_blob(int index, std::string_view bytes);
    void bind_null(int index);

    /// True if there is a row. An error is translated as in Database::last_error.
    Result<bool> step();
    void reset();

    std::int64_t number(int column) const;
    /// Valid until the next step.
    std::string_view bytes(int column) const;
    bool is_null(int column) const;
    bool is_number(int column) const;

private:
    friend class Database;
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const;
    };
    explicit Statement(sqlite3_stmt* statement, const Database* database) : statement_(statement), database_(database->handle()) {}
    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
    sqlite3* database_;
};

} // namespace orrery::store
