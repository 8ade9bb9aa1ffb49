#include "cli/gslb_import_build.h"

#include <cctype>

namespace orrery::cli {

namespace {

/// A record as it is written, on one line and without comments.
struct WrittenRecord {
    bool has_owner = false; ///< else it is that of the record before
    std::string text;
};

std::vector<WrittenRecord> written_records(std::string_view text) {
    std::vector<WrittenRecord> out;
    WrittenRecord now;
    bool quoted = false, begun = false;
    int depth = 0;
    const auto end = [&] {
        if (now.text.find_first_not_of(' ') != std::string::npos) out.push_back(std::move(now));
        now = {};
        begun = false;
    };
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (!begun && c != '\n') {
            begun = true;
            now.has_owner = c != ' ' && c != '\t';
        }
        if (c == '\\' && at + 1 < text.size() && text[at + 1] != '\n') {
            now.text += c;
            now.text += text[++at];
        } else if (c == '\n') {
            quoted = false;
            if (depth == 0)
                end();
            else
                now.text += ' ';
        } else if (quoted || c == '"') {
            if (c == '"') quoted = !quoted;
            now.text += c;
        } else if (c == ';') {
            at = std::min(text.find('\n', at), text.size()) - 1;
        } else if (c == '(' || c == ')') {
            depth = std::max(0, depth + (c == '(' ? 1 : -1));
            now.text += ' ';
        } else {
            now.text += c == '\t' || c == '\r' ? ' ' : c;
        }
    }
    end();
    return out;
}

/// Takes the next word off.
std::string word_of(std::string_view& rest) {
    const auto begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) {
        rest = {};
        return {};
    }
    const auto end = std::min(rest.find(' ', begin), rest.size());
    std::string out(rest.substr(begin, end - begin));
    rest.remove_prefix(end);
    return out;
}

} // namespace

std::int64_t seconds_of(std::string_view text, std::int64_t otherwise) {
    std::int64_t out = 0, number = 0;
    bool open = false;
    constexpr std::int64_t most = std::int64_t{86400} * 7;
    for (const char c : lowered(text)) {
        if (c >= '0' && c <= '9') {
            number = std::min(most, number * 10 + (c - '0'));
            open = true;
            continue;
        }
        const auto unit = c == 's' ? 1 : c == 'm' ? 60 : c == 'h' ? 3600 : c == 'd' ? 86400 : c == 'w' ? 604800 : 0;
        if (unit == 0 || !open) return otherwise;
        out = std::min(most, out + number * unit);
        number = 0;
        open = false;
    }
    return text.empty() ? otherwise : std::clamp<std::int64_t>(out + number, 1, most);
}

void add_zone_of(Collected& to, std::string_view text, std::string_view zone, const std::set<std::string_view>& dynamic) {
    const auto apex = plain_name(zone);
    auto origin = apex, told_origin = apex;
    std::string owner = apex, ttl, records;
    std::vector<std::string> servers;
    const auto whole = [&](const std::string& name) {
        return name == "@" ? origin : name.ends_with('.') ? plain_name(name) : lowered(name) + "." + origin;
    };
    for (const auto& record : written_records(text)) {
        std::string_view rest = record.text;
        if (record.text[0] == '$') {
            const auto directive = word_of(rest), value = word_of(rest);
            if (directive == "$ORIGIN")
                origin = whole(value);
            else if (directive == "$TTL")
                ttl = value;
            else
                to.leave_out(fmt::format("zone {}: {} is not carried over", apex, record.text.substr(0, 80)));
            continue;
        }
        if (record.has_owner) owner = whole(word_of(rest));
        auto own_ttl = ttl;
        auto type = word_of(rest);
        for (; !type.empty(); type = word_of(rest))
            if (std::isdigit(static_cast<unsigned char>(type[0])) != 0)
                own_ttl = type;
            else if (lowered(type) != "in")
                break;
        const auto kind = lowered(type);
        if (kind.empty() || kind == "soa" || dynamic.contains(kind)) continue;
        if (kind == "ns" && owner == apex) {
            servers.push_back(whole(word_of(rest)));
            continue;
        }
        if (origin != told_origin) records += fmt::format("$ORIGIN {}.\n", origin);
        told_origin = origin;
        const auto data = rest.find_first_not_of(' '), last = rest.find_last_not_of(' ');
        records += fmt::format("{}. {}{}{} {}\n", owner, own_ttl, own_ttl.empty() ? "" : " ", type,
                               data == std::string_view::npos ? std::string_view() : rest.substr(data, last - data + 1));
    }
    if (servers.empty()) {
        servers.push_back("ns1." + apex);
        to.leave_out(fmt::format("zone {}: it names no name servers; write yours into spec.nameservers", apex));
    }
    json::array names;
    for (const auto& server : servers) names.emplace_back(server);
    json::object spec{{"origin", apex}, {"nameservers", std::move(names)}};
    if (!records.empty()) spec["records"] = records;
    to.add("Zone", apex, std::move(spec));
}

} // namespace orrery::cli
