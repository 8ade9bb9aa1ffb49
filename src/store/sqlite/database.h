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

/// One connection to an SQLite file, used by one thread at a time. SQLite's own words become our errors here and nowhere else.
class Database {
public:
    enum class Mode {
        read_only, ///< changes neither the file nor its log, not even when it is closed
        read_write,
        create, ///< makes the file
    };
    static Result<Database> open(const std::string& path, Mode mode);

    /// Runs statements that give no rows.
    Result<Unit> run(const char* sql);
    Result<Statement> prepare(std::string_view sql);
    /// The first column of the first row; `not_found` where there is none.
    Result<std::int64_t> number(std::string_view sql);
    Result<std::string> text(std::string_view sql);

    /// The error that the last call on this connection left: no_space for a full disk, unavailable for one that fails or is held by
    /// somebody else, internal otherwise. `doing` begins the sentence.
    Error last_error(std::string_view doing) const;
    /// The last error means that the file's contents are not what SQLite or we wrote.
    bool damaged() const;
    sqlite3* handle() const { return handle_.get(); }

private:
    struct Close {
        void operator()(sqlite3* handle) const;
    };
    explicit Database(sqlite3* handle) : handle_(handle) {}
    std::unique_ptr<sqlite3, Close> handle_;
};

/// A compiled statement, to be used many times. What is bound must stay until the next `reset`.
class Statement {
public:
    void bind(int place, std::int64_t number);
    void bind_text(int place, std::string_view text);
    void bind_blob(int place, std::string_view bytes);
    void bind_null(int place);

    /// true: there is a row. The error is the database's; ask it for words.
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
