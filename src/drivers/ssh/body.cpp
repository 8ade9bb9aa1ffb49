#include "drivers/ssh/body.h"

#include "drivers/ssh/fields.h"
#include "drivers/ssh/template.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace orrery::drivers {

namespace json = boost::json;
using resource::Field;

namespace {

constexpr std::size_t max_pushed = 256u << 20;

Field attributes(Field field) {
    return std::move(field)
        .with(resource::text("mode", "Permissions, in octal.").format(resource::Format::one_line))
        .with(resource::text("owner", "Who owns it, by name or number.").format(resource::Format::one_line))
        .with(resource::text("group", "Its group, by name or number.").format(resource::Format::one_line));
}

Field path_field(std::string name, std::string doc) {
    return resource::text(std::move(name), std::move(doc)).required().format(resource::Format::one_line).between(1, 4096);
}

Field words(std::string name, std::string doc) {
    return resource::list(std::move(name), std::move(doc), resource::text("word", "A word."));
}

Field block_fields() {
    using namespace resource;
    return object("block", "One of these.")
        .with(attributes(object("file", "A file or folder.")
                             .with(path_field("path", "Where."))
                             .with(text("content", "What it holds; left out: whatever it holds is right."))
                             .with(text("state", "present, directory or absent.").one_of({"present", "directory", "absent"}))))
        .with(attributes(object("template", "A file made of a template and the task's values.")
                             .with(path_field("path", "Where."))
                             .with(text("content", "The template.").required())))
        .with(object("line", "A line in a file.")
                  .with(path_field("path", "Which file."))
                  .with(text("line", "The line.").required().format(Format::one_line))
                  .with(text("match", "The line to replace: the last that this extended regular expression is found in.")
                            .format(Format::one_line))
                  .with(boolean("create", "Make the file where it is not there."))
                  .with(text("state", "present or absent.").one_of({"present", "absent"})))
        .with(
            object("package", "Packages.")
                .with(list("names", "Which.", text("name", "A package.").format(Format::one_line).between(1, 256)).between(1, 500))
                .with(text("name", "Which, where it is one.").format(Format::one_line).between(1, 256))
                .with(text("state", "present, latest or absent.").one_of({"present", "latest", "absent"})))
        .with(object("service", "A service of the machine.")
                  .with(text("name", "Which.").required().format(Format::one_line).between(1, 256))
                  .with(text("state", "running, stopped, restarted or reloaded.")
                            .one_of({"running", "stopped", "restarted", "reloaded"}))
                  .with(boolean("enabled", "Whether it starts with the machine.")))
        .with(object("user", "An account.")
                  .with(text("name", "Which.").required().format(Format::one_line).between(1, 64))
                  .with(text("state", "present or absent.").one_of({"present", "absent"}))
                  .with(integer("uid", "Its number.").between(0, 4294967294))
                  .with(text("group", "Its main group.").format(Format::one_line))
                  .with(list("groups", "Further groups it must be in.", text("group", "A group.").format(Format::one_line)))
                  .with(text("shell", "Its shell.").format(Format::one_line))
                  .with(text("home", "Its home.").format(Format::one_line))
                  .with(text("comment", "Who it is.").format(Format::one_line))
                  .with(boolean("system", "A system account: a low number, no home.")))
        .with(object("command", "A command that is run unless it is not needed.")
                  .with(words("argv", "The command and its arguments; no shell sees them.").required().between(1, 1000))
                  .with(text("creates", "Not run where this is there.").format(Format::one_line))
                  .with(words("unless", "Not run where this command succeeds."))
                  .with(text("folder", "Where it runs.").format(Format::one_line)));
}

Field body_fields() {
    using namespace resource;
    return object("ssh", "What to do on the machine.")
        .with(words("command", "A command and its arguments; no shell sees them."))
        .with(text("script", "A script."))
        .with(text("shell", "What runs the script: a path or name, as in python3. Left out: the machine's sh.")
                  .format(Format::one_line))
        .with(words("arguments", "The script's arguments."))
        .with(text("input", "Standard input of the command or script."))
        .with(text("folder", "Where it runs.").format(Format::one_line))
        .with(list("success", "Exit codes that mean success.", integer("code", "One.").between(0, 255)).between(1, 256))
        .with(attributes(
            object("push", "A file, put there whole or not at all.")
                .with(path_field("to", "Where."))
                .with(text("content", "What it holds."))
                .with(text("from", "Or: the file that holds it, below the server's folder of content.").format(Format::one_line))))
        .with(list("blocks", "Idempotent blocks, all in one go.", block_fields()).between(1, 500))
        .with(boolean("sudo", "As root, by sudo. Left out: as the node says."));
}

const Field& declared_body() {
    static const Field field = body_fields();
    return field;
}

std::string text_in(const json::object& from, std::string_view key) {
    const auto* value = from.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}
bool flag_in(const json::object& from, std::string_view key) {
    const auto* value = from.if_contains(key);
    return value != nullptr && value->is_bool() && value->get_bool();
}
std::vector<std::string> words_in(const json::object& from, std::string_view key) {
    std::vector<std::string> out;
    if (const auto* value = from.if_contains(key); value != nullptr && value->is_array())
        for (const auto& word : value->get_array())
            if (word.is_string()) out.emplace_back(std::string_view(word.get_string()));
    return out;
}

/// What holds `${...}` is checked when it is bound.
bool is_open(std::string_view text) { return text.find("${") != std::string_view::npos; }

class BodyCheck {
public:
    std::vector<FieldError> errors;

