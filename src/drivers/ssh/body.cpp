#include "drivers/ssh/body.h"

#include "core/json_fields.h"
#include "core/truncate.h"
#include "drivers/ssh/fields.h"
#include "drivers/ssh/program_values.h"
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

Field follow_field() {
    return resource::boolean("follow", "Follow symbolic links that other users own, and a link at the path itself. Absent: such a "
                                       "link is an error.");
}

Field attributes(Field field) {
    return std::move(field)
        .with(resource::text("mode", "Permissions, in octal.").format(resource::Format::one_line))
        .with(resource::text("owner", "Who owns it, by name or number.").format(resource::Format::one_line))
        .with(resource::text("group", "Its group, by name or number.").format(resource::Format::one_line))
        .with(follow_field());
}

Field path_field(std::string name, std::string doc) {
    return resource::text(std::move(name), std::move(doc)).required().format(resource::Format::one_line).between(1, 4096);
}

Field text_list(std::string name, std::string doc) {
    return resource::list(std::move(name), std::move(doc),
                          resource::text("argument", "An argument.").format(resource::Format::data));
}

Field block_fields() {
    using namespace resource;
    return object("block", "One of these.")
        .with(attributes(object("file", "A file or folder.")
                             .with(path_field("path", "Where."))
                             .with(text("content", "Its content; absent: any content.").format(Format::data))
                             .with(text("state", "present, directory or absent.").one_of({"present", "directory", "absent"}))))
        .with(attributes(object("template", "A file made of a template and the task's values.")
                             .with(path_field("path", "Where."))
                             .with(text("content", "The template.").required().format(Format::data))))
        .with(object("line", "A line in a file.")
                  .with(path_field("path", "Which file."))
                  .with(text("line", "The line.").required().format(Format::one_line))
                  .with(text("match", "The line to replace: the last one that matches this extended regular expression.")
                            .format(Format::one_line))
                  .with(boolean("create", "Create the file where it does not exist."))
                  .with(follow_field())
                  .with(text("state", "present or absent.").one_of({"present", "absent"})))
        .with(
            object("package", "Packages.")
                .with(list("names", "Which.", text("name", "A package.").format(Format::one_line).between(1, 256)).between(1, 500))
                .with(text("name", "Which, where it is one.").format(Format::one_line).between(1, 256))
                .with(text("state", "present, latest or absent.").one_of({"present", "latest", "absent"})))
        .with(object("service", "A service of the node.")
                  .with(text("name", "Which.").required().format(Format::one_line).between(1, 256))
                  .with(text("state", "running, stopped, restarted or reloaded.")
                            .one_of({"running", "stopped", "restarted", "reloaded"}))
                  .with(boolean("enabled", "Whether it starts at boot.")))
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
        .with(object("command", "A command that runs only where it is needed.")
                  .with(text_list("argv", "The command and its arguments; not parsed by a shell.").required().between(1, 1000))
                  .with(text("creates", "Not run where this file exists.").format(Format::one_line))
                  .with(text_list("unless", "Not run where this command succeeds."))
                  .with(text("folder", "Where it runs.").format(Format::one_line)));
}

Field body_fields() {
    using namespace resource;
    return object("ssh", "What to run on the node.")
        .with(text_list("command", "A command and its arguments; not parsed by a shell."))
        .with(text("script", "A script."))
        .with(text("shell", "What runs the script: a path or name, as in python3. Absent: the node's sh.").format(Format::one_line))
        .with(text_list("arguments", "The script's arguments."))
        .with(text("input", "Standard input of the command or script.").format(Format::data))
        .with(text("folder", "Where it runs.").format(Format::one_line))
        .with(list("success", "Exit codes that mean success.", integer("code", "One.").between(0, 255)).between(1, 256))
        .with(attributes(object("push", "A file, written atomically.")
                             .with(path_field("to", "Where."))
                             .with(text("content", "Its content.").format(Format::data))
                             .with(text("from", "Or the file with its content, below the content folder of the server.")
                                       .format(Format::one_line))))
        .with(list("blocks", "Idempotent blocks, applied in order.", block_fields()).between(1, 500))
        .with(boolean("sudo", "Run as root, with sudo. Absent: as the Node declares."));
}

