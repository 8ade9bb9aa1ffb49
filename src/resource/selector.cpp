#include "core/truncate.h"
#include "resource/resources.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::resource {

Result<LabelSelector> LabelSelector::parse(std::string_view text) {
    LabelSelector selector;
    const auto bad = [&](std::string_view term, std::string_view why) {
        return Error{Code::invalid, fmt::format("\"{}\" in the label selector {}", truncate(term, 64), why),
                     "write terms as key=value, key!=value, key or !key, with commas between"};
    };
    const auto trim = [](std::string_view part) {
        while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
        while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
        return part;
    };
    const auto is_key = [](std::string_view key) {
        return !key.empty() && key.size() <= 128 && std::all_of(key.begin(), key.end(), [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '/' ||
                   c == '-';
        });
    };
    if (trim(text).empty()) return selector;
    for (std::size_t start = 0; start <= text.size();) {
        const auto end = std::min(text.find(',', start), text.size());
        const auto term = trim(text.substr(start, end - start));
        start = end + 1;
        if (term.empty()) return bad(term, "is empty");
        Term made{Term::Op::exists, {}, {}};
        const auto equals = term.find('=');
        if (equals != std::string_view::npos) {
            const bool differs = equals > 0 && term[equals - 1] == '!';
            const bool twice = equals + 1 < term.size() && term[equals + 1] == '=';
            made.op = differs ? Term::Op::differs : Term::Op::equals;
            made.key = trim(term.substr(0, equals - (differs ? 1 : 0)));
            made.value = trim(term.substr(equals + (twice ? 2 : 1)));
        } else if (term.front() == '!') {
            made.op = Term::Op::missing;
            made.key = trim(term.substr(1));
        } else {
            made.key = term;
        }
        if (!is_key(made.key)) return bad(term, "does not name a label");
        if (made.value.size() > 256) return bad(term, "asks for a value longer than any");
        if (selector.terms_.size() >= 32) return bad(term, "is one term too many, at most 32 are read");
        selector.terms_.push_back(std::move(made));
    }
    return selector;
}

bool LabelSelector::matches(const std::map<std::string, std::string>& labels) const {
    return std::all_of(terms_.begin(), terms_.end(), [&](const Term& term) {
        const auto at = labels.find(term.key);
        switch (term.op) {
        case Term::Op::equals: return at != labels.end() && at->second == term.value;
        case Term::Op::differs: return at == labels.end() || at->second != term.value;
        case Term::Op::exists: return at != labels.end();
        case Term::Op::missing: return at == labels.end();
        }
        return false;
    });
}

} // namespace orrery::resource
