#pragma once

#include "core/result.h"
#include "resource/kind.h"

#include <boost/json/object.hpp>

#include <optional>
#include <string>
#include <vector>

namespace orrery::jobs {

namespace json = boost::json;

/// The declaration of a parameter of a JobTemplate.
struct Parameter {
    enum class Type { text, integer, number, boolean, list };
    std::string name, description;
    Type type = Type::text;
    bool required = false;
    std::optional<json::value> default_value;
    std::vector<json::value> allowed; ///< empty: any
    std::string pattern;              ///< RE2; matches the whole text
    std::optional<double> min, max;   ///< of a number
};

/// The field of one parameter in the kind's declaration.
resource::Field parameter_field();

/// Reads declarations that the kind's table has validated. Errors that a table cannot find are added to `errors`, at
/// "spec.parameters[2].pattern".
std::vector<Parameter> read_parameters(const json::object& spec, std::vector<FieldError>& errors);

/// The values of a run: the given ones, and defaults. Values are data: a text may contain anything but "${". Each error is at
/// "parameters.NAME".
Result<json::object> parameter_values(const std::vector<Parameter>& declared, const json::object& given);
/// The error of one value; empty: it is valid.
std::string check_parameter(const Parameter& declared, const json::value& value);

} // namespace orrery::jobs
