// HTTP answers as a probe reads them: the result does not depend on how the bytes are split, and memory is bounded.
#include "health/engine/http_answer.h"

#include <cstdint>
#include <cstdlib>

namespace {

using orrery::health::HttpAnswer;

void demand(bool holds) {
    if (!holds) std::abort();
}

struct End {
    HttpAnswer::State state;
    int status;
    std::string body;
};

End read(std::string_view bytes, std::size_t piece, HttpAnswer::Options options, bool closes) {
    HttpAnswer answer;
    answer.begin(options);
    for (std::size_t at = 0; at < bytes.size(); at += piece) answer.feed(bytes.substr(at, piece));
    if (closes) answer.end();
    demand(answer.body().size() <= options.keep);
    demand(answer.reason().size() <= 64);
    demand(answer.state() != HttpAnswer::State::broken || !answer.problem().empty());
    demand(answer.state() != HttpAnswer::State::done || (answer.status() >= 100 && answer.status() <= 999));
    if (closes) demand(answer.state() == HttpAnswer::State::done || answer.state() == HttpAnswer::State::broken);
    return {answer.state(), answer.state() == HttpAnswer::State::done ? answer.status() : 0,
            answer.state() == HttpAnswer::State::done ? std::string(answer.body()) : ""};
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
    const HttpAnswer::Options options{.to_head = (data[0] & 1) != 0, .keep = 64U + data[1]};
    const bool closes = (data[0] & 2) != 0;
    const auto whole = read(bytes, bytes.size() + 1, options, closes);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{2} + data[0] % 37U}) {
        const auto again = read(bytes, piece, options, closes);
        demand(again.state == whole.state && again.status == whole.status && again.body == whole.body);
    }
    return 0;
}
