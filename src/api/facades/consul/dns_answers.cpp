#include "api/facades/consul/dns_answers.h"

#include "catalog/json_read.h"
#include "dns/message.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <set>
#include <unordered_map>

namespace orrery::api::consul {

namespace {

using catalog::lowered;
using dns::Name;
using dns::Rcode;
using Section = dns::Writer::Section;
namespace type = dns::type;

/// Where something is: an address of either kind, or a host name.
struct Whereabouts {
    enum class Kind { nowhere, v4, v6, host };
    Kind kind = Kind::nowhere;
    std::array<std::uint8_t, 4> v4{};
    std::array<std::uint8_t, 16> v6{};
    Name host;

    static Whereabouts of(const std::string& text) {
        Whereabouts out;
        boost::system::error_code error;
        const auto address = boost::asio::ip::make_address(text, error);
        if (!error && address.is_v4()) {
            out.kind = Kind::v4;
            out.v4 = address.to_v4().to_bytes();
        } else if (!error) {
            out.kind = Kind::v6;
            out.v6 = address.to_v6().to_bytes();
        } else if (auto name = Name::from_text(text); name.ok() && !name->is_root()) {
            out.kind = Kind::host;
            out.host = *name;
        }
        return out;
    }
    /// Which records of the asked type it has.
    bool answers(std::uint16_t asked) const {
        return (kind == Kind::v4 && (asked == type::a || asked == type::any)) ||
               (kind == Kind::v6 && (asked == type::aaaa || asked == type::any));
    }
    bool write(dns::Writer& writer, Section section, const Name& owner, std::uint32_t ttl) const {
        switch (kind) {
        case Kind::v4: return writer.a(section, owner, ttl, v4);
        case Kind::v6: return writer.aaaa(section, owner, ttl, v6);
        case Kind::host: return writer.name(section, owner, type::cname, ttl, host);
        case Kind::nowhere: return true;
        }
        return true;
    }
    std::string key() const {
        return kind == Kind::v4   ? std::string(v4.begin(), v4.end())
               : kind == Kind::v6 ? std::string(v6.begin(), v6.end())
                                  : "host " + host.lowered();
    }
};

struct Endpoint {
    Whereabouts where; ///< of the instance
    Name target;       ///< of an SRV record
    std::uint16_t port = 0, weight = 1;
    std::vector<std::string> tags; ///< in lower case
    std::vector<std::string> meta; ///< the node's, where the target is the node
    bool target_is_ours = true;    ///< its address goes into the additional section
};
using Endpoints = std::vector<Endpoint>;

struct NodeNames {
    struct One {
        Whereabouts where;
        std::vector<std::string> meta; ///< "key=value"
    };
    std::unordered_map<std::string, One> nodes;       ///< by lower-case name
    std::unordered_map<std::string, Name> by_address; ///< for PTR
};

struct Snapshot {
    std::unordered_map<std::string, std::shared_ptr<const Endpoints>> services; ///< by lower-case name
    std::shared_ptr<const NodeNames> nodes = std::make_shared<NodeNames>();
    std::unordered_map<std::string, Name> service_addresses; ///< of instances, for PTR
};

std::vector<std::string> meta_words(const std::map<std::string, std::string>& meta) {
    std::vector<std::string> out;
    for (const auto& [key, value] : meta) // RFC 1464, and as they are where the key says so
        out.push_back(key.starts_with("rfc1035-") ? value : fmt::format("{}={}", key, value));
    return out;
}

std::mt19937& dice() {
    thread_local std::mt19937 random{std::random_device{}()};
    return random;
}

std::optional<std::vector<std::uint8_t>> from_hex(std::string_view text) {
    if (text.size() % 2 != 0) return std::nullopt;
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i < text.size(); i += 2) {
        int value = 0;
        for (const char c : text.substr(i, 2)) {
            const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
            if (digit < 0) return std::nullopt;
            value = value * 16 + digit;
        }
        out.push_back(static_cast<std::uint8_t>(value));
    }
    return out;
}

/// "5.0.0.10.in-addr.arpa" as the bytes of the address.
std::optional<std::string> reverse_address(const std::vector<std::string>& labels) {
    const auto count = labels.size();
    if (count == 6 && labels[4] == "in-addr" && labels[5] == "arpa") {
        std::string out;
        for (int i = 3; i >= 0; --i) {
            const auto& label = labels[static_cast<std::size_t>(i)];
            if (label.empty() || label.size() > 3 || label.find_first_not_of("0123456789") != std::string::npos ||
                std::stoi(label) > 255)
                return std::nullopt;
            out += static_cast<char>(std::stoi(label));
        }
        return out;
    }
    if (count == 34 && labels[32] == "ip6" && labels[33] == "arpa") {
        std::string digits;
        for (int i = 31; i >= 0; --i) {
            if (labels[static_cast<std::size_t>(i)].size() != 1) return std::nullopt;
            digits += labels[static_cast<std::size_t>(i)];
        }
        if (auto bytes = from_hex(digits)) return std::string(bytes->begin(), bytes->end());
    }
    return std::nullopt;
}

} // namespace

