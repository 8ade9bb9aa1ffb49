#pragma once

#include <fmt/format.h>

#include <string_view>

/// The first label of the bench's names: of eight lengths, whether they are few or many, for answers of one size to one asker may
/// leave together. bench/dns/run has the same.
template <class Out> Out bench_label(Out out, unsigned number) {
    return fmt::format_to(out, "n{:05}{}", number, std::string_view("xxxxxxx").substr(0, number % 8));
}
