#pragma once

#include "core/result.h"

#include <boost/json/object.hpp>

#include <string>
#include <string_view>

namespace orrery::drivers {

/// Renders a template with the values of a task:
///
///     {{ mysql.port }}                          a value; lists and objects as JSON. A missing value is an error
///     {{ join(mysql.addresses, ",") }}          the items of a list, joined
///     {% for m in members %}...{{ m.address }}...{% endfor %}
///     {% if tls %}...{% else %}...{% endif %}   missing, null, false, "", 0 and empty lists are false; {% if not x %}
///     negates
///
/// A line with nothing but one {% %} is removed. There are no expressions, and no access to anything but the values. `invalid`
/// names the line.
Result<std::string> render_template(std::string_view text, const boost::json::object& values);
/// Whether it is well-formed: for validation at submission, before values are known.
Result<int> check_template(std::string_view text);

} // namespace orrery::drivers
