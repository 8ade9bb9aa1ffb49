#include "cli/gslb_import_build.h"

#include <cctype>
#include <charconv>

namespace orrery::cli {

namespace {

/// A constant of Lua: a text, a number, or a table of values and named values.
struct LuaValue {
    enum class Kind { text, number, table, other };
    Kind kind = Kind::other;
    std::string text; ///< of numbers too
    std::vector<LuaValue> items;
    std::map<std::string, LuaValue> named;
};

/// A call with constants: name(value, ...). Nothing else of the language is read.
class LuaReader {
public:
    explicit LuaReader(std::string_view text) : text_(text) {}

    std::optional<std::pair<std::string, std::vector<LuaValue>>> call() {
        skip();
        if (rest().starts_with(';')) ++at_;
        skip();
        if (rest().starts_with("return ")) at_ += 7;
        const auto name = word();
        if (name.empty() || !take('(')) return std::nullopt;
        std::vector<LuaValue> out;
        if (take(')')) return done(name, std::move(out));
        while (out.size() < 16) {
            auto one = value(0);
            if (!one) return std::nullopt;
            out.push_back(std::move(*one));
            if (take(')')) return done(name, std::move(out));
            if (!take(',')) return std::nullopt;
        }
        return std::nullopt;
    }

private:
    std::optional<std::pair<std::string, std::vector<LuaValue>>> done(const std::string& name, std::vector<LuaValue> out) {
        skip();
        if (at_ != text_.size()) return std::nullopt; // more than one call
        return std::pair(name, std::move(out));
    }
    std::string_view rest() const { return text_.substr(at_); }
    void skip() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    }
    bool take(char c) {
        skip();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    std::string word() {
        skip();
        const auto begin = at_;
        while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) ++at_;
        return std::string(text_.substr(begin, at_ - begin));
    }

    std::optional<LuaValue> value(int depth) {
        skip();
        if (at_ >= text_.size() || depth > 8) return std::nullopt;
        const char c = text_[at_];
        if (c == '\'' || c == '"') return quoted(c);
        if (c == '{') return table(depth);
        if (c == '-' || std::isdigit(static_cast<unsigned char>(c)) != 0) {
            const auto begin = at_++;
            while (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '.')) ++at_;
            return LuaValue{LuaValue::Kind::number, std::string(text_.substr(begin, at_ - begin)), {}, {}};
        }
        const auto name = word();
        if (name == "true" || name == "false") return LuaValue{LuaValue::Kind::text, name, {}, {}};
        return std::nullopt;
    }

    std::optional<LuaValue> quoted(char quote) {
        LuaValue out{LuaValue::Kind::text, {}, {}, {}};
        for (++at_; at_ < text_.size(); ++at_) {
            if (text_[at_] == quote) {
                ++at_;
                return out;
            }
            if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
            out.text += text_[at_];
        }
        return std::nullopt;
    }

