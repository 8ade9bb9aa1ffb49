#include "dns/message.h"

#include "dns/rdata.h"
#include "dns/zone_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

namespace orrery::dns {

namespace {

constexpr std::size_t opt_size = 11;

std::uint16_t get16(Bytes bytes, std::size_t at) { return static_cast<std::uint16_t>(bytes[at] << 8 | bytes[at + 1]); }
std::uint32_t get32(Bytes bytes, std::size_t at) {
    return static_cast<std::uint32_t>(get16(bytes, at)) << 16 | get16(bytes, at + 2);
}

/// Skips an owner name without following compression pointers. False if it is incomplete.
bool skip_name(Bytes bytes, std::size_t& at) {
    for (;;) {
        if (at >= bytes.size()) return false;
        const auto c = bytes[at];
        if (c == 0) {
            ++at;
            return true;
        }
        if ((c & 0xC0) == 0xC0) {
            at += 2;
            return at <= bytes.size();
        }
        if ((c & 0xC0) != 0) return false;
        at += 1U + c;
    }
}

bool options_are_complete(Bytes options) {
    std::size_t at = 0;
    while (at < options.size()) {
        if (at + 4 > options.size()) return false;
        const std::size_t length = get16(options, at + 2);
        at += 4 + length;
        if (at > options.size()) return false;
    }
    return true;
}

} // namespace

ParsedQuery read_query(Bytes bytes) {
    ParsedQuery out;
    if (bytes.size() < 12) return out;
    auto& query = out.query;
    query.id = get16(bytes, 0);
    const auto flags = get16(bytes, 2);
    if ((flags & 0x8000) != 0) return out; // a response
    query.opcode = static_cast<std::uint8_t>(flags >> 11 & 0xF);
    query.recursion_desired = (flags & 0x0100) != 0;
    query.checking_disabled = (flags & 0x0010) != 0;
    const auto reject = [&](Rcode rcode) {
        out.action = ParsedQuery::Action::reject;
        out.rcode = rcode;
        return out;
    };
    if (query.opcode != 0) return reject(Rcode::notimp);
    const auto questions = get16(bytes, 4), answers = get16(bytes, 6), authorities = get16(bytes, 8),
               additionals = get16(bytes, 10);
    if (questions > 1) return reject(Rcode::formerr);
    std::size_t at = 12;
    if (questions == 1) {
        if (!query.name.read(bytes, at, Name::Pointers::no) || at + 4 > bytes.size()) return reject(Rcode::formerr);
        query.type = get16(bytes, at);
        query.dns_class = get16(bytes, at + 2);
        at += 4;
        query.question_end = at;
    }
    // A record has at least 11 bytes, so the loop is bounded by the packet, not by the counts in its header.
    const std::size_t records = static_cast<std::size_t>(answers) + authorities + additionals;
    for (std::size_t i = 0; i < records; ++i) {
        const bool at_root = at < bytes.size() && bytes[at] == 0;
        if (!skip_name(bytes, at) || at + 10 > bytes.size()) return reject(Rcode::formerr);
        const auto record_type = get16(bytes, at), record_class = get16(bytes, at + 2);
        const auto ttl = get32(bytes, at + 4);
        const std::size_t length = get16(bytes, at + 8);
        at += 10;
        if (at + length > bytes.size()) return reject(Rcode::formerr);
        if (record_type == type::opt && i >= static_cast<std::size_t>(answers) + authorities) {
            const auto options = bytes.subspan(at, length);
            if (query.edns || !at_root || !options_are_complete(options)) {
                query.edns.reset();
                return reject(Rcode::formerr);
            }
            query.edns = Edns{std::max<std::uint16_t>(512, record_class), (ttl & 0x8000) != 0, (ttl & 0x4000) != 0, options};
            if ((ttl >> 16 & 0xFF) != 0) return reject(Rcode::badvers);
        }
        at += length;
    }
    if (questions == 0) return reject(Rcode::formerr);
    out.action = ParsedQuery::Action::answer;
    return out;
}

Writer::Writer(std::span<std::uint8_t> out, std::size_t limit, const Query& query, Bytes query_bytes)
    : out_(out), limit_(std::min(limit, out.size())), query_(query) {
    std::memset(out_.data(), 0, 12);
    const auto question = query.question_end - 12;
    if (question > 0 && query.question_end <= std::min(limit_, query_bytes.size())) {
        std::memcpy(&out_[12], &query_bytes[12], question);
        at_ = query.question_end;
        // Compression pointers may refer to every suffix of the query name.
        for (std::size_t here = 12; out_[here] != 0 && name_count_ < name_offsets_.size(); here += 1U + out_[here])
            name_offsets_[name_count_++] = static_cast<std::uint16_t>(here);
    }
    body_at_ = at_;
    question_name_count_ = name_count_;
    if (query.edns) reserved_ = opt_size;
    limit_ -= std::min(limit_, reserved_);
}

void Writer::reserve_for_options(std::size_t bytes) {
    if (!query_.edns) return;
    reserved_ += bytes;
    limit_ -= std::min(limit_, bytes);
}

bool Writer::records(Section section, Bytes bytes, std::uint16_t count) {
    auto& counted = counts_[static_cast<std::size_t>(section)];
    if (count > 0xFFFF - counted || !put(bytes.data(), bytes.size())) return false;
    counted = static_cast<std::uint16_t>(counted + count);
    return true;
}

void Writer::clear() {
    at_ = body_at_;
    name_count_ = question_name_count_;
    counts_ = {};
}

bool Writer::put(const void* data, std::size_t size) {
    if (at_ + size > limit_) return false;
    if (size > 0) std::memcpy(&out_[at_], data, size);
    at_ += size;
    return true;
}

bool Writer::put16(std::uint16_t value) {
    const std::array<std::uint8_t, 2> bytes{static_cast<std::uint8_t>(value >> 8), static_cast<std::uint8_t>(value)};
    return put(bytes.data(), bytes.size());
}

bool Writer::put32(std::uint32_t value) {
    return put16(static_cast<std::uint16_t>(value >> 16)) && put16(static_cast<std::uint16_t>(value));
}

namespace {
/// Is the name at offset `at` of the message equal to `wire`, ignoring case?
bool same_name(std::span<const std::uint8_t> out, std::size_t at, Bytes wire) {
    std::size_t i = 0;
    for (;;) {
        while ((out[at] & 0xC0) == 0xC0) at = static_cast<std::size_t>(out[at] & 0x3F) << 8 | out[at + 1];
        const auto length = out[at];
        if (length != wire[i]) return false;
        if (length == 0) return true;
        for (std::size_t k = 1; k <= length; ++k)
            if (lower(out[at + k]) != lower(wire[i + k])) return false;
        at += 1U + length;
        i += 1U + length;
    }
}
} // namespace

bool Writer::put_name(const Name& name, bool compress) {
    const auto wire = name.wire();
    std::size_t i = 0;
    const auto names_before = name_count_;
    while (wire[i] != 0) {
        if (compress)
            for (std::size_t k = 0; k < names_before; ++k)
                if (same_name(out_, name_offsets_[k], wire.subspan(i)))
                    return put16(static_cast<std::uint16_t>(0xC000 | name_offsets_[k]));
        if (at_ < 0x4000 && name_count_ < name_offsets_.size()) name_offsets_[name_count_++] = static_cast<std::uint16_t>(at_);
        if (!put(&wire[i], 1U + wire[i])) return false;
        i += 1U + wire[i];
    }
    return put(&wire[i], 1);
}

bool Writer::begin(const Name& owner, std::uint16_t record_type, std::uint16_t record_class, std::uint32_t ttl) {
    return put_name(owner) && put16(record_type) && put16(record_class) && put32(ttl);
}

bool Writer::end(Section section, Mark mark, std::size_t length_at, bool fits) {
    auto& counted = counts_[static_cast<std::size_t>(section)];
    for (auto later = static_cast<std::size_t>(section) + 1; later < counts_.size(); ++later) assert(counts_.at(later) == 0);
    if (!fits || counted == 0xFFFF) {
        at_ = mark.at;
        name_count_ = mark.names;
        return false;
    }
    const auto length = at_ - length_at - 2;
    out_[length_at] = static_cast<std::uint8_t>(length >> 8);
    out_[length_at + 1] = static_cast<std::uint8_t>(length);
    ++counted;
    return true;
}

bool Writer::raw(Section section, const Name& owner, std::uint16_t record_type, std::uint16_t record_class, std::uint32_t ttl,
                 Bytes data) {
    const Mark mark{at_, name_count_};
    bool fits = data.size() <= 0xFFFF && begin(owner, record_type, record_class, ttl);
    const auto length_at = at_;
    fits = fits && put16(0) && put(data.data(), data.size());
    return end(section, mark, length_at, fits);
}

bool Writer::a(Section section, const Name& owner, std::uint32_t ttl, std::array<std::uint8_t, 4> address) {
    return raw(section, owner, type::a, dns_class::in, ttl, address);
}

bool Writer::aaaa(Section section, const Name& owner, std::uint32_t ttl, const std::array<std::uint8_t, 16>& address) {
    return raw(section, owner, type::aaaa, dns_class::in, ttl, address);
}

bool Writer::name(Section section, const Name& owner, std::uint16_t record_type, std::uint32_t ttl, const Name& target) {
    const Mark mark{at_, name_count_};
    bool fits = begin(owner, record_type, dns_class::in, ttl);
    const auto length_at = at_;
    fits = fits && put16(0) && put_name(target);
    return end(section, mark, length_at, fits);
}

bool Writer::srv(Section section, const Name& owner, std::uint32_t ttl, std::uint16_t priority, std::uint16_t weight,
                 std::uint16_t port, const Name& target) {
    const Mark mark{at_, name_count_};
    bool fits = begin(owner, type::srv, dns_class::in, ttl);
    const auto length_at = at_;
    // RFC 2782: the target is not compressed. Later names may still refer to it.
    fits = fits && put16(0) && put16(priority) && put16(weight) && put16(port) && put_name(target, false);
    return end(section, mark, length_at, fits);
}

bool Writer::txt(Section section, const Name& owner, std::uint32_t ttl, std::string_view text) {
    const Mark mark{at_, name_count_};
    bool fits = begin(owner, type::txt, dns_class::in, ttl);
    const auto length_at = at_;
    fits = fits && put16(0);
    do {
        const auto piece = text.substr(0, 255);
        const auto length = static_cast<std::uint8_t>(piece.size());
        fits = fits && put(&length, 1) && put(piece.data(), piece.size());
        text.remove_prefix(piece.size());
    } while (fits && !text.empty());
    return end(section, mark, length_at, fits && at_ - length_at - 2 <= 0xFFFF);
}

bool Writer::soa(Section section, const Name& owner, std::uint32_t ttl, const Soa& soa) {
    const Mark mark{at_, name_count_};
    bool fits = begin(owner, type::soa, dns_class::in, ttl);
    const auto length_at = at_;
    fits = fits && put16(0) && put_name(soa.mname) && put_name(soa.rname) && put32(soa.serial) && put32(soa.refresh) &&
           put32(soa.retry) && put32(soa.expire) && put32(soa.minimum);
    return end(section, mark, length_at, fits);
}

std::size_t Writer::finish(const Header& header) {
    const auto rcode = static_cast<std::uint16_t>(header.rcode);
    if (query_.edns) {
        limit_ = std::min(limit_ + reserved_, out_.size());
        const auto extended = static_cast<std::uint32_t>(rcode >> 4) << 24 | (query_.edns->dnssec_ok ? 0x8000U : 0U);
        const std::uint8_t root = 0;
        if (put(&root, 1) && put16(type::opt) && put16(header.edns_size) && put32(extended) &&
            put16(static_cast<std::uint16_t>(header.options.size())) && put(header.options.data(), header.options.size()))
            ++counts_[static_cast<std::size_t>(Section::additional)];
    }
    const std::uint16_t flags = static_cast<std::uint16_t>(
        0x8000 | query_.opcode << 11 | (header.authoritative ? 0x0400 : 0) | (header.truncated ? 0x0200 : 0) |
        (query_.recursion_desired ? 0x0100 : 0) | (query_.checking_disabled ? 0x0010 : 0) | (rcode & 0xF));
    const auto set16 = [&](std::size_t at, std::uint16_t value) {
        out_[at] = static_cast<std::uint8_t>(value >> 8);
        out_[at + 1] = static_cast<std::uint8_t>(value);
    };
    set16(0, query_.id);
    set16(2, flags);
    set16(4, body_at_ > 12 ? 1 : 0);
    for (std::size_t i = 0; i < 3; ++i) set16(6 + 2 * i, counts_[i]);
    return at_;
}

std::size_t write_error(std::span<std::uint8_t> out, const Query& query, Bytes query_bytes, Rcode rcode) {
    Writer writer(out, out.size(), query, query_bytes);
    return writer.finish({.rcode = rcode, .authoritative = false});
}

namespace {

bool read_records(Bytes bytes, std::size_t& at, std::size_t count, std::vector<Record>& out, Message& message) {
    for (std::size_t i = 0; i < count; ++i) {
        Record record;
        if (!record.owner.read(bytes, at, Name::Pointers::yes) || at + 10 > bytes.size()) return false;
        record.type = get16(bytes, at);
        record.dns_class = get16(bytes, at + 2);
        record.ttl = get32(bytes, at + 4);
        const std::size_t length = get16(bytes, at + 8);
        at += 10;
        if (at + length > bytes.size()) return false;
        if (record.type == type::opt) {
            if (message.edns_size || !record.owner.is_root()) return false;
            message.edns_size = record.dns_class;
            message.rcode = static_cast<Rcode>(static_cast<std::uint16_t>(message.rcode) | (record.ttl >> 24) << 4);
            message.dnssec_ok = (record.ttl & 0x8000) != 0;
            message.options.assign(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                   bytes.begin() + static_cast<std::ptrdiff_t>(at + length));
            at += length;
            continue;
        }
        // Names in the RDATA may be compressed; the copy is uncompressed.
        std::size_t plain = 0, names = 0, tail = 0;
        switch (record.type) {
        case type::ns:
        case type::cname:
        case type::ptr: names = 1; break;
        case type::mx: plain = 2, names = 1; break;
        case type::srv: plain = 6, names = 1; break;
        case type::soa: names = 2, tail = 20; break;
        default: plain = length;
        }
        const auto end = at + length;
        if (plain > length) return false;
        record.data.assign(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                           bytes.begin() + static_cast<std::ptrdiff_t>(at + plain));
        at += plain;
        for (std::size_t k = 0; k < names; ++k) {
            Name name;
            if (!name.read(bytes.first(end), at, Name::Pointers::yes)) return false;
            record.data.insert(record.data.end(), name.wire().begin(), name.wire().end());
        }
        if (names > 0) {
            if (at + tail != end) return false;
            record.data.insert(record.data.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                               bytes.begin() + static_cast<std::ptrdiff_t>(end));
        }
        at = end;
        out.push_back(std::move(record));
    }
    return true;
}

} // namespace

Result<Message> read_message(Bytes bytes) {
    const Error bad{Code::invalid, "the DNS message is incomplete or malformed"};
    if (bytes.size() < 12) return bad;
    Message out;
    out.id = get16(bytes, 0);
    const auto flags = get16(bytes, 2);
    out.response = (flags & 0x8000) != 0;
    out.opcode = static_cast<std::uint8_t>(flags >> 11 & 0xF);
    out.authoritative = (flags & 0x0400) != 0;
    out.truncated = (flags & 0x0200) != 0;
    out.recursion_desired = (flags & 0x0100) != 0;
    out.recursion_available = (flags & 0x0080) != 0;
    out.rcode = static_cast<Rcode>(flags & 0xF);
    std::size_t at = 12;
    const auto questions = get16(bytes, 4);
    if (questions > 1) return bad;
    if (questions == 1) {
        if (!out.name.read(bytes, at, Name::Pointers::no) || at + 4 > bytes.size()) return bad;
        out.type = get16(bytes, at);
        out.dns_class = get16(bytes, at + 2);
        out.has_question = true;
        at += 4;
    }
    if (!read_records(bytes, at, get16(bytes, 6), out.answer, out) ||
        !read_records(bytes, at, get16(bytes, 8), out.authority, out) ||
        !read_records(bytes, at, get16(bytes, 10), out.additional, out))
        return bad;
    return out;
}

std::string Record::to_text() const {
    const auto head = [&](std::string_view name) { return fmt::format("{} {} {}", owner.to_text(), ttl, name); };
    const Bytes bytes(data);
    const auto name_at = [&](std::size_t at) {
        Name name;
        return name.read(bytes, at, Name::Pointers::no) ? name.to_text() : std::string("?");
    };
    switch (type) {
    case type::a:
        if (data.size() == 4) return fmt::format("{} {}.{}.{}.{}", head("A"), data[0], data[1], data[2], data[3]);
        break;
    case type::aaaa: {
        if (data.size() != 16) break;
        auto text = head("AAAA") + " ";
        for (std::size_t i = 0; i < 16; i += 2) text += fmt::format("{}{:x}", i == 0 ? "" : ":", get16(bytes, i));
        return text;
    }
    case type::ns: return head("NS") + " " + name_at(0);
    case type::cname: return head("CNAME") + " " + name_at(0);
    case type::ptr: return head("PTR") + " " + name_at(0);
    case type::srv:
        if (data.size() > 6)
            return fmt::format("{} {} {} {} {}", head("SRV"), get16(bytes, 0), get16(bytes, 2), get16(bytes, 4), name_at(6));
        break;
    case type::soa: return head("SOA") + " " + name_at(0);
    case type::svcb:
    case type::https:
        if (is_svcb(bytes)) return fmt::format("{} {}", head(type_name(type)), svcb_text(bytes));
        break;
    case type::txt: {
        auto text = head("TXT");
        for (std::size_t at = 0; at < data.size(); at += 1U + data[at])
            text += fmt::format(" \"{}\"", std::string_view(reinterpret_cast<const char*>(&data[at]) + 1,
                                                            std::min<std::size_t>(data[at], data.size() - at - 1)));
        return text;
    }
    default: break;
    }
    return fmt::format("{} {} bytes", head(fmt::format("TYPE{}", type)), data.size());
}

std::vector<std::uint8_t> write_query(std::uint16_t id, const Name& name, std::uint16_t query_type,
                                      std::optional<std::uint16_t> edns_size) {
    std::vector<std::uint8_t> out{static_cast<std::uint8_t>(id >> 8), static_cast<std::uint8_t>(id), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    out.insert(out.end(), name.wire().begin(), name.wire().end());
    for (const auto value : {query_type, dns_class::in}) {
        out.push_back(static_cast<std::uint8_t>(value >> 8));
        out.push_back(static_cast<std::uint8_t>(value));
    }
    if (edns_size) {
        out[11] = 1;
        for (const int byte : {0, 0, 41, *edns_size >> 8, *edns_size & 0xFF, 0, 0, 0, 0, 0, 0})
            out.push_back(static_cast<std::uint8_t>(byte));
    }
    return out;
}

} // namespace orrery::dns
