#include "gslb/clients/client_classes.h"

#include "core/truncate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

namespace orrery::gslb {

namespace {

bool bit_at(const std::array<std::uint8_t, 16>& address, unsigned at) { return (address.at(at / 8) >> (7U - at % 8) & 1U) != 0; }
void set_bit(std::array<std::uint8_t, 16>& address, unsigned at) {
    address.at(at / 8) = static_cast<std::uint8_t>(address.at(at / 8) | 1U << (7U - at % 8));
}

/// Optimal routing table construction (Draves, King, Venkatachary and Zill, 1999): the smallest table for longest-prefix matching
/// that maps every address as a given one does.
class Table {
public:
    void add(const dns::Prefix& prefix, std::uint32_t value) {
        std::uint32_t at = 0;
        for (unsigned depth = 0; depth < prefix.length; ++depth) {
            const auto side = bit_at(prefix.address, depth) ? 1U : 0U;
            if (nodes_[at].child[side] == 0) {
                nodes_[at].child[side] = static_cast<std::uint32_t>(nodes_.size());
                nodes_.emplace_back();
            }
            at = nodes_[at].child[side];
        }
        nodes_[at].value = value;
    }

    void emit(bool v6, std::vector<dns::DynamicName::ClientRule>& out) {
        gather(0, 0);
        dns::Prefix prefix;
        prefix.v6 = v6;
        write(0, 0, prefix, out);
    }

private:
    using Set = std::vector<std::uint32_t>; // sorted; nearly always one or two
    struct Node {
        std::array<std::uint32_t, 2> child{};
        std::optional<std::uint32_t> value;
        Set could;             ///< the values that cost least here
        std::uint32_t own = 0; ///< what a child that is not there would have
    };

    /// What each subtree could have as its own value at no extra cost.
    const Set& gather(std::uint32_t at, std::uint32_t inherited) {
        const auto value = nodes_[at].value.value_or(inherited);
        const auto children = nodes_[at].child;
        if (children[0] == 0 && children[1] == 0) return nodes_[at].could = {value};
        const Set left = children[0] == 0 ? Set{value} : gather(children[0], value);
        const Set right = children[1] == 0 ? Set{value} : gather(children[1], value);
        Set merge_triggers;
        std::set_intersection(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(merge_triggers));
        if (merge_triggers.empty())
            std::set_union(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(merge_triggers));
        nodes_[at].own = value;
        return nodes_[at].could = std::move(merge_triggers);
    }

    void write(std::uint32_t at, std::uint32_t inherited, dns::Prefix prefix, std::vector<dns::DynamicName::ClientRule>& out) {
        const auto& node = nodes_[at];
        write_set(node.could, inherited, prefix, out);
        if (node.child[0] == 0 && node.child[1] == 0) return;
        for (const auto side : {0U, 1U}) {
            auto below = prefix;
            if (side == 1) set_bit(below.address, prefix.length);
            ++below.length;
            auto given = inherited;
            if (node.child[side] != 0)
                write(node.child[side], given, below, out);
            else
                write_set({node.own}, given, below, out);
        }
    }

    static void write_set(const Set& could, std::uint32_t& inherited, const dns::Prefix& prefix,
                          std::vector<dns::DynamicName::ClientRule>& out) {
        if (std::binary_search(could.begin(), could.end(), inherited)) return;
        inherited = could.front();
        out.push_back({prefix, inherited});
    }

    std::vector<Node> nodes_ = std::vector<Node>(1);
};

} // namespace

Result<dns::Prefix> parse_prefix(std::string_view text) {
    const auto wrong = [&](std::string_view message) {
        return Error{Code::invalid, fmt::format("\"{}\" {}", truncate(text, 64), message),
                     "write it as in 192.0.2.0/24 or 2001:db8::/32"};
    };
    const auto slash = text.find('/');
    boost::system::error_code failed;
    const auto address = boost::asio::ip::make_address(std::string(text.substr(0, slash)), failed);
    if (failed || (address.is_v6() && address.to_v6().scope_id() != 0)) return wrong("is no prefix");
    dns::Prefix out;
    out.v6 = address.is_v6();
    const unsigned bits = out.v6 ? 128 : 32;
    unsigned length = bits;
    if (slash != std::string_view::npos) {
        const auto part = text.substr(slash + 1);
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), length);
        if (error != std::errc{} || end != part.data() + part.size() || length > bits)
            return wrong(fmt::format("has no length between 0 and {}", bits));
    }
    out.length = static_cast<std::uint8_t>(length);
    if (out.v6) {
        out.address = address.to_v6().to_bytes();
    } else {
        const auto bytes = address.to_v4().to_bytes();
        std::copy(bytes.begin(), bytes.end(), out.address.begin());
    }
    for (unsigned at = length; at < bits; ++at)
        if (bit_at(out.address, at)) return wrong(fmt::format("has bits set beyond its length of {}", length));
    return out;
}

