#pragma once

#include "core/masker.h"

#include <boost/json/value.hpp>

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace orrery::jobs {

/// Secret values by their names in jobs: `${secret.db.password}` is "db.password".
using Secrets = std::map<std::string, std::string, std::less<>>;

/// A bound text (see `bind` in values.h) with every `${secret.NAME.KEY}` replaced by its value and every `$$` by `$`: the text to
/// send. References that are not in `secrets` stay; without any secrets the result is the text to show.
std::string with_secrets(std::string_view text, const Secrets& secrets);
/// The same for every text in a JSON value.
boost::json::value json_with_secrets(const boost::json::value& value, const Secrets& secrets);

/// The end of a stream, masked before it is cut: for the message of an outcome.
class MaskedTail {
public:
    explicit MaskedTail(const Secrets& secrets) : masker_(secrets) {}
    void add(std::string_view bytes);
    /// The last few thousand bytes.
    std::string text() const { return tail_ + masker_.mask(held_); }
    /// The last line that is not empty, at most 300 bytes.
    std::string last_line() const;

private:
    Masker masker_;
    std::string tail_, held_;
};

} // namespace orrery::jobs
