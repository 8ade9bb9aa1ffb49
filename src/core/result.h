#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace orrery {

/// The class of an error, by what the caller should do next. The names are stable: the API, logs and exit codes use them.
enum class Code {
    invalid,         ///< the input is wrong; correct it
    unauthenticated, ///< credentials are missing or wrong
    denied,          ///< the principal may not do this
    not_found,
    conflict,    ///< changed concurrently, or exists already; read again
    compacted,   ///< the revision is compacted; list again
    too_large,   ///< over a stated limit
    unsupported, ///< the operation is not implemented for this object
    throttled,   ///< rate limit exceeded; wait
    cancelled,   ///< by the caller or by a shutdown
    timeout,     ///< the deadline passed
    unavailable, ///< a peer or the store is unreachable; try again
    no_space,    ///< the disk is full
    internal,    ///< a bug or a broken invariant
};

std::string_view name_of(Code code);
/// The code with that name; `internal` when the name is unknown.
Code code_named(std::string_view name);

/// One invalid field of the input.
struct FieldError {
    std::string path;    ///< "spec.ssh.port", "items[2].name"
    std::string message; ///< "must be between 1 and 65535, got 70000"
    bool operator==(const FieldError&) const = default;
};

/// An error. `message` is a sentence without a full stop: what failed, on what object, and why. `remedy` is what the reader can do
/// about it; may be empty.
struct [[nodiscard]] Error {
    Code code = Code::internal;
    std::string message;
    std::string remedy;
    std::vector<FieldError> fields;

    Error() = default;
    Error(Code code_, std::string message_, std::string remedy_ = {})
        : code(code_), message(std::move(message_)), remedy(std::move(remedy_)) {}

    /// "invalid: the port must be a number (fix: ...)", for logs and tests.
    std::string text() const;
    /// The error with the prefix "where: " in its message, for callers that add context.
    Error within(std::string_view where) &&;
};

/// The value of a successful operation that returns no data.
struct Unit {
    bool operator==(const Unit&) const = default;
};

/// A value or an Error. A default-constructed Result is an error, because Asio default-constructs results of coroutines that threw.
template <class T> class [[nodiscard]] Result {
public:
    using value_type = T;

    Result() : state_(Error{Code::internal, "no result was produced"}) {}
    template <class U = T>
        requires(std::is_convertible_v<U &&, T> && !std::is_same_v<std::remove_cvref_t<U>, Error> &&
                 !std::is_same_v<std::remove_cvref_t<U>, Result>)
    Result(U&& value) : state_(std::in_place_index<1>, std::forward<U>(value)) {}
    Result(Error error) : state_(std::in_place_index<0>, std::move(error)) {}

    bool ok() const { return state_.index() == 1; }
    explicit operator bool() const { return ok(); }

    T& value() & { return std::get<1>(state_); }
    const T& value() const& { return std::get<1>(state_); }
    T&& value() && { return std::get<1>(std::move(state_)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    Error& error() & { return std::get<0>(state_); }
    const Error& error() const& { return std::get<0>(state_); }
    Error&& error() && { return std::get<0>(std::move(state_)); }

    T value_or(T other) && { return ok() ? std::move(*this).value() : std::move(other); }

private:
    std::variant<Error, T> state_;
};

} // namespace orrery

#define ORRERY_CONCAT_(a, b) a##b
#define ORRERY_CONCAT(a, b) ORRERY_CONCAT_(a, b)
#define ORRERY_TRY_(temporary, return_, declaration, ...)                                                                          \
    auto temporary = (__VA_ARGS__);                                                                                                \
    if (!temporary.ok()) return_ std::move(temporary).error();                                                                     \
    declaration = std::move(temporary).value()

/// TRY(auto port, parse_port(text)); binds the value, or returns the error from the function. A statement; one per line.
#define TRY(declaration, ...) ORRERY_TRY_(ORRERY_CONCAT(try_result_, __LINE__), return, declaration, __VA_ARGS__)
/// The same in a coroutine: CO_TRY(auto node, co_await find_node(ctx, name));
#define CO_TRY(declaration, ...) ORRERY_TRY_(ORRERY_CONCAT(try_result_, __LINE__), co_return, declaration, __VA_ARGS__)
