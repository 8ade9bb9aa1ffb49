#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::drivers {

/// The input of a runner: a sequence of texts, each of any bytes but NUL.
class Fields {
public:
    Fields& add(std::string_view text);
    Fields& add(std::int64_t number) { return add(std::to_string(number)); }
    /// Raw bytes after the last field.
    void raw(std::string_view bytes) { text_ += bytes; }
    std::string release() { return std::move(text_); }

private:
    std::string text_;
};

std::string base64(std::string_view bytes);
/// Empty where the text is not base64.
std::string from_base64(std::string_view text);

} // namespace orrery::drivers
