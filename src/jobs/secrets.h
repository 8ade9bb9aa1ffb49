#pragma once

#include <boost/json/value.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orrery::jobs {

/// Secret values by how a job names them: `${secret.db.password}` is "db.password".
using Secrets = std::map<std::string, std::string, std::less<>>;

/// `text` with every `${secret.NAME.KEY}` replaced by its value; those that are not in `secrets` stay as they are.
std::string with_secrets(std::string_view text, const Secrets& secrets);
/// The same for every text in a JSON value.
boost::json::value json_with_secrets(const boost::json::value& value, const Secrets& secrets);

/// Takes secrets out of what is kept or shown. Looked for are their values as they are, line by line, and as programs write them:
/// in base64 (as seen from each of the three positions a byte can have there, and broken into lines), in hex, escaped for URLs, for
/// JSON, for XML and for a shell. What is found becomes "(secret)". Values shorter than 4 characters are not looked for: they are
/// everywhere. Works on a stream: what could be the beginning of a secret is held back until more is known.
class Masker {
public:
    explicit Masker(const Secrets& secrets);

    bool empty() const { return needles_.empty(); }
    /// All of `text`, masked.
    std::string mask(std::string_view text) const;
    /// The same for a sentence or an excerpt, which may have been cut in the middle of a secret: its beginnings are masked too, if
    /// they are long enough to be nothing else.
    std::string mask_cut(std::string_view text) const;
    /// A piece of a stream: returns what can be kept now. `held` is the stream's own, empty at first.
    std::string feed(std::string& held, std::string_view piece) const;
    /// The rest of the stream.
    std::string finish(std::string& held) const;

private:
    enum class Match { whole, beginnings };
    std::string replace(std::string_view text, bool last, Match match, std::size_t& used) const;
    std::vector<std::string> needles_;                                            ///< longest first
    std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> by_first_four_; ///< places in needles_
    std::size_t longest_ = 0;
};

/// The end of what somebody says, masked before it is cut: for the sentence that tells how an attempt ended.
class MaskedTail {
public:
    explicit MaskedTail(const Secrets& secrets) : masker_(secrets) {}
    void add(std::string_view bytes);
    /// What is kept: the last few thousand bytes.
    std::string text() const { return tail_ + masker_.mask(held_); }
    /// Its last line that is not empty, 300 bytes of it at most.
    std::string last_line() const;

private:
    Masker masker_;
    std::string tail_, held_;
};

} // namespace orrery::jobs