    std::optional<LuaValue> table(int depth) {
        LuaValue out{LuaValue::Kind::table, {}, {}, {}};
        ++at_;
        while (!take('}')) {
            const auto before = at_;
            const auto name = word();
            if (!name.empty() && take('=')) {
                auto one = value(depth + 1);
                if (!one) return std::nullopt;
                out.named.insert_or_assign(name, std::move(*one));
            } else {
                at_ = before;
                auto one = value(depth + 1);
                if (!one || out.items.size() >= 1024) return std::nullopt;
                out.items.push_back(std::move(*one));
            }
            if (!take(',') && !take(';')) {
                if (take('}')) return out;
                return std::nullopt;
            }
        }
        return out;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

/// Words and strings of a line of a zone file; strings without their quotes. `;` begins a comment.
std::vector<std::pair<std::string, bool>> zone_words(std::string_view line) {
    std::vector<std::pair<std::string, bool>> out;
    for (std::size_t at = 0; at < line.size();) {
        if (line[at] == ';') break;
        if (line[at] == ' ' || line[at] == '\t' || line[at] == '(' || line[at] == ')' || line[at] == '\r') {
            ++at;
            continue;
        }
        std::string word;
        if (line[at] == '"') {
            for (++at; at < line.size() && line[at] != '"'; ++at) {
                if (line[at] == '\\' && at + 1 < line.size()) ++at;
                word += line[at];
            }
            ++at;
            out.emplace_back(std::move(word), true);
            continue;
        }
        while (at < line.size() && std::string_view(" \t();\r").find(line[at]) == std::string_view::npos) word += line[at++];
        out.emplace_back(std::move(word), false);
    }
    return out;
}

class PowerdnsLua {
public:
    PowerdnsLua(std::string_view text, std::string_view origin) : text_(text), zone_(plain_name(origin)), origin_(zone_) {}

    Result<Imported> run() {
        int line_number = 0;
        for (std::size_t start = 0; start < text_.size();) {
            const auto end = std::min(text_.find('\n', start), text_.size());
            line(text_.substr(start, end - start), ++line_number);
            start = end + 1;
        }
        if (found_ == 0)
            return Error{Code::invalid, "there are no LUA records in it", "give a zone file, as pdnsutil list-zone prints it"};
        for (auto& [name, parts] : by_name_) balance(name, parts);
        if (!zone_.empty()) add_zone_of(out_, text_, zone_, {"lua"});
        return out_.take();
    }

private:
    struct Part {
        std::string type, function;
        std::vector<LuaValue> arguments;
        int line = 0;
        std::int64_t ttl = 60;
    };

    void line(std::string_view text, int number) {
        const auto words = zone_words(text);
        if (words.empty()) return;
        if (words[0].first == "$ORIGIN" && words.size() > 1) {
            origin_ = plain_name(words[1].first);
            return;
        }
        if (words[0].first == "$TTL" && words.size() > 1) {
            ttl_ = seconds_of(words[1].first, ttl_);
            return;
        }
        std::size_t at = 0;
        if (text[0] != ' ' && text[0] != '\t') owner_ = whole(words[at++].first);
        std::int64_t ttl = ttl_;
        for (; at < words.size() && !words[at].second; ++at) {
            const auto& word = words[at].first;
            if (lowered(word) == "lua") break;
            if (!word.empty() && word[0] >= '0' && word[0] <= '9')
                ttl = seconds_of(word, ttl);
            else if (lowered(word) != "in")
                return; // another type: not ours
        }
        if (at + 2 >= words.size() || lowered(words[at].first) != "lua") return;
        ++found_;
        std::string program;
        for (std::size_t more = at + 2; more < words.size(); ++more) program += words[more].first;
        const auto type = words[at + 1].first;
        const auto place = fmt::format("line {}, {} {}", number, owner_, type);
        if (type != "A" && type != "AAAA") return out_.leave_out(fmt::format("{}: only A and AAAA are carried over", place));
        auto call = LuaReader(program).call();
        if (!call)
            return out_.leave_out(
                fmt::format("{}: \"{}\" is more than one call with constants; write what it means", place, program.substr(0, 80)));
        by_name_[owner_].push_back({type, call->first, std::move(call->second), number, ttl});
    }

    std::string whole(const std::string& name) const {
        if (name == "@") return origin_;
        if (name.ends_with('.')) return plain_name(name);
        return lowered(name) + (origin_.empty() ? "" : "." + origin_);
    }

    void balance(const std::string& name, const std::vector<Part>& parts) {
        const auto& first = parts.front();
        std::vector<PoolDraft> pools;
        json::object spec{{"fqdn", name}, {"ttl", json::object{{"max", fmt::format("{}s", std::max<std::int64_t>(first.ttl, 1))}}}};
        if (!zone_.empty()) spec["zone"] = zone_;
        for (const auto& part : parts) {
            if (part.function != first.function) {
                out_.leave_out(fmt::format("line {}, {}: {} beside {} at one name; only the first is carried over", part.line, name,
                                           part.function, first.function));
                continue;
            }
            if (!one(name, part, pools, spec)) return;
        }
        json::array uses;
        for (const auto& pool : pools) uses.emplace_back(json::object{{"pool", pool.add_to(out_)}});
        if (uses.empty()) return;
        spec["pools"] = std::move(uses);
        out_.add("LoadBalancer", name, std::move(spec));
    }

    /// False: the whole name is left out.
    bool one(const std::string& name, const Part& part, std::vector<PoolDraft>& pools, json::object& spec) {
        const auto& given = part.arguments;
        const bool monitored = part.function == "ifportup" || part.function == "ifurlup";
        const bool by_client = part.function == "pickwhashed" || part.function == "pickchashed";
        const bool weights = part.function == "pickwrandom" || part.function == "picknamehashed" || by_client;
        const bool plain = part.function == "pickrandom" || part.function == "pickhashed" || part.function == "all";
        const auto list_at = monitored ? 1U : 0U;
        if ((!monitored && !weights && !plain) || given.size() <= list_at || given[list_at].kind != LuaValue::Kind::table) {
            out_.leave_out(fmt::format("line {}, {}: {} has no counterpart", part.line, name, part.function));
            return false;
        }
        const auto& list = given[list_at];
        const bool groups = monitored && !list.items.empty() && list.items.front().kind == LuaValue::Kind::table;
        std::vector<const LuaValue*> tiers;
        if (groups)
            for (const auto& item : list.items) tiers.push_back(&item);
        else
            tiers.push_back(&list);
        std::vector<std::string> monitors;
        if (monitored) monitors.push_back(monitor(name, part));
        for (std::size_t at = 0; at < tiers.size(); ++at) {
            if (pools.size() <= at)
                pools.push_back({.name = tiers.size() > 1 ? fmt::format("{}-{}", name, at + 1) : name, .min_healthy = 1});
            auto& pool = pools[at];
            if (pool.monitors.empty()) pool.monitors = monitors;
            for (const auto& item : tiers[at]->items) address(item, weights, pool);
        }
        // Without a selector PowerDNS gives one at random.
        std::string how = "random";
        if (given.size() > list_at + 1)
            if (const auto named = given[list_at + 1].named.find("selector"); named != given[list_at + 1].named.end())
                how = named->second.text;
        if (part.function == "all" || how == "all") {
            spec["answers"] = "all";
        } else if (weights && part.function == "pickwrandom") {
            spec["answers"] = "weighted";
        } else if (by_client || part.function == "pickhashed" || how == "hashed") {
            spec["answers"] = "sticky";
        } else if (part.function == "picknamehashed") {
            spec["answers"] = "sticky-by-name";
        } else {
            spec["answers"] = "subset";
            spec["max_answers"] = 1;
            if (how != "random")
                out_.leave_out(
                    fmt::format("line {}, {}: selector {} has no counterpart; one is given at random", part.line, name, how));
        }
        return true;
    }

    static void address(const LuaValue& item, bool weighted, PoolDraft& pool) {
        if (!weighted) return pool.add_address(item.text);
        if (item.items.size() != 2) return;
        int weight = 1;
        std::from_chars(item.items[0].text.data(), item.items[0].text.data() + item.items[0].text.size(), weight);
        pool.add_address(item.items[1].text);
        if (pool.weights.size() < std::max(pool.v4.size(), pool.v6.size())) pool.weights.push_back(weight);
    }

    std::string monitor(const std::string& name, const Part& part) {
        json::object spec;
        const auto& what = part.arguments[0].text;
        if (part.function == "ifportup") {
            int port = 0;
            std::from_chars(what.data(), what.data() + what.size(), port);
            spec = {{"kind", "tcp"}, {"port", port}};
        } else {
            std::string_view url = what;
            const auto scheme = url.substr(0, url.find("://"));
            url.remove_prefix(std::min(url.size(), scheme.size() + 3));
            const auto slash = std::min(url.find('/'), url.size());
            auto host = url.substr(0, slash);
            spec["kind"] = lowered(scheme) == "https" ? "https" : "http";
            if (const auto colon = host.rfind(':'); colon != std::string_view::npos) {
                int port = 0;
                std::from_chars(host.data() + colon + 1, host.data() + host.size(), port);
                if (port > 0) spec["port"] = port;
                host = host.substr(0, colon);
            }
            if (!host.empty()) spec["host"] = lowered(host);
            if (slash < url.size()) spec["path"] = std::string(url.substr(slash));
        }
        spec["interval"] = "5s"; // what PowerDNS does unless told otherwise
        spec["timeout"] = "2s";
        spec["rise"] = spec["fall"] = 1;
        if (part.arguments.size() > 2)
            for (const auto& [key, value] : part.arguments[2].named) option(name, part, key, value, spec);
        return out_.add("Monitor", fmt::format("{}-{}", part.function == "ifportup" ? "port" : "url", name), std::move(spec));
    }

    void option(const std::string& name, const Part& part, const std::string& key, const LuaValue& value, json::object& spec) {
        if (key == "selector" || key == "backupSelector") return;
        if (key == "interval")
            spec["interval"] = value.text + "s";
        else if (key == "timeout")
            spec["timeout"] = value.text + "s";
        else if (key == "stringmatch" && part.function == "ifurlup")
            spec["contains"] = value.text;
        else if (key == "useragent" && part.function == "ifurlup")
            spec["headers"] = json::object{{"User-Agent", value.text}};
        else if (key == "minimumFailures") {
            int fall = 1;
            std::from_chars(value.text.data(), value.text.data() + value.text.size(), fall);
            spec["fall"] = std::clamp(fall, 1, 100);
        } else {
            out_.leave_out(fmt::format("line {}, {}: option {} has no counterpart", part.line, name, key));
        }
    }

    std::string_view text_;
    std::string zone_, origin_, owner_;
    std::int64_t ttl_ = 60;
    int found_ = 0;
    std::map<std::string, std::vector<Part>> by_name_;
    Collected out_;
};

} // namespace

Result<Imported> import_powerdns(std::string_view zone_file, std::string_view origin) {
    return PowerdnsLua(zone_file, origin).run();
}

} // namespace orrery::cli
