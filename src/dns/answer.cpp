#include "dns/answering.h"

#include <algorithm>
#include <chrono>

namespace orrery::dns {

namespace {

std::uint32_t seconds_of(const Clock& clock) {
    return static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(clock.wall().time_since_epoch()).count());
}

/// With fewer names everything is in the processor's cache.
constexpr std::size_t worth_fetching = 2000;

} // namespace

void Authority::expect(std::span<const Bytes> queries) const noexcept {
    if (queries.size() < 2) return;
    const Epochs<Answerer>::Reader reader(state_->epochs);
    const auto& snapshot = *state_->current.load();
    if (snapshot.name_count < worth_fetching) return;
    std::array<std::uint64_t, NameTable::most_fetched> hashes;
    std::size_t count = 0;
    for (const auto bytes : queries.first(std::min(queries.size(), hashes.size()))) {
        Name name;
        std::size_t at = 12;
        if (bytes.size() > at && name.read(bytes, at, Name::Pointers::no)) hashes[count++] = NameKey(name).hash();
    }
    NameTable::fetch(*snapshot.names, std::span(hashes).first(count));
}

std::size_t Authority::respond(Bytes bytes, const Asker& asker, std::span<std::uint8_t> out) const noexcept {
    const auto reading = read_query(bytes);
    if (reading.what == Reading::What::drop) return 0;
    const auto& query = reading.query;
    const auto& options = state_->options;
    const bool udp = asker.transport == Asker::Transport::udp;

    const Epochs<Answerer>::Reader reader(state_->epochs);
    auto& self = reader.local();
    self.queries.add();
    if (!udp) self.tcp.add();

    AskedOptions asked;
    bool refused = reading.what == Reading::What::refuse;
    auto rcode = reading.rcode;
    if (query.edns && rcode != Rcode::badvers && !read_options(query.edns->options, asked)) {
        refused = true;
        rcode = Rcode::formerr;
        asked = {};
    }
    // RFC 7873 5.4: a client may ask for nothing but a cookie.
    const bool only_cookie = refused && rcode == Rcode::formerr && bytes[4] == 0 && bytes[5] == 0 && query.opcode == 0 &&
                             !asked.client_cookie.empty() && !options.cookies.empty();
    if (only_cookie) rcode = Rcode::noerror;

    OptionWriter reply;
    bool trusted = false;
    std::size_t scope_at = 0;
    if (query.edns && (!refused || only_cookie)) {
        if (!asked.client_cookie.empty() && !options.cookies.empty()) {
            const auto now = seconds_of(state_->clock);
            const auto check = check_cookie(options.cookies, asked.client_cookie, asked.server_cookie, asker, now);
            trusted = check.valid;
            if (trusted) self.valid_cookies.add();
            if (check.renew)
                reply.put(option::cookie, asked.client_cookie, make_cookie(options.cookies[0], asked.client_cookie, asker, now));
            else
                reply.put(option::cookie, asked.client_cookie, asked.server_cookie);
        }
        if (asked.nsid && !options.nsid.empty())
            reply.put(option::nsid, Bytes(reinterpret_cast<const std::uint8_t*>(options.nsid.data()), options.nsid.size()));
        if (asked.keepalive && !udp) {
            const std::array<std::uint8_t, 2> time{static_cast<std::uint8_t>(options.tcp_keepalive >> 8),
                                                   static_cast<std::uint8_t>(options.tcp_keepalive)};
            reply.put(option::keepalive, time);
        }
        if (asked.subnet) {
            self.with_subnet.add();
            const auto& subnet = *asked.subnet;
            const std::array<std::uint8_t, 4> head{0, static_cast<std::uint8_t>(subnet.v6 ? 2 : 1), subnet.source, 0};
            scope_at = reply.size() + 4 + 3;
            reply.put(option::subnet, head, Bytes(subnet.address).first((subnet.source + 7U) / 8));
        }
    }

    const std::size_t limit = !udp ? 0xFFFF : query.edns ? std::min(query.edns->size, options.udp_size) : 512;
    Writer writer(out, limit, query, bytes);
    if (reply.size() > 0) writer.keep_for_options(reply.size());
    // The snapshot is read after the place was taken: from here on it stays.
    const auto& snapshot = *state_->current.load();
    Answering answering(options, snapshot, self, query, asker, asked, state_->clock, writer);
    if (refused) {
        answering.finish.rcode = rcode;
        if (rcode == Rcode::notimp) answering.detail = Answering::Detail{extended::not_supported, "opcode"};
        self.malformed.add();
    } else {
        self.by_type[std::min<std::size_t>(query.type, counted_types - 1)].add();
        answering.answer();
    }
    auto& finish = answering.finish;
    const auto log = [&](std::size_t size) {
        if (self.log && query.question_end > 12 && self.log_in-- == 0) {
            self.log_in = options.query_log_every - 1;
            self.log->push({state_->clock.wall(), asker, query.name, query.type, query.dns_class, finish.rcode,
                            static_cast<std::uint16_t>(size)});
        }
        return size;
    };
    if (udp && !trusted && state_->rate_limit.is_on()) {
        switch (state_->rate_limit.check(asker, answering.kind, state_->clock.steady(), self.dice())) {
        case RateLimit::Verdict::answer: break;
        case RateLimit::Verdict::drop: self.limited.add(); return log(0);
        case RateLimit::Verdict::truncate:
            self.slipped.add();
            writer.clear();
            finish.truncated = true;
            answering.scope = 0;
            answering.detail = Answering::Detail{extended::other, "rate limit"};
            break;
        }
    }
    if (scope_at != 0) reply[scope_at] = answering.scope;
    if (answering.detail && query.edns) {
        // It never costs a record its place.
        const auto before = reply.size();
        const auto text = answering.detail->text;
        constexpr std::size_t head = 4 + 2;
        if (writer.room() >= head) reply.put_error(answering.detail->code, text.substr(0, writer.room() - head));
        writer.keep_for_options(reply.size() - before);
    }
    finish.options = reply.bytes();
    if (finish.truncated) self.truncated.add();
    self.by_rcode[std::min<std::size_t>(static_cast<std::size_t>(finish.rcode), counted_rcodes - 1)].add();
    return log(writer.finish(finish));
}

} // namespace orrery::dns
