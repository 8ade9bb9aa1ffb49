#pragma once

#include "core/result.h"

#include <boost/json/object.hpp>

#include <string>
#include <string_view>

namespace orrery::drivers {

/// Renders a template with a task's values:
///
///     {{ mysql.port }}                          a value; lists and objects as JSON. A value that is not there is an error
///     {{ join(mysql.addresses, ",") }}          a list as one text
///     {% for m in members %}...{{ m.address }}...{% endfor %}
///     {% if tls %}...{% else %}...{% endif %}   absent, null, false, "", 0 and empty lists are not so; {% if not x %} turns it
///     round
///
/// A line that holds nothing but one {% %} vanishes. There is nothing else: no expressions, no access to anything but the values.
/// `invalid` with the line where it is wrong.
Result<std::string> render_template(std::string_view text, const boost::json::object& values);
/// Is it well-formed? For checks at submission, where there are no values yet.
Result<int> check_template(std::string_view text);

} // namespace orrery::drivers
