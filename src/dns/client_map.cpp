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
    std::optional<std::uint32_t> answer_set;
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
        trie[at].answer_set = rule.answer_set;
    }
    struct Step {
        std::uint32_t node;
        Wide start;
        unsigned depth;
        std::uint32_t answer_set;
        bool missing;
    };
    std::vector<Step> steps{{0, {}, 0, 0, false}};
    while (!steps.empty()) {
        const auto step = steps.back();
        steps.pop_back();
        if (step.missing) {
            append({step.start.high, step.start.low, step.answer_set, static_cast<std::uint8_t>(step.depth)});
            continue;
        }
        const auto& node = trie[step.node];
        const auto answer_set = node.answer_set.value_or(step.answer_set);
        if (node.child[0] == 0 && node.child[1] == 0) {
            append({step.start.high, step.start.low, answer_set, static_cast<std::uint8_t>(step.depth)});
            continue;
        }
        for (const auto side : {1U, 0U}) { // the left child is popped first
            auto start = step.start;
            if (side == 1) (step.depth < 64 ? start.high : start.low) |= 1ULL << (63 - step.depth % 64);
            steps.push_back({node.child[side], start, step.depth + 1, answer_set, node.child[side] == 0});
        }
    }
    leaves_.shrink_to_fit();
}

void ClientMap::append(Leaf leaf) {
    leaves_.push_back(leaf);
    max_answer_set_ = std::max(max_answer_set_, leaf.answer_set);
    const auto bit = [](const Leaf& of, unsigned at) { return ((at < 64 ? of.high >> (63 - at) : of.low >> (127 - at)) & 1) != 0; };
    while (leaves_.size() >= 2) {
        auto& last = leaves_.back();
        auto& before = leaves_[leaves_.size() - 2];
        if (last.length != before.length || last.answer_set != before.answer_set || last.length == 0) break;
        const auto depth = last.length - 1U;
        // They are siblings if `before` ends with bit 0, `last` ends with bit 1, and all earlier bits are equal.
        if (bit(before, depth) || !bit(last, depth)) break;
        const auto upper = depth >= 64 ? ~0ULL : depth == 0 ? 0 : ~0ULL << (64 - depth);
        const auto lower = depth <= 64 ? 0 : ~0ULL << (128 - depth);
        if (((before.high ^ last.high) & upper) != 0 || ((before.low ^ last.low) & lower) != 0) break;
        before.length = static_cast<std::uint8_t>(depth);
        leaves_.pop_back();
    }
}

void ClientMap::append(const Address& from, std::uint8_t length, std::uint32_t answer_set) {
    const auto start = wide(from);
    append({start.high, start.low, answer_set, length});
}

ClientMap ClientMap::mapped(std::span<const std::uint32_t> answer_set_of) const {
    ClientMap out;
    for (auto leaf : leaves_) {
        leaf.answer_set = leaf.answer_set < answer_set_of.size() ? answer_set_of[leaf.answer_set] : 0;
        out.append(leaf);
    }
    out.leaves_.shrink_to_fit();
    return out;
}

ClientMap::Match ClientMap::find(const Address& address) const {
    if (leaves_.empty()) return {};
    const auto client = wide(address);
    auto at = std::upper_bound(leaves_.begin(), leaves_.end(), client,
                               [](const Wide& a, const Leaf& leaf) { return !(Wide{leaf.high, leaf.low} <= a); });
    --at; // the first leaf starts at address zero
    return {at->answer_set, at->length};
}

} // namespace orrery::dns
