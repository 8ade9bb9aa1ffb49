#include "drivers/rfc2136/update.h"

#include "core/truncate.h"
#include "drivers/dns/name_servers.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace orrery::drivers {

namespace {

using gslb::RecordSet;
using gslb::RecordType;
using Octets = std::vector<std::uint8_t>;

constexpr std::array all_types{RecordType::a, RecordType::aaaa, RecordType::cname};
constexpr std::uint16_t class_in = 1, class_none = 254, class_any = 255, type_soa = 6;
constexpr std::size_t head_size = 12;

std::uint16_t number_of(RecordType type) {
    return type == RecordType::a ? dns::type::a : type == RecordType::aaaa ? dns::type::aaaa : dns::type::cname;
}

Result<Octets> data_of(RecordType type, const std::string& value) {
    boost::system::error_code error;
    if (type == RecordType::a) {
        const auto bytes = asio::ip::make_address_v4(value, error).to_bytes();
        if (!error) return Octets(bytes.begin(), bytes.end());
    } else if (type == RecordType::aaaa) {
        const auto bytes = asio::ip::make_address_v6(value, error).to_bytes();
        if (!error) return Octets(bytes.begin(), bytes.end());
    } else if (const auto name = dns::Name::from_text(value); name.ok()) {
        return Octets(name->wire().begin(), name->wire().end());
    }
    return Error{Code::invalid, fmt::format("\"{}\" is not valid in a record of type {}", truncate(value, 300), name_of(type))};
}

Octets text_data(std::string_view text) {
    Octets out;
    out.push_back(static_cast<std::uint8_t>(std::min<std::size_t>(text.size(), 255)));
    out.insert(out.end(), text.begin(), text.begin() + out[0]);
    return out;
}

/// Writes an update. Owners are compressed against the zone and against each other.
class UpdateWriter {
public:
    UpdateWriter(std::uint16_t id, const dns::Name& zone) : zone_(zone) {
        put16(id);
        put16(5U << 11U); // opcode UPDATE
        put16(1);
        put16(0);
        put16(0);
        put16(0);
        out_.insert(out_.end(), zone.wire().begin(), zone.wire().end());
        put16(type_soa);
        put16(class_in);
    }
    enum class Section { prerequisite = 6, update = 8 }; // the offset of their counts
    void record(Section section, const dns::Name& owner, std::uint16_t type, std::uint16_t dns_class, std::uint32_t ttl,
                const Octets& data) {
        put_owner(owner);
        put16(type);
        put16(dns_class);
        put16(static_cast<std::uint16_t>(ttl >> 16));
        put16(static_cast<std::uint16_t>(ttl));
        put16(static_cast<std::uint16_t>(data.size()));
        out_.insert(out_.end(), data.begin(), data.end());
        auto& count = out_[static_cast<std::size_t>(section) + 1];
        if (++count == 0) ++out_[static_cast<std::size_t>(section)];
    }
    Octets finish() { return std::move(out_); }

private:
    void put16(std::uint16_t value) {
        out_.push_back(static_cast<std::uint8_t>(value >> 8));
        out_.push_back(static_cast<std::uint8_t>(value));
    }
    void put_owner(const dns::Name& owner) {
        if (owner == zone_) return put16(0xC000 | head_size);
        const auto [known, is_new] = owners_.try_emplace(owner.lowered(), out_.size());
        if (!is_new && known->second < 0x4000) return put16(static_cast<std::uint16_t>(0xC000 | known->second));
        // The labels before the zone are written out, then a pointer to the zone.
        const auto own = owner.size() - zone_.size();
        out_.insert(out_.end(), owner.wire().begin(), owner.wire().begin() + static_cast<std::ptrdiff_t>(own));
        put16(0xC000 | head_size);
    }
    dns::Name zone_;
    Octets out_;
    std::map<std::string, std::size_t> owners_;
};

Result<Unit> put_set(UpdateWriter& writer, UpdateWriter::Section section, const dns::Name& owner, const RecordSet& set,
                     std::uint32_t ttl) {
    for (const auto& value : set.values) {
        TRY(const auto data, data_of(set.type, value));
        writer.record(section, owner, number_of(set.type), class_in, ttl, data);
    }
    return Unit{};
}

} // namespace

