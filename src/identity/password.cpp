#include "identity/password.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace orrery::identity {

namespace {

constexpr std::size_t min_characters = 10, max_characters = 256;

void init_sodium() {
    static const int ready = sodium_init();
    if (ready < 0) std::abort(); // without a random source no secret is safe
}

std::size_t count_characters(std::string_view text) {
    // UTF-8: count the bytes that are not continuation bytes.
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

bool equals_ignoring_case(std::string_view left, std::string_view right) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), [&](char a, char b) { return lower(a) == lower(b); });
}

} // namespace

std::string hash_password(std::string_view password) {
    init_sodium();
    std::array<char, crypto_pwhash_STRBYTES> out{};
    if (crypto_pwhash_str_alg(out.data(), password.data(), password.size(), crypto_pwhash_OPSLIMIT_INTERACTIVE,
                              crypto_pwhash_MEMLIMIT_INTERACTIVE, crypto_pwhash_ALG_ARGON2ID13) != 0)
        return {};
    return out.data();
}

bool verify_password(std::string_view hash, std::string_view password) {
    init_sodium();
    std::array<char, crypto_pwhash_STRBYTES> text{}; // zero-filled: the library requires a terminated string
    if (hash.size() >= text.size() || !hash.starts_with("$argon2id$")) return false;
    std::copy(hash.begin(), hash.end(), text.begin());
    return crypto_pwhash_str_verify(text.data(), password.data(), password.size()) == 0;
}

std::string_view dummy_hash() {
    // The hash of 24 discarded random bytes.
    return "$argon2id$v=19$m=65536,t=2,p=1$LWcRX+cvUcQj8sSIBdME7w$tRXer8RGLvQkurhieEZky/HrVNDZ96jzWimBHckPIyo";
}

Result<Unit> check_password_quality(std::string_view user, std::string_view password) {
    const auto characters = count_characters(password);
    std::string wrong;
    if (characters < min_characters)
        wrong = fmt::format("must have at least {} characters", min_characters);
    else if (characters > max_characters || password.size() > 4 * max_characters)
        wrong = fmt::format("must have at most {} characters", max_characters);
    else if (equals_ignoring_case(user, password))
        wrong = "must not be the user's name";
    else if (std::all_of(password.begin(), password.end(), [&](char c) { return c == password.front(); }))
        wrong = "must not be one character repeated";
    else if (password.find('\0') != std::string_view::npos)
        wrong = "must not contain a NUL character";
    if (wrong.empty()) return Unit{};
    Error error{Code::invalid, "the password " + wrong,
                fmt::format("choose {} to {} characters that others cannot guess", min_characters, max_characters)};
    error.fields.push_back({"spec.password", std::move(wrong)});
    return error;
}

} // namespace orrery::identity
