#include "dns/authority_state.h"
#include "dns/response_builder.h"

#include <algorithm>
#include <chrono>

namespace orrery::dns {

namespace {

std::uint32_t seconds_of(const Clock& clock) {
    return static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(clock.wall().time_since_epoch()).count());
}

/// With fewer names, the table fits into the processor's cache.
constexpr std::size_t min_names_to_prefetch = 2000;

/// A query after the validation of its EDNS options.
struct Request {
    Bytes bytes;
    const Query& query;
    const Client& client;
    QueryOptions options{};
    bool rejected = false;
    Rcode rcode = Rcode::noerror; ///< of a rejected query
    bool is_cookie_only = false;  ///< RFC 7873 section 5.4: a query without a question that asks for a cookie

    bool is_udp() const { return client.transport == Client::Transport::udp; }
};

/// The EDNS options of a response.
struct ReplyOptions {
    OptionWriter writer;
    bool has_valid_cookie = false;
    std::size_t scope_offset = 0; ///< of the ECS scope, which is known after the response is built; 0: no ECS option
};

void check_options(const ParsedQuery& parsed, const Authority::Options& options, Request& request) {
    const auto& query = request.query;
    request.rejected = parsed.action == ParsedQuery::Action::reject;
    request.rcode = parsed.rcode;
    if (query.edns && request.rcode != Rcode::badvers && !read_options(query.edns->options, request.options)) {
        request.rejected = true;
        request.rcode = Rcode::formerr;
        request.options = {};
    }
    request.is_cookie_only = request.rejected && request.rcode == Rcode::formerr && request.bytes[4] == 0 &&
                             request.bytes[5] == 0 && query.opcode == 0 && !request.options.client_cookie.empty() &&
                             !options.cookie_secrets.empty();
    if (request.is_cookie_only) request.rcode = Rcode::noerror;
}

void write_cookie(const Request& request, const Authority::Options& options, const Clock& clock, ThreadState& self,
                  ReplyOptions& reply) {
    const auto& client_cookie = request.options.client_cookie;
    const auto now = seconds_of(clock);
    const auto check = check_cookie(options.cookie_secrets, client_cookie, request.options.server_cookie, request.client, now);
    reply.has_valid_cookie = check.valid;
    if (check.valid) self.valid_cookies.add();
    if (check.renew)
        reply.writer.put(option::cookie, client_cookie, make_cookie(options.cookie_secrets[0], client_cookie, request.client, now));
    else
        reply.writer.put(option::cookie, client_cookie, request.options.server_cookie);
}

void write_reply_options(const Request& request, const Authority::Options& options, const Clock& clock, ThreadState& self,
                         ReplyOptions& reply) {
    if (!request.query.edns || (request.rejected && !request.is_cookie_only)) return;
    if (!request.options.client_cookie.empty() && !options.cookie_secrets.empty())
        write_cookie(request, options, clock, self, reply);
    if (request.options.nsid && !options.nsid.empty())
        reply.writer.put(option::nsid, Bytes(reinterpret_cast<const std::uint8_t*>(options.nsid.data()), options.nsid.size()));
    if (request.options.keepalive && !request.is_udp()) {
        const std::array<std::uint8_t, 2> timeout{static_cast<std::uint8_t>(options.tcp_keepalive >> 8),
                                                  static_cast<std::uint8_t>(options.tcp_keepalive)};
        reply.writer.put(option::keepalive, timeout);
    }
    if (request.options.subnet) {
        self.with_client_subnet.add();
        const auto& subnet = *request.options.subnet;
        const std::array<std::uint8_t, 4> head{0, static_cast<std::uint8_t>(subnet.v6 ? 2 : 1), subnet.source, 0};
        reply.scope_offset = reply.writer.size() + 4 + 3;
        reply.writer.put(option::subnet, head, Bytes(subnet.address).first((subnet.source + 7U) / 8));
    }
}

void build_response(const Request& request, bool suspended, ThreadState& self, ResponseBuilder& builder) {
    const auto& query = request.query;
    if (request.rejected) {
        builder.header.rcode = request.rcode;
        if (request.rcode == Rcode::notimp)
            builder.extended_error = ResponseBuilder::ExtendedError{extended::not_supported, "opcode"};
        self.malformed.add();
        return;
    }
    self.by_type[std::min<std::size_t>(query.type, counted_types - 1)].add();
    if (suspended && query.dns_class != dns_class::chaos)
        builder.reject(Rcode::servfail, ResponseBuilder::ExtendedError{extended::not_ready, "the data of this server is stale"});
    else
        builder.build();
}

/// False if the response must be dropped.
bool apply_rate_limit(RateLimit& limit, const Request& request, const Clock& clock, ThreadState& self, ResponseBuilder& builder,
                      Writer& writer) {
    switch (limit.check(request.client, builder.kind, clock.steady(), self.next_random())) {
    case RateLimit::Action::answer: return true;
    case RateLimit::Action::drop: self.rate_limited.add(); return false;
    case RateLimit::Action::truncate:
        self.slipped.add();
        writer.clear();
        builder.header.truncated = true;
        builder.scope = 0;
        builder.extended_error = ResponseBuilder::ExtendedError{extended::other, "rate limit"};
        return true;
    }
    return true;
}

/// Adds the extended error as far as there is space: it must not displace a record.
void write_extended_error(const ResponseBuilder::ExtendedError& error, Writer& writer, OptionWriter& reply) {
    constexpr std::size_t head = 4 + 2;
    const auto size_before = reply.size();
    if (writer.remaining() >= head) reply.put_error(error.code, error.text.substr(0, writer.remaining() - head));
    writer.reserve_for_options(reply.size() - size_before);
}

void log_query(const Request& request, Rcode rcode, std::size_t size, const Authority::Options& options, const Clock& clock,
               ThreadState& self) {
    const auto& query = request.query;
    if (!self.query_ring || query.question_end <= 12 || self.queries_until_logged-- != 0) return;
    self.queries_until_logged = options.query_log_sample_every - 1;
    self.query_ring->push(
        {clock.wall(), request.client, query.name, query.type, query.dns_class, rcode, static_cast<std::uint16_t>(size)});
}

} // namespace

