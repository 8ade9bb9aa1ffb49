#pragma once

#include "core/result.h"

#include <boost/json/object.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace orrery::cli {

namespace json = boost::json;

struct KindField {
    std::string path, type, doc, reference;
    bool required = false, secret = false, immutable = false;
    json::value otherwise;
    std::vector<std::string> one_of;
};

struct KindColumn {
    std::string title, path;
    bool wide = false;
};

/// A kind, as the server describes it.
struct KindView {
    std::string kind, plural, doc, example;
    std::vector<std::string> names, verbs, indexed;
    std::vector<KindColumn> columns;
    std::vector<KindField> fields;

    /// What it is called in front of a name: "node".
    std::string singular() const;
    /// "node/n1"
    std::string title(std::string_view name) const { return singular() + "/" + std::string(name); }
    const KindField* field(std::string_view path) const;
    /// "/v1/nodes" or "/v1/nodes/n1", encoded.
    std::string route(std::string_view name = {}) const;
};

/// All kinds of a server.
class KindCatalog {
public:
    /// From the answer to GET /v1/kinds; what it does not know it leaves out.
    static Result<KindCatalog> read(const json::value& answer);
    /// By "Node", "nodes", "node" or another name of it, whatever the case. `not_found` with the nearest as remedy.
    Result<const KindView*> find(std::string_view name) const;
    const std::vector<KindView>& all() const { return kinds_; }
    /// Kinds in an order in which whatever is referred to comes first.
    std::vector<const KindView*> in_order() const;

private:
    std::vector<KindView> kinds_;
};

/// The member at "spec.ssh.port" of an object, or null.
const json::value* at_path(const json::value& object, std::string_view path);
/// A member that is a text, or "".
std::string text_of(const json::value& object, std::string_view path);

} // namespace orrery::cli
