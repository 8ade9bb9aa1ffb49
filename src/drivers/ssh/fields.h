#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::drivers {

/// What a runner reads on its standard input: texts, one after the other, each of any bytes but NUL.
class Fields {
public:
    Fields& add(std::string_view text);
    Fields& add(std::int64_t number) { return add(std::to_string(number)); }
    /// Bytes as they are, after the last field.
    void raw(std::string_view bytes) { text_ += bytes; }
    std::string take() { return std::move(text_); }

private:
    std::string text_;
};

std::string base64(std::string_view bytes);
/// Nothing where it is not base64.
std::string from_base64(std::string_view text);

} // namespace orrery::drivers
