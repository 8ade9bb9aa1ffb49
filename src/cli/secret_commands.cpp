#include "cli/commands.h"
#include "cli/session.h"

#include <fmt/format.h>

/// secret create.
namespace orrery::cli {

namespace {

constexpr std::size_t max_value = 64 * 1024; // the limit of the server

struct SecretFile {
    std::string key, path;
};

/// "private_key=/home/me/.ssh/id_ed25519"; without a key, the name of the file is the key.
Result<SecretFile> parse_secret_file(Invocation& invocation, const std::string& text) {
    const auto equals = text.find('=');
    SecretFile out = equals == std::string::npos ? SecretFile{std::filesystem::path(text).filename().string(), text}
                                                 : SecretFile{text.substr(0, equals), text.substr(equals + 1)};
    if (out.key.empty() || out.path.empty() || (equals == std::string::npos && text == "-"))
        return invocation.usage_error(fmt::format("--from-file must be KEY=FILE, not \"{}\"", text),
                                      "as in --from-file private_key=/home/me/.ssh/id_ed25519");
    return out;
}

} // namespace

Result<int> run_secret_create(Invocation& invocation) {
    json::object secret_values;
    for (const auto& given : invocation.all("from-file")) {
        TRY(const auto file, parse_secret_file(invocation, given));
        TRY(auto text, read_file(invocation.streams, file.path, max_value));
        // The newline after a password or token is not part of it; a key of several lines is stored unchanged.
        if (text.ends_with('\n') && text.find('\n') == text.size() - 1) text.pop_back();
        if (text.empty()) return Error{Code::invalid, fmt::format("{} is empty", file.path == "-" ? "standard input" : file.path)};
        secret_values[file.key] = text;
    }
    if (secret_values.empty())
        return invocation.usage_error("a secret needs at least one value",
                                      "give --from-file KEY=FILE; - as FILE reads standard input");
    TRY(auto* api, invocation.api());
    TRY(const auto* kinds, invocation.kinds());
    TRY(const auto* kind, kinds->find("Secret"));
    const auto name = invocation.text("SECRET");
    json::object spec{{"values", std::move(secret_values)}};
    if (invocation.has("description")) spec["description"] = invocation.text("description");
    const json::object document{{"kind", "Secret"}, {"name", name}, {"spec", std::move(spec)}};
    const bool replace = invocation.has("replace");
    auto answer =
        api->call(replace ? "PUT" : "POST", (replace ? kind->route(name) : kind->route("")) + write_query(invocation), document);
    if (!answer.ok()) {
        auto error = std::move(answer).error();
        if (error.code == Code::conflict && !replace)
            error.remedy = "choose another name, or replace all values of the existing Secret with --replace";
        return error;
    }
    print_outcome(invocation, *kind, name, answer->body);
    return exit_code::ok;
}

} // namespace orrery::cli
