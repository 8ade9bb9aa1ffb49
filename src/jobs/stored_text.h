#pragma once

#include "core/json_fields.h"

#include <boost/json/object.hpp>

#include <string>
#include <string_view>

namespace orrery::jobs {

/// A text field of a stored JSON record that an earlier version may have written under another name.
struct StoredText {
    const boost::json::object& object;
    std::string_view name;

    std::string renamed_from(std::string_view old_name) const { return text_at(object, object.contains(name) ? name : old_name); }
};

} // namespace orrery::jobs
