#pragma once

#include "identity/identity.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace orrery::identity {

/// A PasswordSource in memory, for tests.
class FakePasswordSource final : public PasswordSource {
public:
    struct User {
        std::string password;
        Role role = Role::viewer;
    };
    explicit FakePasswordSource(std::string name) : name_(std::move(name)) {}
    std::string name() const override { return name_; }
    Task<std::optional<Principal>> check(Context, std::string user, std::string password) override {
        ++calls;
        if (fail_with) co_return *fail_with;
        const auto found = users.find(user);
        if (found == users.end()) co_return std::optional<Principal>();
        if (found->second.password != password || found->second.role == Role::nobody)
            co_return Error{Code::unauthenticated, "wrong password"};
        Principal principal;
        principal.user = user;
        principal.role = found->second.role;
        co_return principal;
    }

    std::map<std::string, User> users;
    std::optional<Error> fail_with;
    int calls = 0;

private:
    std::string name_;
};

/// A TokenSource in memory, for tests.
class FakeTokenSource final : public TokenSource {
public:
    explicit FakeTokenSource(std::string name, Clock& clock) : name_(std::move(name)), clock_(clock) {}
    std::string name() const override { return name_; }
    Task<Answer> check(Context, std::string token) override {
        ++calls;
        if (delay) std::ignore = co_await clock_.sleep(*delay);
        if (fail_with) co_return *fail_with;
        const auto found = tokens.find(token);
        if (found == tokens.end()) co_return Error{Code::unauthenticated, "unknown token"};
        co_return found->second;
    }

    std::map<std::string, Answer> tokens;
    std::optional<Error> fail_with;
    std::optional<Duration> delay;
    int calls = 0;

private:
    std::string name_;
    Clock& clock_;
};

} // namespace orrery::identity