    void wrong(std::string path, std::string message) { errors.push_back({std::move(path), std::move(message)}); }
    void absolute(const json::object& in, const std::string& at, std::string_view key) {
        const auto path = text_in(in, key);
        if (path.empty() || is_open(path)) return;
        if (!path.starts_with('/'))
            wrong(fmt::format("{}{}", at, key), fmt::format("must be an absolute path, got \"{}\"", path.substr(0, 80)));
        else if (path.ends_with('/') && path.size() > 1)
            wrong(fmt::format("{}{}", at, key), "must not end with a slash");
    }
    void mode(const json::object& in, const std::string& at) {
        const auto text = text_in(in, "mode");
        if (text.empty() || is_open(text)) return;
        if (text.size() < 3 || text.size() > 5 || text.find_first_not_of("01234567") != std::string::npos)
            wrong(at + "mode", fmt::format("must be octal permissions in quotes, as in \"0644\", got \"{}\"", text.substr(0, 20)));
    }
    void names_are_words(const json::object& in, const std::string& at, std::string_view key) {
        const auto text = text_in(in, key);
        if (!text.empty() && (text.front() == '-' || text.find_first_of(" \t,:") != std::string::npos))
            wrong(fmt::format("{}{}", at, key), fmt::format("is not a good name: \"{}\"", text.substr(0, 60)));
    }

    void block(const json::object& holder, const std::string& at) {
        if (holder.size() != 1) return wrong(at, "must have exactly one of file, template, line, package, service, user, command");
        const std::string kind(holder.begin()->key());
        if (!holder.begin()->value().is_object()) return;
        const auto& block = holder.begin()->value().get_object();
        const auto inside = fmt::format("{}.{}.", at, kind);
        absolute(block, inside, "path");
        mode(block, inside);
        names_are_words(block, inside, "owner");
        names_are_words(block, inside, "group");
        if (kind == "template") {
            if (auto good = check_template(text_in(block, "content")); !good.ok()) wrong(inside + "content", good.error().message);
        } else if (kind == "file") {
            if (block.contains("content") && block.contains("state") && text_in(block, "state") != "present")
                wrong(inside + "content", fmt::format("has no meaning with state {}", text_in(block, "state")));
        } else if (kind == "package") {
            if (block.contains("name") == block.contains("names")) wrong(at + ".package", "needs either name or names");
            names_are_words(block, inside, "name");
            for (const auto& name : words_in(block, "names"))
                if (name.starts_with('-') || name.find_first_of(" \t\n") != std::string::npos)
                    wrong(inside + "names", fmt::format("\"{}\" is no package's name", name));
        } else if (kind == "service" || kind == "user") {
            names_are_words(block, inside, "name");
            if (kind == "service" && !block.contains("state") && !block.contains("enabled"))
                wrong(at + ".service", "says nothing: give state, or enabled");
            for (const auto& group : words_in(block, "groups"))
                if (group.find_first_of(" ,:") != std::string::npos)
                    wrong(inside + "groups", fmt::format("\"{}\" is no group's name", group));
        }
    }

