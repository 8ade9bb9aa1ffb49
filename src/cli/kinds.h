#pragma once

#include "core/result.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace orrery::cli {

namespace json = boost::json;

struct KindField {
    std::string path, type, doc, reference;
    bool required = false, secret = false, immutable = false;
    json::value default_value;
    std::vector<std::string> one_of;
    std::vector<std::string> forms = {}; ///< the types that a field of type any accepts
};

struct KindColumn {
    std::string title, path;
    bool wide = false;
};

/// The description of a kind by the server.
struct KindView {
    std::string kind, plural, doc, example;
    std::vector<std::string> names, verbs, indexed;
    std::vector<KindColumn> columns;
    std::vector<KindField> fields;

    /// The kind in lower case, as in titles: "node".
    std::string singular() const;
    /// "node/n1"
    std::string title(std::string_view name) const { return singular() + "/" + std::string(name); }
    const KindField* field(std::string_view path) const;
    /// "/v1/nodes" or "/v1/nodes/n1", encoded.
    std::string route(std::string_view name = {}) const;
};

/// The kinds of a server.
class KindCatalog {
public:
    /// Parses the response of GET /v1/kinds; ignores unknown members.
    static Result<KindCatalog> read(const json::value& answer);
    /// Finds a kind by name, plural or short name, ignoring case. `not_found` with the most similar kind as remedy.
    Result<const KindView*> find(std::string_view name) const;
    const std::vector<KindView>& all() const { return kinds_; }
    /// The kinds in an order in which a kind comes before the kinds that refer to it.
    std::vector<const KindView*> in_order() const;

private:
    std::vector<KindView> kinds_;
};

/// The member at "spec.ssh.port" of an object, or null.
const json::value* at_path(const json::value& object, std::string_view path);
/// The string at a path, or "".
std::string text_of(const json::value& object, std::string_view path);
/// Is there `true` at the path?
bool is_true(const json::value& object, std::string_view path);
/// The array at a path; empty if there is no array.
const json::array& list_at(const json::value& object, std::string_view path);

} // namespace orrery::cli