Result<dns::Name> mark_name(const dns::Name& name) {
    auto out = name;
    if (!out.prepend("_orrery")) return Error{Code::invalid, fmt::format("{} is too long to have an owner mark", name.to_text())};
    return out;
}

std::string mark_text(const RecordSet& set) { return fmt::format("{} {}", name_of(set.type), set.mark); }

std::string mark_for(RecordType type, std::string_view text) {
    const auto begins = fmt::format("{} orrery owner=", name_of(type));
    return text.starts_with(begins) ? std::string(text.substr(name_of(type).size() + 1)) : std::string();
}

Result<std::vector<std::uint8_t>> update_message(std::uint16_t id, const dns::Name& zone, const gslb::Change& change) {
    TRY(const auto name, dns::Name::from_text(change.name));
    if (!name.is_within(zone))
        return Error{Code::invalid, fmt::format("{} is not within the zone {}", change.name, zone.to_text())};
    TRY(const auto marks, mark_name(name));
    UpdateWriter writer(id, zone);
    using enum UpdateWriter::Section;
    for (const auto type : all_types) {
        if (const auto* set = gslb::find(change.before, type)) {
            TRY(std::ignore, put_set(writer, prerequisite, name, *set, 0));
        } else {
            writer.record(prerequisite, name, number_of(type), class_none, 0, {});
        }
    }

    // Removals come first: a server ignores an alias that is added beside addresses, and addresses beside an alias.
    for (const auto& set : change.before) {
        const auto* kept_set = gslb::find(change.after, set.type);
        if (kept_set == nullptr || !kept_set->same_data(set)) writer.record(update, name, number_of(set.type), class_any, 0, {});
    }
    for (const auto& set : change.after) {
        const auto* before = gslb::find(change.before, set.type);
        if (before == nullptr || !before->same_data(set)) {
            TRY(std::ignore, put_set(writer, update, name, set, set.ttl));
        }
    }
    writer.record(update, marks, dns::type::txt, class_any, 0, {});
    for (const auto& set : change.after)
        if (!set.mark.empty()) writer.record(update, marks, dns::type::txt, class_in, set.ttl, text_data(mark_text(set)));
    return writer.finish();
}

Result<std::vector<std::uint8_t>> replacement_message(std::uint16_t id, const dns::Name& zone,
                                                      const std::vector<Replacement>& all) {
    UpdateWriter writer(id, zone);
    for (const auto& [name, set] : all) {
        writer.record(UpdateWriter::Section::update, name, number_of(set.type), class_any, 0, {});
        TRY(std::ignore, put_set(writer, UpdateWriter::Section::update, name, set, set.ttl));
    }
    return writer.finish();
}

Result<Unit> update_outcome(dns::Rcode rcode, std::string_view server, const dns::Name& zone) {
    const auto error = [&](Code code, std::string_view message, std::string remedy = {}) {
        return Error{code, fmt::format("{} answers {}: {}", server, rcode_text(rcode), message), std::move(remedy)};
    };
    switch (static_cast<int>(rcode)) {
    case 0: return Unit{};
    case 3: // NXDOMAIN
    case 6: // YXDOMAIN
    case 7: // YXRRSET
    case 8: // NXRRSET
        return error(Code::conflict, "the records changed after they were read");
    case 5: return error(Code::denied, "updates are not allowed", "allow the key to update the zone on the server");
    case 9:
        return error(Code::not_found, fmt::format("the server is not the primary of {}", zone.to_text()),
                     "use the primary server, and a zone that it serves");
    case 1:
    case 10: return error(Code::invalid, "the server cannot process the update");
    case 4: return error(Code::unsupported, "the server does not support updates");
    default: return error(Code::unavailable, "the server cannot process updates now");
    }
}

} // namespace orrery::drivers