    void body(const json::object& body) {
        int said = 0;
        for (const auto* key : {"command", "script", "push", "blocks"}) said += body.contains(key) ? 1 : 0;
        if (said != 1) wrong("", "must have exactly one of command, script, push, blocks");
        if (body.contains("command") && words_in(body, "command").empty()) wrong("command", "is empty: there is nothing to run");
        for (const auto* key : {"shell", "arguments"})
            if (body.contains(key) && !body.contains("script")) wrong(key, "has a meaning for a script only");
        for (const auto* key : {"input", "folder", "success"})
            if (body.contains(key) && !body.contains("script") && !body.contains("command"))
                wrong(key, "has a meaning for a command or script only");
        absolute(body, "", "folder");
        if (const auto* value = body.if_contains("push"); value != nullptr && value->is_object()) {
            const auto& push = value->get_object();
            absolute(push, "push.", "to");
            mode(push, "push.");
            names_are_words(push, "push.", "owner");
            names_are_words(push, "push.", "group");
            if (push.contains("content") == push.contains("from")) wrong("push", "needs either content or from");
            if (const auto from = text_in(push, "from"); !from.empty() && !is_open(from))
                if (auto bad = check_content_path(from); !bad.empty()) wrong("push.from", bad);
        }
        if (const auto* value = body.if_contains("blocks"); value != nullptr && value->is_array()) {
            const auto& blocks = value->get_array();
            for (std::size_t i = 0; i < blocks.size(); ++i)
                if (blocks[i].is_object()) block(blocks[i].get_object(), fmt::format("blocks[{}]", i));
        }
    }