struct DnsAnswers::State {
    explicit State(Options options_) : options(std::move(options_)) {
        domain = Name::from_text(options.domain).value_or(Name());
        options.datacenter = lowered(options.datacenter);
        mname = named("ns");
        rname = named("hostmaster");
        ns = node_name(options.name_server).value_or(mname);
        snapshot.store(std::make_shared<const Snapshot>());
    }

    Name named(std::string_view label) const {
        auto out = domain;
        out.prepend(label);
        return out;
    }
    /// "<node>.node.<dc>.<domain>"; nothing where the node's name is none for DNS.
    std::optional<Name> node_name(std::string_view node) const {
        auto first = Name::from_text(node);
        auto rest = domain;
        if (!first.ok() || first->is_root() || !rest.prepend(options.datacenter) || !rest.prepend("node") || !first->append(rest))
            return std::nullopt;
        return *first;
    }
    std::optional<Name> address_name(const Whereabouts& where) const {
        std::string hex;
        const auto put = [&](const auto& bytes) {
            for (const auto byte : bytes) hex += fmt::format("{:02x}", byte);
        };
        if (where.kind == Whereabouts::Kind::v4)
            put(where.v4);
        else
            put(where.v6);
        auto out = domain;
        if (!out.prepend(options.datacenter) || !out.prepend("addr") || !out.prepend(hex)) return std::nullopt;
        return out;
    }

    // --- The loop's side --------------------------------------------------------------------------------------------

    std::shared_ptr<const Endpoints> endpoints_of(const std::string& service) const {
        auto out = std::make_shared<Endpoints>();
        for (const auto& instance : catalog->instances(service)) {
            if (instance->state == catalog::State::registered) continue;
            if (options.only_passing && instance->state != catalog::State::passing) continue;
            Endpoint endpoint;
            endpoint.where = Whereabouts::of(instance->address);
            if (endpoint.where.kind == Whereabouts::Kind::nowhere) continue;
            endpoint.port = instance->port;
            endpoint.weight = static_cast<std::uint16_t>(
                instance->worst == catalog::CheckStatus::warning ? instance->weight_warning : instance->weight_passing);
            for (const auto& tag : instance->tags) endpoint.tags.push_back(lowered(tag));
            const bool at_node = instance->own_address.empty() || (instance->on && instance->own_address == instance->on->address);
            if (endpoint.where.kind == Whereabouts::Kind::host) {
                endpoint.target = endpoint.where.host;
                endpoint.target_is_ours = false;
            } else if (auto target =
                           at_node ? node_name(instance->on ? instance->on->name : instance->node) : address_name(endpoint.where)) {
                endpoint.target = *target;
                if (at_node && instance->on) endpoint.meta = meta_words(instance->on->meta);
            } else {
                continue;
            }
            out->push_back(std::move(endpoint));
        }
        return out;
    }

    std::shared_ptr<const NodeNames> all_nodes() const {
        auto out = std::make_shared<NodeNames>();
        for (const auto& node : catalog->nodes()) {
            NodeNames::One one{Whereabouts::of(node->address), meta_words(node->meta)};
            if (const auto name = node_name(node->name); name && one.where.kind != Whereabouts::Kind::host)
                out->by_address.emplace(one.where.key(), *name);
            out->nodes.emplace(lowered(node->name), std::move(one));
        }
        return out;
    }

    void renew() {
        is_posted = false;
        if (catalog == nullptr) return;
        auto next = std::make_shared<Snapshot>(*snapshot.load());
        if (std::exchange(all_dirty, false)) {
            next->services.clear();
            dirty.clear();
            for (const auto& service : catalog->services()) dirty.insert(lowered(service));
        }
        if (std::exchange(nodes_dirty, false)) next->nodes = all_nodes();
        for (const auto& service : dirty) {
            auto endpoints = endpoints_of(service);
            if (endpoints->empty())
                next->services.erase(service);
            else
                next->services[service] = std::move(endpoints);
        }
        dirty.clear();
        snapshot.store(std::shared_ptr<const Snapshot>(std::move(next)));
    }