const Field& declared_body() {
    static const Field field = body_fields();
    return field;
}

class BodyCheck {
public:
    explicit BodyCheck(BodyStage stage) : stage_(stage) {}
    std::vector<FieldError> errors;

    void wrong(std::string path, std::string message) { errors.push_back({std::move(path), std::move(message)}); }
    void absolute(const json::object& in, const std::string& at, std::string_view key) {
        const auto path = text_at(in, key);
        if (path.empty() || has_reference(path, stage_)) return;
        if (!path.starts_with('/'))
            wrong(fmt::format("{}{}", at, key), fmt::format("must be an absolute path, got \"{}\"", truncate(path, 80)));
        else if (path.ends_with('/') && path.size() > 1)
            wrong(fmt::format("{}{}", at, key), "must not end with a slash");
    }
    void mode(const json::object& in, const std::string& at) {
        const auto text = text_at(in, "mode");
        if (text.empty() || has_reference(text, stage_)) return;
        if (text.size() < 3 || text.size() > 5 || text.find_first_not_of("01234567") != std::string::npos)
            wrong(at + "mode", fmt::format("must be octal permissions in quotes, as in \"0644\", got \"{}\"", truncate(text, 20)));
    }
    void check_name(const json::object& in, const std::string& at, std::string_view key) {
        const auto text = text_at(in, key);
        if (!text.empty() && (text.front() == '-' || text.find_first_of(" \t,:") != std::string::npos))
            wrong(fmt::format("{}{}", at, key), fmt::format("is not a valid name: \"{}\"", truncate(text, 60)));
    }

    /// Package managers install a path as a file, expand patterns, and remove a package whose name is followed by a minus sign.
    void package(std::string_view name, std::string path) {
        if (name.empty() || has_reference(name, stage_)) return;
        const auto is_plain = [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                   std::string_view("+-._:~=@/").find(c) != std::string_view::npos;
        };
        const bool first = (name[0] >= 'a' && name[0] <= 'z') || (name[0] >= 'A' && name[0] <= 'Z') ||
                           (name[0] >= '0' && name[0] <= '9') || name[0] == '@' || name[0] == '_';
        if (!first || name.back() == '-' || !std::all_of(name.begin(), name.end(), is_plain) || name.ends_with(".deb") ||
            name.ends_with(".rpm") || name.ends_with(".apk"))
            wrong(std::move(path), fmt::format("\"{}\" is not the name of a package", truncate(name, 80)));
    }

    void block(const json::object& holder, const std::string& at) {
        if (holder.size() != 1) return wrong(at, "must have exactly one of file, template, line, package, service, user, command");
        const std::string kind(holder.begin()->key());
        if (!holder.begin()->value().is_object()) return;
        const auto& block = holder.begin()->value().get_object();
        const auto inside = fmt::format("{}.{}.", at, kind);
        absolute(block, inside, "path");
        mode(block, inside);
        check_name(block, inside, "owner");
        check_name(block, inside, "group");
        if (kind == "template") {
            if (auto good = check_template(text_at(block, "content")); !good.ok()) wrong(inside + "content", good.error().message);
        } else if (kind == "file") {
            if (block.contains("content") && block.contains("state") && text_at(block, "state") != "present")
                wrong(inside + "content", fmt::format("is not allowed with state {}", text_at(block, "state")));
        } else if (kind == "package") {
            if (block.contains("name") == block.contains("names")) wrong(at + ".package", "needs either name or names");
            package(text_at(block, "name"), inside + "name");
            for (const auto& name : texts_at(block, "names")) package(name, inside + "names");
        } else if (kind == "service" || kind == "user") {
            check_name(block, inside, "name");
            // Service managers take a path for the file of a unit or script.
            if (kind == "service" && text_at(block, "name").find('/') != std::string::npos &&
                !has_reference(text_at(block, "name"), stage_))
                wrong(inside + "name", fmt::format("is not the name of a service: \"{}\"", truncate(text_at(block, "name"), 60)));
            if (kind == "service" && !block.contains("state") && !block.contains("enabled"))
                wrong(at + ".service", "is empty: give state or enabled");
            for (const auto& group : texts_at(block, "groups"))
                if (group.find_first_of(" ,:") != std::string::npos)
                    wrong(inside + "groups", fmt::format("\"{}\" is not the name of a group", group));
        }
    }

