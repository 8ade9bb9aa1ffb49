#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orrery {

/// Replaces secrets by "(secret)" in text that is stored or shown. It finds the values verbatim, line by line, and in the encodings
/// that programs use: base64 (at each of the three alignments, and with line breaks), hexadecimal, and escaped for URLs, JSON, XML
/// and shells. Values of fewer than 4 characters are not masked, because they occur everywhere. Works on streams: bytes that may be
/// the beginning of a secret are kept back until more bytes arrive.
class Masker {
public:
    /// `secrets`: values by name; the names do not matter.
    explicit Masker(const std::map<std::string, std::string, std::less<>>& secrets);

    bool empty() const { return needles_.empty(); }
    /// Masks a complete text.
    std::string mask(std::string_view text) const;
    /// Masks an excerpt that may end in the middle of a secret: beginnings of secrets are masked too, if they are long enough to be
    /// unambiguous.
    std::string mask_cut(std::string_view text) const;
    /// Masks a piece of a stream and returns the output so far. `pending` is the state of the stream, initially empty.
    std::string feed(std::string& pending, std::string_view piece) const;
    /// Returns the rest at the end of the stream.
    std::string finish(std::string& pending) const;

private:
    enum class Match { whole, beginnings };
    std::string replace(std::string_view text, bool last, Match match, std::size_t& used) const;
    std::vector<std::string> needles_;                                            ///< longest first
    std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> by_first_four_; ///< indexes into needles_
    std::size_t max_needle_ = 0;
};

} // namespace orrery
