#include "dns/snapshot.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::dns {

namespace {

constexpr int max_transfers = 8;
constexpr std::size_t message_size = 16384; ///< what is further back than this cannot be pointed to

/// A zone's records in as many messages as they need, the SOA at both ends (RFC 5936).
class ZoneTransfer final : public Transfer {
public:
    ZoneTransfer(std::shared_ptr<std::atomic<int>> active, Bytes query, std::vector<ZoneRecord> records)
        : active_(std::move(active)),
          bytes_(query.begin(), query.end()),
          reading_(read_query(bytes_)),
          records_(std::move(records)) {}
    ~ZoneTransfer() override { active_->fetch_sub(1); }

    std::size_t next(std::span<std::uint8_t> out) override {
        if (at_ == records_.size()) return 0;
        Writer writer(out, std::min(message_size, out.size()), reading_.query, bytes_);
        const auto put = [&](Writer& into) {
            const auto before = at_;
            while (at_ < records_.size() && into.raw(Writer::Section::answer, records_[at_].owner, records_[at_].type,
                                                     dns_class::in, records_[at_].ttl, records_[at_].data))
                ++at_;
            return at_ > before;
        };
        if (put(writer)) return writer.finish({});
        // One that is larger than a message of the usual size has one to itself.
        Writer large(out, out.size(), reading_.query, bytes_);
        if (!large.raw(Writer::Section::answer, records_[at_].owner, records_[at_].type, dns_class::in, records_[at_].ttl,
                       records_[at_].data))
            return 0;
        ++at_;
        return large.finish({});
    }

private:
    std::shared_ptr<std::atomic<int>> active_;
    std::vector<std::uint8_t> bytes_;
    Reading reading_;
    std::vector<ZoneRecord> records_;
    std::size_t at_ = 0;
};

std::uint32_t serial_in(const std::vector<std::uint8_t>& soa) {
    std::uint32_t out = 0;
    for (std::size_t i = soa.size() - 20; i < soa.size() - 16; ++i) out = out << 8 | soa[i];
    return out;
}

} // namespace

Result<std::vector<ZoneRecord>> Authority::zone_records(const Name& origin) const {
    const std::lock_guard lock(state_->writing);
    const auto at = state_->zones.find(NameKey(origin).text());
    if (at == state_->zones.end()) return Error{Code::not_found, fmt::format("there is no zone {}", origin.to_text())};
    const auto& zone = *at->second;
    std::vector<ZoneRecord> out(1); // the SOA's place
    for (const auto& [key, sets] : zone.statics) {
        const auto owner = name_of_key(key);
        for (const auto& set : sets)
            for (const auto& data : set.data) {
                if (set.type != type::soa) {
                    out.push_back({owner, set.type, set.ttl, data, 0});
                    continue;
                }
                out[0] = {zone.name, set.type, set.ttl, data, 0};
                for (std::size_t i = 0; i < 4; ++i)
                    out[0].data[data.size() - 20 + i] = static_cast<std::uint8_t>(zone.serial >> 8 * (3 - i));
            }
    }
    for (const auto& [key, tailored] : zone.dynamics) {
        const auto owner = name_of_key(key);
        const ReadyChoice ready(tailored->choices.front());
        if (ready.choice.alias) {
            const auto wire = ready.choice.alias->wire();
            out.push_back({owner, type::cname, ready.choice.ttl, {wire.begin(), wire.end()}, 0});
        }
        for (const auto& [record_type, family] : {std::pair(type::a, &ready.v4), std::pair(type::aaaa, &ready.v6)}) {
            RecordViews records(family->all);
            for (RecordView record; records.next(record);)
                out.push_back({owner, record_type, record.ttl, {record.data.begin(), record.data.end()}, 0});
        }
    }
    return out;
}

std::unique_ptr<Transfer> Authority::transfer(Bytes query, const Asker& asker) const noexcept {
    const auto& allowed = state_->options.transfer_to;
    if (allowed.empty() || asker.transport != Asker::Transport::tcp) return nullptr;
    const auto reading = read_query(query);
    if (reading.what != Reading::What::answer || reading.query.dns_class != dns_class::in ||
        (reading.query.type != type::axfr && reading.query.type != type::ixfr))
        return nullptr;
    if (std::none_of(allowed.begin(), allowed.end(), [&](const Prefix& prefix) { return holds(prefix, asker.address, asker.v6); }))
        return nullptr;
    auto records = zone_records(reading.query.name);
    if (!records.ok()) return nullptr;
    if (state_->transfers->fetch_add(1) >= max_transfers) {
        state_->transfers->fetch_sub(1);
        return nullptr;
    }
    bool current = false;
    if (reading.query.type == type::ixfr) {
        // RFC 1995: who has this serial, or a later one, needs nothing; all others get the whole zone.
        const auto message = read_message(query);
        if (message.ok() && message->authority.size() == 1 && message->authority[0].type == type::soa &&
            message->authority[0].data.size() >= 20)
            current = static_cast<std::int32_t>(serial_in(message->authority[0].data) - serial_in(records->front().data)) >= 0;
    }
    if (current)
        records->resize(1);
    else
        records->push_back(records->front());
    return std::make_unique<ZoneTransfer>(state_->transfers, query, std::move(*records));
}

} // namespace orrery::dns
