#pragma once

#include <fmt/format.h>

#include <string_view>

/// The first label of the bench's names, of eight lengths, because responses of one size to one client can leave as one message.
/// bench/dns/run has the same function.
template <class Out> Out bench_label(Out out, unsigned number) {
    return fmt::format_to(out, "n{:05}{}", number, std::string_view("xxxxxxx").substr(0, number % 8));
}