    void body(const json::object& body) {
        int given = 0;
        for (const auto* key : {"command", "script", "push", "blocks"}) given += body.contains(key) ? 1 : 0;
        if (given != 1) wrong("", "must have exactly one of command, script, push, blocks");
        if (body.contains("command") && texts_at(body, "command").empty()) wrong("command", "is empty: there is nothing to run");
        for (const auto* key : {"shell", "arguments"})
            if (body.contains(key) && !body.contains("script")) wrong(key, "is allowed for a script only");
        for (const auto* key : {"input", "folder", "success"})
            if (body.contains(key) && !body.contains("script") && !body.contains("command"))
                wrong(key, "is allowed for a command or script only");
        absolute(body, "", "folder");
        if (const auto* value = body.if_contains("push"); value != nullptr && value->is_object()) {
            const auto& push = value->get_object();
            absolute(push, "push.", "to");
            mode(push, "push.");
            check_name(push, "push.", "owner");
            check_name(push, "push.", "group");
            if (push.contains("content") == push.contains("from")) wrong("push", "needs either content or from");
            if (const auto from = text_at(push, "from"); !from.empty() && !has_reference(from, stage_))
                if (auto bad = check_content_path(from); !bad.empty()) wrong("push.from", bad);
        }
        if (const auto* value = body.if_contains("blocks"); value != nullptr && value->is_array()) {
            const auto& blocks = value->get_array();
            for (std::size_t i = 0; i < blocks.size(); ++i)
                if (blocks[i].is_object()) block(blocks[i].get_object(), fmt::format("blocks[{}]", i));
        }
    }