    // --- The answering side -----------------------------------------------------------------------------------------

    struct Asked {
        const dns::Query& query;
        const dns::Asker& asker;
        dns::Writer& writer;
        const Snapshot& now;
        std::size_t limit;
        bool few_answers; ///< UDP without room
    };
    struct Outcome {
        Rcode rcode = Rcode::noerror;
        bool authoritative = true, truncated = false;
    };

    dns::Writer::Soa soa() const {
        const auto seconds =
            std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
        return {.mname = mname, .rname = rname, .serial = static_cast<std::uint32_t>(seconds)};
    }
    Outcome negative(Asked& asked, Rcode rcode) const {
        asked.writer.clear();
        asked.writer.soa(Section::authority, domain, 0, soa());
        return {.rcode = rcode};
    }

    Outcome answer(Asked& asked) const {
        const auto& query = asked.query;
        if (query.type == type::axfr || query.type == type::ixfr || query.type == type::maila || query.type == type::mailb)
            return {.rcode = Rcode::notimp, .authoritative = false};
        if (query.dns_class != dns::dns_class::in && query.dns_class != dns::dns_class::any)
            return {.rcode = Rcode::refused, .authoritative = false};
        std::vector<std::string> labels;
        for (const auto label : query.name.labels()) labels.push_back(lowered(label));
        if (!query.name.is_within(domain)) return reverse(asked, labels);
        labels.resize(labels.size() - domain.label_count());
        if (query.type == type::soa || (labels.empty() && query.type == type::ns)) return apex(asked, labels.empty());
        if (labels.empty())
            return negative(asked, query.type == type::a || query.type == type::aaaa || query.type == type::any ? Rcode::nxdomain
                                                                                                                : Rcode::noerror);

        // [.<dc>[.dc]] at the end, before that the kind of name.
        const auto is_kind = [](const std::string& label) { return label == "service" || label == "node" || label == "addr"; };
        auto count = labels.size();
        if (count >= 3 && labels[count - 1] == "dc" && is_kind(labels[count - 3])) --count;
        std::string datacenter = options.datacenter;
        if (count >= 2 && is_kind(labels[count - 2]) && !(is_kind(labels[count - 1]) && count == 2)) datacenter = labels[--count];
        if (count >= 1 && is_kind(labels[count - 1])) {
            const auto kind = labels[count - 1];
            labels.resize(count - 1);
            if (datacenter != options.datacenter || labels.empty()) return negative(asked, Rcode::nxdomain);
            if (kind == "node") return node(asked, labels);
            if (kind == "addr") return address(asked, labels);
            return service_by_labels(asked, labels);
        }
        // RFC 2782 without the word "service", for SRV only: _web._tcp[.<dc>].
        labels.resize(count);
        if (query.type == type::srv && (labels.size() == 2 || (labels.size() == 3 && labels[2] == options.datacenter)) &&
            labels[0].starts_with('_') && labels[1].starts_with('_')) {
            labels.resize(2);
            return service_by_labels(asked, labels);
        }
        return negative(asked, Rcode::nxdomain);
    }

    Outcome reverse(Asked& asked, const std::vector<std::string>& labels) const {
        const auto address_bytes = labels.empty() || labels.back() != "arpa" ? std::nullopt : reverse_address(labels);
        if (!address_bytes) return {.rcode = Rcode::refused, .authoritative = false};
        const auto& nodes = asked.now.nodes->by_address;
        const auto at = nodes.find(*address_bytes);
        if (at == nodes.end()) return negative(asked, Rcode::nxdomain);
        if (asked.query.type == type::ptr || asked.query.type == type::any) {
            asked.writer.name(Section::answer, asked.query.name, type::ptr, 0, at->second);
            return {};
        }
        return negative(asked, Rcode::noerror);
    }

    Outcome apex(Asked& asked, bool) const {
        const auto server = asked.now.nodes->nodes.find(lowered(options.name_server));
        if (asked.query.type == type::soa) {
            asked.writer.soa(Section::answer, domain, 0, soa());
            asked.writer.name(Section::authority, domain, type::ns, 0, ns);
        } else {
            asked.writer.name(Section::answer, domain, type::ns, 0, ns);
        }
        if (server != asked.now.nodes->nodes.end() && server->second.where.kind != Whereabouts::Kind::host)
            server->second.where.write(asked.writer, Section::additional, ns, 0);
        return {};
    }

