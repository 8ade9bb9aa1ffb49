#pragma once

#include "identity/identity.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace orrery::identity {

/// A directory of people, in memory. For tests.
class FakePasswordSource final : public PasswordSource {
public:
    struct Person {
        std::string password;
        Role role = Role::viewer;
    };
    explicit FakePasswordSource(std::string name) : name_(std::move(name)) {}
    std::string name() const override { return name_; }
    Task<std::optional<Principal>> check(Context, std::string user, std::string password) override {
        ++asked;
        if (fail_with) co_return *fail_with;
        const auto found = people.find(user);
        if (found == people.end()) co_return std::optional<Principal>();
        if (found->second.password != password || found->second.role == Role::nobody)
            co_return Error{Code::unauthenticated, "not so"};
        Principal principal;
        principal.user = user;
        principal.role = found->second.role;
        co_return principal;
    }

    std::map<std::string, Person> people;
    std::optional<Error> fail_with;
    int asked = 0;

private:
    std::string name_;
};

/// Foreign tokens, in memory. For tests.
class FakeTokenSource final : public TokenSource {
public:
    explicit FakeTokenSource(std::string name, Clock& clock) : name_(std::move(name)), clock_(clock) {}
    std::string name() const override { return name_; }
    Task<Answer> check(Context, std::string token) override {
        ++asked;
        if (slow) std::ignore = co_await clock_.sleep(*slow);
        if (fail_with) co_return *fail_with;
        const auto found = tokens.find(token);
        if (found == tokens.end()) co_return Error{Code::unauthenticated, "not known"};
        co_return found->second;
    }

    std::map<std::string, Answer> tokens;
    std::optional<Error> fail_with;
    std::optional<Duration> slow;
    int asked = 0;

private:
    std::string name_;
    Clock& clock_;
};

} // namespace orrery::identity