    Result<Unit> result() {
        if (errors.empty()) return Unit{};
        Error error{Code::invalid,
                    errors.size() == 1 ? fmt::format("the ssh task is wrong: {} {}", errors.front().path, errors.front().message)
                                       : fmt::format("the ssh task has {} errors", errors.size()),
                    "docs/executors.md lists the fields"};
        error.fields = std::move(errors);
        return error;
    }

private:
    BodyStage stage_;
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

/// The content of a file as fields: as text where it has no NUL.
void add_content(std::vector<std::string>& fields, std::string content) {
    const bool binary = content.find('\0') != std::string::npos;
    fields.push_back(binary ? "b" : "t");
    fields.push_back(binary ? base64(content) : std::move(content));
}

std::string text_or(const json::object& in, std::string_view key, std::string_view default_text) {
    auto text = text_at(in, key);
    return text.empty() ? std::string(default_text) : text;
}

/// A `file`, or a `template`, which becomes a file.
Result<Block> read_file_block(const std::string& kind, const json::object& in, const json::object& values) {
    const auto path = text_at(in, "path");
    auto content = text_at(in, "content");
    if (kind == "template") {
        auto rendered = render_template(content, values);
        if (!rendered.ok()) return std::move(rendered).error().within(path);
        content = std::move(*rendered);
    }
    Block out;
    out.kind = "file";
    out.label = fmt::format("{} {}", kind, path);
    out.after = content;
    out.fields = {path, text_or(in, "state", "present"), in.contains("content") ? "1" : "0"};
    add_content(out.fields, std::move(content));
    for (auto field : {without_zeros(text_at(in, "mode")), text_at(in, "owner"), text_at(in, "group")})
        out.fields.push_back(std::move(field));
    out.fields.emplace_back(flag_at(in, "follow") ? "1" : "0");
    return out;
}

Block read_user_block(const json::object& in) {
    const auto* uid = in.if_contains("uid");
    return {"user",
            fmt::format("user {}", text_at(in, "name")),
            {text_at(in, "name"), text_or(in, "state", "present"),
             uid != nullptr ? std::to_string(uid->to_number<std::int64_t>()) : "", text_at(in, "group"),
             fmt::format("{}", fmt::join(texts_at(in, "groups"), ",")), text_at(in, "shell"), text_at(in, "home"),
             flag_at(in, "system") ? "1" : "0", text_at(in, "comment")},
            {}};
}

Block read_command_block(const json::object& in) {
    const auto argv = texts_at(in, "argv");
    const auto unless = texts_at(in, "unless");
    // Only the name of the command: its arguments may be confidential.
    Block out{"command",
              fmt::format("command {}", argv.front()),
              {text_at(in, "creates"), text_at(in, "folder"), std::to_string(unless.size())},
              {}};
    out.fields.insert(out.fields.end(), unless.begin(), unless.end());
    out.fields.insert(out.fields.end(), argv.begin(), argv.end());
    return out;
}

Block read_package_block(const json::object& in) {
    auto names = texts_at(in, "names");
    if (names.empty()) names.push_back(text_at(in, "name"));
    Block out{"package", fmt::format("package {}", fmt::join(names, " ")), {text_or(in, "state", "present")}, {}};
    out.fields.insert(out.fields.end(), names.begin(), names.end());
    return out;
}

Block read_line_block(const json::object& in) {
    const auto path = text_at(in, "path");
    return {"line",
            fmt::format("line {}", path),
            {path, text_or(in, "state", "present"), text_at(in, "line"), text_at(in, "match"), flag_at(in, "create") ? "1" : "0",
             flag_at(in, "follow") ? "1" : "0"},
            {}};
}

Block read_service_block(const json::object& in) {
    const std::string enabled = !in.contains("enabled") ? "" : flag_at(in, "enabled") ? "yes" : "no";
    return {"service", fmt::format("service {}", text_at(in, "name")), {text_at(in, "name"), text_at(in, "state"), enabled}, {}};
}

Result<Block> read_block(const json::object& holder, const json::object& values) {
    const std::string kind(holder.begin()->key());
    const auto& in = holder.begin()->value().get_object();
    Block out;
    if (kind == "file" || kind == "template") {
        TRY(out, read_file_block(kind, in, values));
    } else if (kind == "line") {
        out = read_line_block(in);
    } else if (kind == "package") {
        out = read_package_block(in);
    } else if (kind == "service") {
        out = read_service_block(in);
    } else if (kind == "user") {
        out = read_user_block(in);
    } else {
        out = read_command_block(in);
    }
    out.label = one_line(std::move(out.label));
    return out;
}

Result<std::string> read_pushed(const std::filesystem::path& folder, const std::string& name) {
    TRY(const auto real, resolve_content(folder, "push.from", name));
    std::error_code error;
    if (!std::filesystem::is_regular_file(real, error))
        return Error{Code::not_found, fmt::format("the server has no file {}", (folder / name).string()),
                     "put it there, or correct push.from"};
    if (std::filesystem::file_size(real, error) > max_pushed || error)
        return Error{Code::too_large, fmt::format("{} is larger than 256 MiB", (folder / name).string())};
    std::ifstream stream(real, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    if (!stream) return Error{Code::denied, fmt::format("{} cannot be read", (folder / name).string())};
    return bytes;
}

} // namespace

std::string check_content_path(std::string_view path) {
    if (path.empty() || path.front() == '/' || path.find('\0') != std::string_view::npos)
        return fmt::format("must be a path below the folder of content, got \"{}\"", truncate(path, 80));
    for (const auto& part : std::filesystem::path(path))
        if (part == ".." || part == "." || part.empty())
            return fmt::format("must be a plain path, without \".\" and \"..\", got \"{}\"", truncate(path, 80));
    return {};
}

Result<std::filesystem::path> resolve_content(const std::filesystem::path& folder, std::string_view field,
                                              const std::string& name) {
    if (auto bad = check_content_path(name); !bad.empty()) return Error{Code::invalid, fmt::format("{} {}", field, bad)};
    const auto file = folder / name;
    std::error_code error;
    auto real = std::filesystem::canonical(file, error);
    if (error)
        return Error{Code::not_found, fmt::format("{}: the server has no {}", field, file.string()),
                     fmt::format("put it there, or correct {}", field)};
    const auto base = std::filesystem::weakly_canonical(folder, error);
    if (error || std::mismatch(base.begin(), base.end(), real.begin(), real.end()).first != base.end())
        return Error{Code::denied, fmt::format("{}: {} is a link that leads out of the folder of content", field, file.string()),
                     fmt::format("copy what it leads to into {}", folder.string())};
    return real;
}

Result<Unit> check_ssh_body(const json::value& body, BodyStage stage) {
    BodyCheck check(stage);
    const auto* object = body.if_object();
    if (object == nullptr) {
        check.wrong("", "must be an object with command, script, push or blocks; a command is a list: [systemctl, restart, ntp]");
        return check.result();
    }
    auto copy = *object;
    resource::check_fields(declared_body(), copy, "", check.errors);
    // First: an unsafe reference may also make a template invalid, and then the message about the reference helps.
    if (check.errors.empty() && stage == BodyStage::written)
        if (auto separated = separate_ssh_values(body); !separated.ok()) return std::move(separated).error();
    if (check.errors.empty()) check.body(copy);
    return check.result();
}

Result<SshBody> read_ssh_body(const json::value& body, const json::object& values, const std::filesystem::path& content) {
    TRY(std::ignore, check_ssh_body(body, BodyStage::bound));
    const auto& in = body.get_object();
    SshBody out;
    if (in.contains("sudo")) out.sudo = flag_at(in, "sudo");
    out.folder = text_at(in, "folder");
    if (in.contains("input")) out.input = text_at(in, "input");
    if (const auto* codes = in.if_contains("success")) {
        out.success.clear();
        for (const auto& code : codes->get_array()) out.success.insert(code.to_number<int>());
    }
    if (in.contains("command")) {
        out.argv = texts_at(in, "command");
        return out;
    }
    if (in.contains("script")) {
        out.type = SshBody::Type::script;
        out.script = text_at(in, "script");
        out.shell = text_at(in, "shell");
        out.argv = texts_at(in, "arguments");
        return out;
    }
    if (const auto* push = in.if_contains("push")) {
        const auto& from = push->get_object();
        out.type = SshBody::Type::push;
        out.to = text_at(from, "to");
        out.mode = without_zeros(text_at(from, "mode"));
        out.owner = text_at(from, "owner");
        out.group = text_at(from, "group");
        out.follow = flag_at(from, "follow");
        out.content = text_at(from, "content");
        if (from.contains("from")) {
            TRY(out.content, read_pushed(content, text_at(from, "from")));
        }
        return out;
    }
    out.type = SshBody::Type::blocks;
    for (const auto& block : in.at("blocks").get_array()) {
        TRY(auto one, read_block(block.get_object(), values));
        out.blocks.push_back(std::move(one));
    }
    return out;
}

Task<std::vector<FieldError>> missing_content(Pool& pool, std::filesystem::path content, std::vector<FieldError> named) {
    std::erase_if(named, [](const FieldError& one) { return one.message.empty() || one.message.find("${") != std::string::npos; });
    if (named.empty()) co_return named;
    auto work = [content = std::move(content), named = std::move(named)]() mutable -> Result<std::vector<FieldError>> {
        std::erase_if(named, [&](const FieldError& one) {
            std::error_code error;
            return !check_content_path(one.message).empty() || std::filesystem::exists(content / one.message, error);
        });
        for (auto& one : named)
            one.message = fmt::format("the server has no {}: put it into {} (setting jobs.content), or correct the name",
                                      one.message, content.string());
        return std::move(named);
    };
    co_return co_await blocking(pool, std::move(work));
}

} // namespace orrery::drivers