    Outcome node(Asked& asked, const std::vector<std::string>& labels) const {
        const auto at = asked.now.nodes->nodes.find(fmt::format("{}", fmt::join(labels, ".")));
        if (at == asked.now.nodes->nodes.end()) return negative(asked, Rcode::nxdomain);
        const auto& one = at->second;
        const auto& name = asked.query.name;
        const auto asked_type = asked.query.type;
        if (one.where.answers(asked_type) ||
            (one.where.kind == Whereabouts::Kind::host &&
             (asked_type == type::a || asked_type == type::aaaa || asked_type == type::any || asked_type == type::cname)))
            one.where.write(asked.writer, Section::answer, name, options.node_ttl);
        const auto section = asked_type == type::txt || asked_type == type::any ? Section::answer : Section::additional;
        if (section == Section::answer || asked.writer.count(Section::answer) > 0)
            for (const auto& words : one.meta) asked.writer.txt(section, name, options.node_ttl, words);
        return {};
    }

    Outcome address(Asked& asked, const std::vector<std::string>& labels) const {
        const auto bytes = labels.size() == 1 ? from_hex(labels[0]) : std::nullopt;
        if (!bytes || (bytes->size() != 4 && bytes->size() != 16)) return negative(asked, Rcode::nxdomain);
        const bool v4 = bytes->size() == 4;
        const auto asked_type = asked.query.type;
        if (v4 && (asked_type == type::a || asked_type == type::any)) {
            std::array<std::uint8_t, 4> to{};
            std::copy(bytes->begin(), bytes->end(), to.begin());
            asked.writer.a(Section::answer, asked.query.name, options.node_ttl, to);
        } else if (!v4 && (asked_type == type::aaaa || asked_type == type::any)) {
            std::array<std::uint8_t, 16> to{};
            std::copy(bytes->begin(), bytes->end(), to.begin());
            asked.writer.aaaa(Section::answer, asked.query.name, options.node_ttl, to);
        } else {
            return negative(asked, Rcode::noerror);
        }
        return {};
    }

    Outcome service_by_labels(Asked& asked, const std::vector<std::string>& labels) const {
        if (labels.size() == 2 && labels[0].starts_with('_') && labels[1].starts_with('_')) {
            const auto tag = labels[1].substr(1);
            return service(asked, labels[0].substr(1), tag == "tcp" ? "" : tag);
        }
        return service(asked, labels.back(), fmt::format("{}", fmt::join(labels.begin(), labels.end() - 1, ".")));
    }

    Outcome service(Asked& asked, const std::string& name, const std::string& tag) const {
        const auto at = asked.now.services.find(name);
        if (at == asked.now.services.end()) return negative(asked, Rcode::nxdomain);
        std::vector<const Endpoint*> members;
        for (const auto& endpoint : *at->second)
            if (tag.empty() || std::find(endpoint.tags.begin(), endpoint.tags.end(), tag) != endpoint.tags.end())
                members.push_back(&endpoint);
        if (members.empty()) return negative(asked, Rcode::nxdomain);
        std::shuffle(members.begin(), members.end(), dice());
        if (asked.query.type == type::srv) return srv_records(asked, members);
        return address_records(asked, members);
    }

    Outcome address_records(Asked& asked, const std::vector<const Endpoint*>& members) const {
        const auto asked_type = asked.query.type;
        const auto most = asked.few_answers ? static_cast<std::size_t>(options.udp_answers) : std::size_t{4096};
        std::set<std::string> seen;
        std::size_t written = 0;
        bool cut = false, full = false;
        for (const auto* endpoint : members) {
            if (!endpoint->where.answers(asked_type) || !seen.insert(endpoint->where.key()).second) continue;
            if (written == most) {
                cut = true;
                break;
            }
            if (!endpoint->where.write(asked.writer, Section::answer, asked.query.name, options.service_ttl)) {
                full = true;
                break;
            }
            ++written;
        }
        // A host name can only stand alone.
        if (written == 0 && !full &&
            (asked_type == type::a || asked_type == type::aaaa || asked_type == type::any || asked_type == type::cname))
            for (const auto* endpoint : members)
                if (endpoint->where.kind == Whereabouts::Kind::host) {
                    endpoint->where.write(asked.writer, Section::answer, asked.query.name, options.service_ttl);
                    return {};
                }
        if (written == 0 && !full) return negative(asked, Rcode::noerror);
        return {.truncated = full || (cut && options.truncate)};
    }

