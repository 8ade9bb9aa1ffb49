#include "dns/client_map.h"

#include <algorithm>
#include <optional>

namespace orrery::dns {

namespace {

struct Wide {
    std::uint64_t high = 0, low = 0;
    bool operator<=(const Wide& other) const { return high < other.high || (high == other.high && low <= other.low); }
};

Wide wide(const ClientMap::Address& address) {
    Wide out;
    for (std::size_t i = 0; i < 8; ++i) {
        out.high = out.high << 8 | address[i];
        out.low = out.low << 8 | address[i + 8];
    }
    return out;
}

bool bit_of(const ClientMap::Address& address, unsigned at) { return (address[at / 8] >> (7 - at % 8) & 1) != 0; }

struct TrieNode {
    std::array<std::uint32_t, 2> child{}; ///< 0: none
    std::optional<std::uint32_t> choice;
};

} // namespace

ClientMap::ClientMap(std::span<const Rule> rules, unsigned bits) {
    std::vector<TrieNode> trie(1);
    for (const auto& rule : rules) {
        std::uint32_t at = 0;
        for (unsigned depth = 0; depth < std::min<unsigned>(rule.length, bits); ++depth) {
            const auto side = bit_of(rule.address, depth) ? 1U : 0U;
            if (trie[at].child[side] == 0) {
                trie[at].child[side] = static_cast<std::uint32_t>(trie.size());
                trie.emplace_back();
            }
            at = trie[at].child[side];
        }
        trie[at].choice = rule.choice;
    }
    struct Step {
        std::uint32_t node;
        Wide start;
        unsigned depth;
        std::uint32_t choice;
        bool missing;
    };
    std::vector<Step> steps{{0, {}, 0, 0, false}};
    while (!steps.empty()) {
        const auto step = steps.back();
        steps.pop_back();
        if (step.missing) {
            append({step.start.high, step.start.low, step.choice, static_cast<std::uint8_t>(step.depth)});
            continue;
        }
        const auto& node = trie[step.node];
        const auto choice = node.choice.value_or(step.choice);
        if (node.child[0] == 0 && node.child[1] == 0) {
            append({step.start.high, step.start.low, choice, static_cast<std::uint8_t>(step.depth)});
            continue;
        }
        for (const auto side : {1U, 0U}) { // the left is taken off the stack first
            auto start = step.start;
            if (side == 1) (step.depth < 64 ? start.high : start.low) |= 1ULL << (63 - step.depth % 64);
            steps.push_back({node.child[side], start, step.depth + 1, choice, node.child[side] == 0});
        }
    }
    leaves_.shrink_to_fit();
}

void ClientMap::append(Leaf leaf) {
    leaves_.push_back(leaf);
    greatest_ = std::max(greatest_, leaf.choice);
    const auto bit = [](const Leaf& of, unsigned at) { return ((at < 64 ? of.high >> (63 - at) : of.low >> (127 - at)) & 1) != 0; };
    while (leaves_.size() >= 2) {
        auto& last = leaves_.back();
        auto& before = leaves_[leaves_.size() - 2];
        if (last.length != before.length || last.choice != before.choice || last.length == 0) break;
        const auto depth = last.length - 1U;
        // `before` is the left half of their parent: its last bit is 0, and all before that is the same.
        if (bit(before, depth) || !bit(last, depth)) break;
        const auto upper = depth >= 64 ? ~0ULL : depth == 0 ? 0 : ~0ULL << (64 - depth);
        const auto lower = depth <= 64 ? 0 : ~0ULL << (128 - depth);
        if (((before.high ^ last.high) & upper) != 0 || ((before.low ^ last.low) & lower) != 0) break;
        before.length = static_cast<std::uint8_t>(depth);
        leaves_.pop_back();
    }
}

void ClientMap::append(const Address& from, std::uint8_t length, std::uint32_t choice) {
    const auto start = wide(from);
    append({start.high, start.low, choice, length});
}

ClientMap ClientMap::mapped(std::span<const std::uint32_t> choice_of) const {
    ClientMap out;
    for (auto leaf : leaves_) {
        leaf.choice = leaf.choice < choice_of.size() ? choice_of[leaf.choice] : 0;
        out.append(leaf);
    }
    out.leaves_.shrink_to_fit();
    return out;
}

ClientMap::Found ClientMap::find(const Address& address) const {
    if (leaves_.empty()) return {};
    const auto client = wide(address);
    auto at = std::upper_bound(leaves_.begin(), leaves_.end(), client,
                               [](const Wide& a, const Leaf& leaf) { return !(Wide{leaf.high, leaf.low} <= a); });
    --at; // the first begins at zero
    return {at->choice, at->length};
}

} // namespace orrery::dns