std::string prefix_text(const dns::Prefix& prefix) {
    if (prefix.v6) return fmt::format("{}/{}", boost::asio::ip::address_v6(prefix.address).to_string(), prefix.length);
    return fmt::format("{}.{}.{}.{}/{}", prefix.address[0], prefix.address[1], prefix.address[2], prefix.address[3], prefix.length);
}

ClientClasses ClientClasses::of(const std::vector<ClientClass>& classes) {
    ClientClasses out;
    for (std::uint32_t class_index = 0; class_index < classes.size(); ++class_index)
        for (const auto& text : classes[class_index].prefixes)
            if (const auto prefix = parse_prefix(text); prefix.ok()) out.add(*prefix, class_index + 1);
    return out;
}

struct ClientClasses::Shared {
    std::shared_ptr<const dns::ClientTable> table;
    /// The classes after each has its answer set. Few occur: one while all pools are healthy, one for each failure.
    std::map<std::vector<std::uint32_t>, std::shared_ptr<const dns::ClientTable>> by_choice;
    static constexpr std::size_t max_kept = 16;
};

ClientClasses::ClientClasses(std::shared_ptr<const dns::ClientTable> table) : shared_(std::make_shared<Shared>()) {
    shared_->table = std::move(table);
}

void ClientClasses::write_to(std::span<const std::uint32_t> choice_of, dns::DynamicName& answers) const {
    if (!shared_) {
        answers.client_rules = merged(choice_of);
        return;
    }
    std::vector<std::uint32_t> key(choice_of.begin(), choice_of.end());
    if (const auto known = shared_->by_choice.find(key); known != shared_->by_choice.end()) {
        answers.clients = known->second;
        return;
    }
    const auto& table = *shared_->table;
    answers.clients =
        std::make_shared<const dns::ClientTable>(dns::ClientTable{table.v4.mapped(choice_of), table.v6.mapped(choice_of)});
    if (shared_->by_choice.size() >= Shared::max_kept) shared_->by_choice.clear();
    shared_->by_choice.emplace(std::move(key), answers.clients);
}

bool ClientClasses::same_as(const ClientClasses& other) const {
    return shared_ == other.shared_ &&
           std::equal(rules_.begin(), rules_.end(), other.rules_.begin(), other.rules_.end(),
                      [](const auto& a, const auto& b) { return a.prefix == b.prefix && a.answer_set == b.answer_set; });
}

std::uint32_t ClientClasses::find(const boost::asio::ip::address& client) const {
    std::array<std::uint8_t, 16> bytes{};
    if (client.is_v6()) {
        bytes = client.to_v6().to_bytes();
    } else {
        const auto four = client.to_v4().to_bytes();
        std::copy(four.begin(), four.end(), bytes.begin());
    }
    if (shared_) return (client.is_v6() ? shared_->table->v6 : shared_->table->v4).find(bytes).answer_set;
    int longest = -1;
    std::uint32_t found = 0;
    for (const auto& rule : rules_) {
        if (rule.prefix.v6 != client.is_v6() || rule.prefix.length < longest) continue;
        const unsigned whole = rule.prefix.length / 8, rest = rule.prefix.length % 8;
        if (!std::equal(bytes.begin(), bytes.begin() + whole, rule.prefix.address.begin())) continue;
        if (rest != 0 && ((bytes.at(whole) ^ rule.prefix.address.at(whole)) >> (8U - rest)) != 0) continue;
        longest = rule.prefix.length;
        found = rule.answer_set;
    }
    return found;
}

std::vector<dns::DynamicName::ClientRule> ClientClasses::merged(std::span<const std::uint32_t> choice_of) const {
    std::vector<dns::DynamicName::ClientRule> out;
    for (const bool v6 : {false, true}) {
        Table table;
        bool any = false;
        for (const auto& rule : rules_)
            if (rule.prefix.v6 == v6 && rule.answer_set < choice_of.size()) {
                table.add(rule.prefix, choice_of[rule.answer_set]);
                any = true;
            }
        if (any) table.emit(v6, out);
    }
    return out;
}

} // namespace orrery::gslb