    Outcome srv_records(Asked& asked, const std::vector<const Endpoint*>& members) const {
        const auto most = asked.few_answers ? static_cast<std::size_t>(options.udp_answers) : std::size_t{1024};
        std::set<std::string> seen;
        std::vector<const Endpoint*> written;
        bool cut = false, full = false;
        for (const auto* endpoint : members) {
            if (!seen.insert(fmt::format("{} {}", endpoint->port, endpoint->target.lowered())).second) continue;
            if (written.size() == most) {
                cut = true;
                break;
            }
            if (!asked.writer.srv(Section::answer, asked.query.name, options.service_ttl, 1, endpoint->weight, endpoint->port,
                                  endpoint->target)) {
                full = true;
                break;
            }
            written.push_back(endpoint);
        }
        std::set<std::string> added;
        for (const auto* endpoint : written) { // what does not fit of these is no loss: it can be asked for
            if (!endpoint->target_is_ours || !added.insert(endpoint->target.lowered()).second) continue;
            if (!endpoint->where.write(asked.writer, Section::additional, endpoint->target, options.node_ttl)) break;
            for (const auto& words : endpoint->meta)
                asked.writer.txt(Section::additional, endpoint->target, options.node_ttl, words);
        }
        return {.truncated = full || (cut && options.truncate)};
    }

    Options options;
    Name domain, mname, rname, ns;
    std::atomic<std::shared_ptr<const Snapshot>> snapshot;

    asio::any_io_executor executor;
    const catalog::Catalog* catalog = nullptr;
    std::set<std::string> dirty;
    bool nodes_dirty = false, all_dirty = false, is_posted = false;
    std::vector<std::shared_ptr<void>> observers;
};

DnsAnswers::DnsAnswers(Options options) : state_(std::make_unique<State>(std::move(options))) {}
DnsAnswers::~DnsAnswers() = default;

void DnsAnswers::follow(asio::any_io_executor executor, catalog::Catalog& catalog, store::Store& store) {
    auto& state = *state_;
    state.executor = std::move(executor);
    state.catalog = &catalog;
    state.nodes_dirty = state.all_dirty = true;
    state.renew();
    const auto soon = [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (!self || std::exchange(self->state_->is_posted, true)) return;
        asio::post(self->state_->executor, [weak] {
            if (const auto still = weak.lock()) still->state_->renew();
        });
    };
    state.observers.push_back(catalog.subscribe([weak = weak_from_this(), soon](const std::string& service) {
        const auto self = weak.lock();
        if (!self) return;
        if (service.empty())
            self->state_->all_dirty = true;
        else
            self->state_->dirty.insert(lowered(service));
        soon();
    }));
    for (const auto* prefix : {"nodes/", "catalognodes/"})
        state.observers.push_back(store.observe(prefix, [weak = weak_from_this(), soon](const store::Event&) {
            const auto self = weak.lock();
            if (!self) return;
            self->state_->nodes_dirty = true;
            soon();
        }));
}

void DnsAnswers::stop_following() {
    state_->observers.clear();
    state_->catalog = nullptr;
}

std::size_t DnsAnswers::respond(dns::Bytes bytes, const dns::Asker& asker, std::span<std::uint8_t> out) const noexcept {
    try {
        const auto reading = dns::read_query(bytes);
        if (reading.what == dns::Reading::What::drop) return 0;
        if (reading.what == dns::Reading::What::refuse) return dns::write_refusal(out, reading.query, bytes, reading.rcode);
        std::size_t limit = out.size();
        bool few = false;
        if (asker.transport == dns::Asker::Transport::udp) {
            limit =
                std::min<std::size_t>(reading.query.edns ? std::min<std::size_t>(reading.query.edns->size, 1232) : 512, out.size());
            few = limit <= 512;
        }
        const auto now = state_->snapshot.load();
        dns::Writer writer(out, limit, reading.query, bytes);
        State::Asked asked{reading.query, asker, writer, *now, limit, few};
        const auto outcome = state_->answer(asked);
        return writer.finish({.rcode = outcome.rcode, .authoritative = outcome.authoritative, .truncated = outcome.truncated});
    } catch (...) {
        return 0; // no memory: whoever asks will ask again
    }
}

} // namespace orrery::api::consul
