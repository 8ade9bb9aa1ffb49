#include "cli/commands.h"
#include "cli/render.h"
#include "core/text.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>

/// edit.
namespace orrery::cli {

namespace {

/// A file in a folder of its own that only the user can read. The destructor removes it, unless `keep` was called.
class EditedFile {
public:
    static Result<std::unique_ptr<EditedFile>> make(const Streams& streams, const std::string& name) {
        auto folder = streams.variable("TMPDIR");
        folder = (folder.empty() ? "/tmp" : folder) + "/orrery-edit-XXXXXX";
        if (::mkdtemp(folder.data()) == nullptr)
            return Error{Code::unavailable, fmt::format("cannot create a folder {}: {}", folder, std::strerror(errno)),
                         "set TMPDIR to a folder that you may write to"};
        return std::unique_ptr<EditedFile>(new EditedFile(folder, name));
    }
    ~EditedFile() {
        std::error_code ignored;
        if (!kept_) std::filesystem::remove_all(folder_, ignored);
    }
    EditedFile(const EditedFile&) = delete;
    EditedFile& operator=(const EditedFile&) = delete;

    const std::string& path() const { return path_; }
    void keep() { kept_ = true; }
    Result<Unit> write(std::string_view text) const {
        std::ofstream file(path_, std::ios::trunc);
        file << text << std::flush;
        if (file.good()) return Unit{};
        return Error{Code::no_space, fmt::format("{} cannot be written", path_), "check the free disk space"};
    }
    Result<std::string> read() const {
        std::ifstream file(path_);
        std::string text{std::istreambuf_iterator<char>(file), {}};
        if (file.bad() || (text.empty() && !std::filesystem::exists(path_)))
            return Error{Code::invalid, fmt::format("{} does not exist after the editor exited", path_)};
        return text;
    }

private:
    EditedFile(std::string folder, const std::string& name) : folder_(std::move(folder)), path_(folder_ + "/" + name + ".yaml") {}
    std::string folder_, path_;
    bool kept_ = false;
};

/// The editable part of an object, without status and times.
std::string editable_yaml(const json::value& object) {
    json::object shown;
    for (const std::string_view part : {"kind", "name", "labels", "spec"})
        if (const auto* value = at_path(object, part)) shown[part] = *value;
    return to_yaml(shown);
}

/// The text after the comments at its top.
std::string_view without_comments(std::string_view text) {
    while (text.starts_with('#')) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    return text;
}

std::string comments_of(const Error& error) {
    std::string out = fmt::format("# error: {}\n", printable(error.message));
    for (const auto& field : error.fields) out += fmt::format("#   {}: {}\n", printable(field.path), printable(field.message));
    if (!error.remedy.empty()) out += fmt::format("# remedy: {}\n", printable(error.remedy));
    return out + "# Save the file unchanged to cancel.\n";
}

/// Can the user correct the error in the editor?
bool is_correctable(const Error& error) {
    return error.code == Code::invalid || error.code == Code::conflict || error.code == Code::too_large ||
           error.code == Code::not_found;
}

class Edit {
public:
    Edit(Invocation& invocation, Api& api, const KindView& kind, std::string name)
        : invocation_(invocation), api_(api), kind_(kind), name_(std::move(name)) {}

    Result<int> run() {
        TRY(auto current, api_.get(kind_.route(name_)));
        etag_ = current.headers.get("ETag");
        TRY(const auto file, EditedFile::make(invocation_.streams, name_));
        auto given = editable_yaml(current.body);
        std::string comments =
            fmt::format("# {}: edit, save and close. Lines that start with # are ignored.\n", kind_.title(name_));
        std::optional<Error> refused;
        for (;;) {
            TRY(std::ignore, file->write(comments + given));
            TRY(std::ignore, invocation_.streams.run_editor(editor(), file->path()));
            TRY(const auto text, file->read());
            const auto edited = std::string(without_comments(text));
            if (edited == given) return ended_unchanged(refused);
            auto written = put(edited);
            if (written.ok()) {
                print_outcome(invocation_, kind_, name_, written->body);
                return exit_code::ok;
            }
            if (!is_correctable(written.error())) {
                file->keep();
                return std::move(written).error().within(
                    fmt::format("the resource is unchanged and your text is in {}", file->path()));
            }
            refused = std::move(written).error();
            comments = comments_of(*refused);
            given = edited;
        }
    }

private:
    std::string editor() const {
        for (const auto* variable : {"VISUAL", "EDITOR"})
            if (auto value = invocation_.streams.variable(variable); !value.empty()) return value;
        return "vi";
    }

    Result<int> ended_unchanged(const std::optional<Error>& refused) const {
        if (refused) return Error{refused->code, fmt::format("{} was not changed: {}", kind_.title(name_), refused->message)};
        if (!invocation_.quiet()) invocation_.streams.out << printable(kind_.title(name_)) << " unchanged\n";
        return exit_code::ok;
    }

    /// Replaces exactly the revision that the user has seen.
    Result<Answer> put(const std::string& text) {
        TRY(const auto documents, parse_yaml(text));
        if (documents.size() != 1) return Error{Code::invalid, fmt::format("the text has {} documents, not one", documents.size())};
        net::Headers headers;
        if (!etag_.empty()) headers.set("If-Match", etag_);
        auto answer = api_.call("PUT", kind_.route(name_) + write_query(invocation_), documents.front().value, headers);
        if (answer.ok() || api_.last_status() != 412) return answer;
        return changed_meanwhile(documents.front().value);
    }

    /// The changes that saving now would make, as an error. The next save is based on the current revision.
    Error changed_meanwhile(const json::value& document) {
        auto current = api_.get(kind_.route(name_));
        if (!current.ok()) return std::move(current).error();
        auto changes = changes_against_current(api_, kind_, name_, document);
        if (!changes.ok()) return std::move(changes).error();
        etag_ = current->headers.get("ETag");
        Error error{Code::conflict, "another user changed the resource while you edited it; saving this text would change",
                    "copy the current values (on the left) that you want to keep, then save again"};
        error.fields = std::move(*changes);
        return error;
    }

    Invocation& invocation_;
    Api& api_;
    const KindView& kind_;
    std::string name_, etag_;
};

} // namespace

Result<int> run_edit(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto selection, parse_selection(invocation, invocation.text("KIND"), invocation.all("NAME")));
    if (selection.names.size() != 1)
        return invocation.usage_error(fmt::format("the name of the {} is missing", selection.kind->singular()),
                                      fmt::format("orrery edit {} NAME", selection.kind->singular()));
    if (!invocation.streams.run_editor)
        return Error{Code::unsupported, "there is no terminal for the editor", "use get -o yaml and apply -f"};
    return Edit(invocation, *api, *selection.kind, selection.names.front()).run();
}

} // namespace orrery::cli