void Authority::prefetch(std::span<const Bytes> queries) const noexcept {
    if (queries.size() < 2) return;
    const Epochs<ThreadState>::Reader reader(state_->epochs);
    const auto& snapshot = *state_->current_snapshot.load();
    if (snapshot.name_count < min_names_to_prefetch) return;
    std::array<std::uint64_t, NameTable::max_prefetch> hashes;
    std::size_t count = 0;
    for (const auto bytes : queries.first(std::min(queries.size(), hashes.size()))) {
        Name name;
        std::size_t at = 12;
        if (bytes.size() > at && name.read(bytes, at, Name::Pointers::no)) hashes[count++] = NameKey(name).hash();
    }
    NameTable::prefetch(*snapshot.names, std::span(hashes).first(count));
}

std::size_t Authority::respond(Bytes bytes, const Client& client, std::span<std::uint8_t> out) const noexcept {
    const auto parsed = read_query(bytes);
    if (parsed.action == ParsedQuery::Action::drop) return 0;
    const auto& query = parsed.query;
    const auto& options = state_->options;
    const auto& clock = state_->clock;
    Request request{.bytes = bytes, .query = query, .client = client};

    const Epochs<ThreadState>::Reader reader(state_->epochs);
    auto& self = reader.local();
    self.queries.add();
    if (!request.is_udp()) self.tcp.add();

    check_options(parsed, options, request);
    ReplyOptions reply;
    write_reply_options(request, options, clock, self, reply);

    const std::size_t limit = !request.is_udp() ? 0xFFFF : query.edns ? std::min(query.edns->size, options.udp_size) : 512;
    Writer writer(out, limit, query, bytes);
    if (reply.writer.size() > 0) writer.reserve_for_options(reply.writer.size());
    // Load the snapshot after entering the epoch: the reader keeps it alive from here on.
    const auto& snapshot = *state_->current_snapshot.load();
    ResponseBuilder builder(options, snapshot, self, query, client, request.options, clock, writer);
    build_response(request, state_->suspended.load(std::memory_order_relaxed), self, builder);

    auto& header = builder.header;
    const bool is_limited = request.is_udp() && !reply.has_valid_cookie && state_->rate_limit.is_enabled();
    if (is_limited && !apply_rate_limit(state_->rate_limit, request, clock, self, builder, writer)) {
        log_query(request, header.rcode, 0, options, clock, self);
        return 0;
    }
    if (reply.scope_offset != 0) reply.writer[reply.scope_offset] = builder.scope;
    if (builder.extended_error && query.edns) write_extended_error(*builder.extended_error, writer, reply.writer);
    header.options = reply.writer.bytes();
    if (header.truncated) self.truncated.add();
    self.by_rcode[std::min<std::size_t>(static_cast<std::size_t>(header.rcode), counted_rcodes - 1)].add();
    const auto size = writer.finish(header);
    log_query(request, header.rcode, size, options, clock, self);
    return size;
}

} // namespace orrery::dns
