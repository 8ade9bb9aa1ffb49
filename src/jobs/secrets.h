#pragma once

#include <boost/json/value.hpp>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::jobs {

/// Secret values by how a job names them: `${secret.db.password}` is "db.password".
using Secrets = std::map<std::string, std::string, std::less<>>;

/// `text` with every `${secret.NAME.KEY}` replaced by its value; those that are not in `secrets` stay as they are.
std::string with_secrets(std::string_view text, const Secrets& secrets);
/// The same for every text in a JSON value.
boost::json::value json_with_secrets(const boost::json::value& value, const Secrets& secrets);

/// Takes secrets out of what is kept or shown: their values, and their values in base64 (as they are seen from each of the three
/// positions a byte can have there), become "(secret)". Values shorter than 4 characters are not looked for: they are everywhere.
/// Works on a stream: what could be the beginning of a secret is held back until more is known.
class Masker {
public:
    explicit Masker(const Secrets& secrets);

    bool empty() const { return needles_.empty(); }
    /// All of `text`, masked.
    std::string mask(std::string_view text) const;
    /// A piece of a stream: returns what can be kept now. `held` is the stream's own, empty at first.
    std::string feed(std::string& held, std::string_view piece) const;
    /// The rest of the stream.
    std::string finish(std::string& held) const;

private:
    std::string replace(std::string_view text, bool last, std::size_t& used) const;
    std::vector<std::string> needles_; ///< longest first
    std::size_t longest_ = 0;
};

} // namespace orrery::jobs
