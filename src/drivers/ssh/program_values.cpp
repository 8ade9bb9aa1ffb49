#include "drivers/ssh/program_values.h"

#include "jobs/job_file.h"
#include "jobs/script_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace orrery::drivers {

namespace json = boost::json;

namespace {

bool is_posix_shell(std::string_view shell) {
    // Not ksh: its [ ] evaluates operands of -eq and the like as arithmetic, which can run commands.
    static constexpr std::array<std::string_view, 5> shells{"", "sh", "dash", "bash", "ash"};
    const auto name = shell.substr(shell.rfind('/') + 1); // npos + 1 is 0
    return std::find(shells.begin(), shells.end(), name) != shells.end();
}

/// A job with several mistakes shows the messages of its fields only: what to write instead belongs into them.
Error in_field(Error error, std::string field) {
    error.fields.push_back({std::move(field), error.remedy.empty() ? error.message : error.message + "; " + error.remedy});
    return error;
}

Result<Unit> separate_script(json::object& body, jobs::SeparatedBody& out) {
    auto* script = body.if_contains("script");
    if (script == nullptr || !script->is_string()) return Unit{};
    const std::string_view text(script->get_string());
    const auto* shell = body.if_contains("shell");
    const std::string_view name = shell != nullptr && shell->is_string() ? std::string_view(shell->get_string()) : "";
    if (!is_posix_shell(name)) {
        const auto references = jobs::references_in(*script);
        if (references.empty()) {
            // $${ is written for a shell only; elsewhere a dollar sign is the program's own.
            return Unit{};
        }
        return in_field(Error{Code::invalid,
                              fmt::format("${{{}}} is in a program for {}, where a value could become code",
                                          references.front().substr(0, 128), name.substr(0, 64)),
                              "pass it by env, with or arguments, and read it from there in the program"},
                        "script");
    }
    auto bound = jobs::bind_script_text(text);
    if (!bound.ok()) return in_field(std::move(bound).error(), "script");
    for (const auto& variable : bound->variables) out.environment[variable.name] = fmt::format("${{{}}}", variable.reference);
    // What is left of `${` is the shell's own: bind() must not read it.
    std::string escaped;
    for (std::size_t i = 0; i < bound->text.size(); ++i) {
        if (bound->text.compare(i, 2, "${") == 0) escaped += '$';
        escaped += bound->text[i];
    }
    *script = escaped;
    return Unit{};
}

/// `{{ orrery_value_1 }}` in place of `${...}`.
Result<Unit> separate_template(json::value& content, const std::string& field, jobs::SeparatedBody& out) {
    const std::string text(std::string_view(content.get_string()));
    std::string made;
    std::size_t from = 0;
    for (auto at = text.find("${"); at != text.npos; at = text.find("${", from)) {
        if (at > from && text[at - 1] == '$') { // a literal ${
            made += text.substr(from, at + 2 - from);
            from = at + 2;
            continue;
        }
        const auto end = text.find('}', at);
        if (end == text.npos) break;
        const auto opened =
            std::max(static_cast<std::ptrdiff_t>(text.rfind("{{", at)), static_cast<std::ptrdiff_t>(text.rfind("{%", at)));
        const auto closed =
            std::max(static_cast<std::ptrdiff_t>(text.rfind("}}", at)), static_cast<std::ptrdiff_t>(text.rfind("%}", at)));
        const auto reference = text.substr(at, end + 1 - at);
        if (opened > closed)
            return in_field(Error{Code::invalid, fmt::format("{} is in an expression of the template", reference.substr(0, 128)),
                                  fmt::format("bind it with `with: {{name: \"{}\"}}` and use name", reference.substr(0, 128))},
                            field);
        const auto name = fmt::format("orrery_value_{}", out.values.size() + 1);
        out.values[name] = reference;
        made += text.substr(from, at - from) + "{{ " + name + " }}";
        from = end + 1;
    }
    content = made + text.substr(from);
    return Unit{};
}

} // namespace

Result<jobs::SeparatedBody> separate_ssh_values(const json::value& body) {
    jobs::SeparatedBody out{body, {}, {}};
    auto* object = out.body.if_object();
    if (object == nullptr) return out;
    TRY(std::ignore, separate_script(*object, out));
    auto* blocks = object->if_contains("blocks");
    if (blocks == nullptr || !blocks->is_array()) return out;
    for (std::size_t i = 0; i < blocks->get_array().size(); ++i) {
        auto* block = blocks->get_array()[i].if_object();
        auto* made = block != nullptr ? block->if_contains("template") : nullptr;
        if (made == nullptr || !made->is_object()) continue;
        auto* content = made->get_object().if_contains("content");
        if (content == nullptr || !content->is_string()) continue;
        TRY(std::ignore, separate_template(*content, fmt::format("blocks[{}].template.content", i), out));
    }
    return out;
}

} // namespace orrery::drivers