    Result<Unit> verdict() {
        if (errors.empty()) return Unit{};
        Error error{Code::invalid,
                    errors.size() == 1 ? fmt::format("the ssh task is wrong: {} {}", errors.front().path, errors.front().message)
                                       : fmt::format("the ssh task has {} errors", errors.size()),
                    "docs/executors.md shows what may stand there"};
        error.fields = std::move(errors);
        return error;
    }
};

std::string without_zeros(std::string mode) {
    while (mode.size() > 3 && mode.front() == '0') mode.erase(0, 1);
    return mode;
}

std::string one_line(std::string text) {
    for (auto& c : text)
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    if (text.size() > 200) text.resize(200);
    return text;
}

/// A file's content as a field: text where it is text.
void add_content(std::vector<std::string>& fields, std::string content) {
    const bool binary = content.find('\0') != std::string::npos;
    fields.push_back(binary ? "b" : "t");
    fields.push_back(binary ? base64(content) : std::move(content));
}

Result<Block> read_block(const json::object& holder, const json::object& values) {
    Block out;
    out.kind = holder.begin()->key();
    const auto& in = holder.begin()->value().get_object();
    const auto path = text_in(in, "path");
    const auto otherwise = [&](std::string_view key, std::string_view value) {
        auto text = text_in(in, key);
        return text.empty() ? std::string(value) : text;
    };
    if (out.kind == "file" || out.kind == "template") {
        out.label = fmt::format("{} {}", out.kind, path);
        auto content = text_in(in, "content");
        const bool has = in.contains("content");
        if (out.kind == "template") {
            auto rendered = render_template(content, values);
            if (!rendered.ok()) return std::move(rendered).error().within(path);
            content = std::move(*rendered);
        }
        out.kind = "file";
        out.after = content;
        out.fields = {path, otherwise("state", "present"), has ? "1" : "0"};
        add_content(out.fields, std::move(content));
        for (auto field : {without_zeros(text_in(in, "mode")), text_in(in, "owner"), text_in(in, "group")})
            out.fields.push_back(std::move(field));
    } else if (out.kind == "line") {
        out.label = fmt::format("line {}", path);
        out.fields = {path, otherwise("state", "present"), text_in(in, "line"), text_in(in, "match"),
                      flag_in(in, "create") ? "1" : "0"};
    } else if (out.kind == "package") {
        auto names = words_in(in, "names");
        if (names.empty()) names.push_back(text_in(in, "name"));
        out.label = fmt::format("package {}", fmt::join(names, " "));
        out.fields = {otherwise("state", "present")};
        out.fields.insert(out.fields.end(), names.begin(), names.end());
    } else if (out.kind == "service") {
        out.label = fmt::format("service {}", text_in(in, "name"));
        out.fields = {text_in(in, "name"), text_in(in, "state"),
                      !in.contains("enabled")  ? ""
                      : flag_in(in, "enabled") ? "yes"
                                               : "no"};
    } else if (out.kind == "user") {
        out.label = fmt::format("user {}", text_in(in, "name"));
        const auto* uid = in.if_contains("uid");
        out.fields = {text_in(in, "name"),
                      otherwise("state", "present"),
                      uid != nullptr ? std::to_string(uid->to_number<std::int64_t>()) : "",
                      text_in(in, "group"),
                      fmt::format("{}", fmt::join(words_in(in, "groups"), ",")),
                      text_in(in, "shell"),
                      text_in(in, "home"),
                      flag_in(in, "system") ? "1" : "0",
                      text_in(in, "comment")};
    } else {
        auto argv = words_in(in, "argv");
        const auto unless = words_in(in, "unless");
        // The command's name only: its arguments may hold what nobody should read.
        out.label = fmt::format("command {}", argv.front());
        out.fields = {text_in(in, "creates"), text_in(in, "folder"), std::to_string(unless.size())};
        out.fields.insert(out.fields.end(), unless.begin(), unless.end());
        out.fields.insert(out.fields.end(), argv.begin(), argv.end());
    }
    out.label = one_line(std::move(out.label));
    return out;
}

Result<std::string> read_content(const std::filesystem::path& folder, const std::string& name) {
    if (auto bad = check_content_path(name); !bad.empty()) return Error{Code::invalid, fmt::format("push.from {}", bad)};
    const auto file = folder / name;
    std::error_code error;
    const auto real = std::filesystem::weakly_canonical(file, error), base = std::filesystem::weakly_canonical(folder, error);
    if (error || !std::filesystem::is_regular_file(real, error))
        return Error{Code::not_found, fmt::format("there is no file {} at the server", file.string()),
                     "put it there, or correct push.from"};
    if (std::mismatch(base.begin(), base.end(), real.begin(), real.end()).first != base.end())
        return Error{Code::denied, fmt::format("{} leads out of the folder of content", file.string())};
    if (std::filesystem::file_size(real, error) > max_pushed || error)
        return Error{Code::too_large, fmt::format("{} is larger than 256 MiB", file.string())};
    std::ifstream stream(real, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    if (!stream) return Error{Code::denied, fmt::format("{} cannot be read", file.string())};
    return bytes;
}

} // namespace

std::string check_content_path(std::string_view path) {
    if (path.empty() || path.front() == '/' || path.find('\0') != std::string_view::npos)
        return fmt::format("must be a path below the folder of content, got \"{}\"", path.substr(0, 80));
    for (const auto& part : std::filesystem::path(path))
        if (part == ".." || part == "." || part.empty())
            return fmt::format("must be a plain path, without \".\" and \"..\", got \"{}\"", path.substr(0, 80));
    return {};
}

Result<Unit> check_ssh_body(const json::value& body) {
    BodyCheck check;
    const auto* object = body.if_object();
    if (object == nullptr) {
        check.wrong(
            "", "must be an object with command, script, push or blocks; a command is a list of words: [systemctl, restart, ntp]");
        return check.verdict();
    }
    auto copy = *object;
    resource::check_fields(declared_body(), copy, "", check.errors);
    if (check.errors.empty()) check.body(copy);
    return check.verdict();
}

Result<SshBody> read_ssh_body(const json::value& body, const json::object& values, const std::filesystem::path& content) {
    TRY(std::ignore, check_ssh_body(body));
    const auto& in = body.get_object();
    SshBody out;
    if (in.contains("sudo")) out.sudo = flag_in(in, "sudo");
    out.folder = text_in(in, "folder");
    if (in.contains("input")) out.input = text_in(in, "input");
    if (const auto* codes = in.if_contains("success")) {
        out.success.clear();
        for (const auto& code : codes->get_array()) out.success.insert(code.to_number<int>());
    }
    if (in.contains("command")) {
        out.argv = words_in(in, "command");
        return out;
    }
    if (in.contains("script")) {
        out.what = SshBody::What::script;
        out.script = text_in(in, "script");
        out.shell = text_in(in, "shell");
        out.argv = words_in(in, "arguments");
        return out;
    }
    if (const auto* push = in.if_contains("push")) {
        const auto& from = push->get_object();
        out.what = SshBody::What::push;
        out.to = text_in(from, "to");
        out.mode = without_zeros(text_in(from, "mode"));
        out.owner = text_in(from, "owner");
        out.group = text_in(from, "group");
        out.content = text_in(from, "content");
        if (from.contains("from")) {
            TRY(out.content, read_content(content, text_in(from, "from")));
        }
        return out;
    }
    out.what = SshBody::What::blocks;
    for (const auto& block : in.at("blocks").get_array()) {
        TRY(auto one, read_block(block.get_object(), values));
        out.blocks.push_back(std::move(one));
    }
    return out;
}

} // namespace orrery::drivers
