#include "api/facades/consul/dns_answers.h"

#include "api/facades/consul/dns_snapshot.h"
#include "core/ascii.h"
#include "core/json_fields.h"

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

using dns::Rcode;

std::mt19937& dice() {
    thread_local std::mt19937 random{std::random_device{}()};
    return random;
}

} // namespace

struct DnsAnswers::State {
    explicit State(Options options_) : options(std::move(options_)) {
        domain = Name::from_text(options.domain).value_or(Name());
        options.datacenter = ascii_lower(options.datacenter);
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
    /// "<node>.node.<dc>.<domain>"; nullopt: the name of the node is not a DNS label.
    std::optional<Name> node_name(std::string_view node) const {
        auto first = Name::from_text(node);
        auto rest = domain;
        if (!first.ok() || first->is_root() || !rest.prepend(options.datacenter) || !rest.prepend("node") || !first->append(rest))
            return std::nullopt;
        return *first;
    }
    std::optional<Name> address_name(const Location& location) const {
        std::string hex;
        const auto put = [&](const auto& bytes) {
            for (const auto byte : bytes) hex += fmt::format("{:02x}", byte);
        };
        if (location.kind == Location::Kind::v4)
            put(location.v4);
        else
            put(location.v6);
        auto out = domain;
        if (!out.prepend(options.datacenter) || !out.prepend("addr") || !out.prepend(hex)) return std::nullopt;
        return out;
    }

    // --- loop thread ------------------------------------------------------------------------------------------------

    std::shared_ptr<const Endpoints> endpoints_of(const std::string& service) const {
        auto out = std::make_shared<Endpoints>();
        for (const auto& instance : catalog->instances(service)) {
            if (instance->state == catalog::State::registered) continue;
            if (options.only_passing && instance->state != catalog::State::passing) continue;
            Endpoint endpoint;
            endpoint.location = Location::of(instance->address);
            if (endpoint.location.kind == Location::Kind::none) continue;
            endpoint.port = instance->port;
            endpoint.weight = static_cast<std::uint16_t>(
                instance->worst == catalog::CheckStatus::warning ? instance->weight_warning : instance->weight_passing);
            for (const auto& tag : instance->tags) endpoint.tags.push_back(ascii_lower(tag));
            const bool at_node = instance->own_address.empty() || (instance->on && instance->own_address == instance->on->address);
            if (endpoint.location.kind == Location::Kind::host) {
                endpoint.target = endpoint.location.host;
                endpoint.target_is_ours = false;
            } else if (auto target = at_node ? node_name(instance->on ? instance->on->name : instance->node)
                                             : address_name(endpoint.location)) {
                endpoint.target = *target;
                if (at_node && instance->on) endpoint.meta = meta_texts(instance->on->meta);
                endpoint.own_address = !at_node;
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
            NodeNames::One one{Location::of(node->address), meta_texts(node->meta)};
            if (const auto name = node_name(node->name); name && one.location.kind != Location::Kind::host)
                out->by_address.emplace(one.location.key(), *name);
            out->nodes.emplace(ascii_lower(node->name), std::move(one));
        }
        return out;
    }

    std::shared_ptr<const std::unordered_map<std::string, Name>> all_own_addresses(const Snapshot& of) const {
        auto out = std::make_shared<std::unordered_map<std::string, Name>>();
        for (const auto& [service, endpoints] : of.services)
            for (const auto& endpoint : *endpoints) {
                auto name = domain;
                if (endpoint.own_address && name.prepend(options.datacenter) && name.prepend("service") && name.prepend(service))
                    out->emplace(endpoint.location.key(), name);
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
            for (const auto& service : catalog->services()) dirty.insert(ascii_lower(service));
        }
        if (std::exchange(nodes_dirty, false)) next->nodes = all_nodes();
        const auto has_own = [](const std::shared_ptr<const Endpoints>& endpoints) {
            return endpoints &&
                   std::any_of(endpoints->begin(), endpoints->end(), [](const Endpoint& endpoint) { return endpoint.own_address; });
        };
        bool own_dirty = next->services.empty();
        for (const auto& service : dirty) {
            auto endpoints = endpoints_of(service);
            const auto before = next->services.find(service);
            own_dirty = own_dirty || has_own(endpoints) || (before != next->services.end() && has_own(before->second));
            if (endpoints->empty())
                next->services.erase(service);
            else
                next->services[service] = std::move(endpoints);
        }
        dirty.clear();
        if (own_dirty) next->own_addresses = all_own_addresses(*next);
        snapshot.store(std::shared_ptr<const Snapshot>(std::move(next)));
    }

    // --- threads of the server --------------------------------------------------------------------------------------

    struct Exchange {
        const dns::Query& query;
        const dns::Client& asker;
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
    Outcome negative(Exchange& exchange, Rcode rcode) const {
        exchange.writer.clear();
        exchange.writer.soa(Section::authority, domain, 0, soa());
        return {.rcode = rcode};
    }

    Outcome answer(Exchange& exchange) const {
        const auto& query = exchange.query;
        if (query.type == type::axfr || query.type == type::ixfr || query.type == type::maila || query.type == type::mailb)
            return {.rcode = Rcode::notimp, .authoritative = false};
        if (query.dns_class != dns::dns_class::in && query.dns_class != dns::dns_class::any)
            return {.rcode = Rcode::refused, .authoritative = false};
        std::vector<std::string> labels;
        for (const auto label : query.name.labels()) labels.push_back(ascii_lower(label));
        if (!query.name.is_within(domain)) return reverse(exchange, labels);
        labels.resize(labels.size() - domain.label_count());
        if (query.type == type::soa || (labels.empty() && query.type == type::ns)) return apex(exchange, labels.empty());
        if (labels.empty()) return negative(exchange, Rcode::noerror);

        // The name ends with [.<dc>[.dc]]; the label before it is the type of name.
        const auto is_kind = [](const std::string& label) { return label == "service" || label == "node" || label == "addr"; };
        auto count = labels.size();
        if (count >= 3 && labels[count - 1] == "dc" && is_kind(labels[count - 3])) --count;
        std::string datacenter = options.datacenter;
        if (count >= 2 && is_kind(labels[count - 2]) && !(is_kind(labels[count - 1]) && count == 2)) datacenter = labels[--count];
        if (count >= 1 && is_kind(labels[count - 1])) {
            const auto kind = labels[count - 1];
            labels.resize(count - 1);
            if (datacenter != options.datacenter) return negative(exchange, Rcode::nxdomain);
            // An empty non-terminal: NXDOMAIN would deny the names below it (RFC 8020).
            if (labels.empty()) return negative(exchange, Rcode::noerror);
            if (kind == "node") return node(exchange, labels);
            if (kind == "addr") return address(exchange, labels);
            return service_by_labels(exchange, labels);
        }
        if (labels == std::vector<std::string>{options.datacenter} || labels == std::vector<std::string>{"dc"} ||
            labels == std::vector<std::string>{options.datacenter, "dc"})
            return negative(exchange, Rcode::noerror);
        // The RFC 2782 form without the label "service", for SRV only: _web._tcp[.<dc>].
        labels.resize(count);
        if (query.type == type::srv && (labels.size() == 2 || (labels.size() == 3 && labels[2] == options.datacenter)) &&
            labels[0].starts_with('_') && labels[1].starts_with('_')) {
            labels.resize(2);
            return service_by_labels(exchange, labels);
        }
        return negative(exchange, Rcode::nxdomain);
    }

    Outcome reverse(Exchange& exchange, const std::vector<std::string>& labels) const {
        const auto address_bytes = labels.empty() || labels.back() != "arpa" ? std::nullopt : reverse_address(labels);
        if (!address_bytes) return {.rcode = Rcode::refused, .authoritative = false};
        const auto& nodes = exchange.now.nodes->by_address;
        const auto& own = *exchange.now.own_addresses;
        const auto node = nodes.find(*address_bytes);
        const auto service = own.find(*address_bytes);
        // Reverse zones belong to other servers: refuse unknown names instead of denying them.
        if (node == nodes.end() && service == own.end()) return {.rcode = Rcode::refused, .authoritative = false};
        if (exchange.query.type == type::ptr || exchange.query.type == type::any)
            exchange.writer.name(Section::answer, exchange.query.name, type::ptr, 0,
                                 node != nodes.end() ? node->second : service->second);
        return {};
    }

    Outcome apex(Exchange& exchange, bool) const {
        const auto server = exchange.now.nodes->nodes.find(ascii_lower(options.name_server));
        if (exchange.query.type == type::soa) {
            exchange.writer.soa(Section::answer, domain, 0, soa());
            exchange.writer.name(Section::authority, domain, type::ns, 0, ns);
        } else {
            exchange.writer.name(Section::answer, domain, type::ns, 0, ns);
        }
        if (server != exchange.now.nodes->nodes.end() && server->second.location.kind != Location::Kind::host)
            server->second.location.write(exchange.writer, Section::additional, ns, 0);
        return {};
    }

    Outcome node(Exchange& exchange, const std::vector<std::string>& labels) const {
        const auto at = exchange.now.nodes->nodes.find(fmt::format("{}", fmt::join(labels, ".")));
        if (at == exchange.now.nodes->nodes.end()) return negative(exchange, Rcode::nxdomain);
        const auto& one = at->second;
        const auto& name = exchange.query.name;
        const auto asked_type = exchange.query.type;
        if (one.location.answers(asked_type) ||
            (one.location.kind == Location::Kind::host &&
             (asked_type == type::a || asked_type == type::aaaa || asked_type == type::any || asked_type == type::cname)))
            one.location.write(exchange.writer, Section::answer, name, options.node_ttl);
        const auto section = asked_type == type::txt || asked_type == type::any ? Section::answer : Section::additional;
        for (const auto& text : one.meta) exchange.writer.txt(section, name, options.node_ttl, text);
        return {};
    }

    Outcome address(Exchange& exchange, const std::vector<std::string>& labels) const {
        const auto bytes = labels.size() == 1 ? from_hex(labels[0]) : std::nullopt;
        if (!bytes || (bytes->size() != 4 && bytes->size() != 16)) return negative(exchange, Rcode::nxdomain);
        const bool v4 = bytes->size() == 4;
        const auto asked_type = exchange.query.type;
        if (v4 && (asked_type == type::a || asked_type == type::any)) {
            std::array<std::uint8_t, 4> to{};
            std::copy(bytes->begin(), bytes->end(), to.begin());
            exchange.writer.a(Section::answer, exchange.query.name, options.node_ttl, to);
        } else if (!v4 && (asked_type == type::aaaa || asked_type == type::any)) {
            std::array<std::uint8_t, 16> to{};
            std::copy(bytes->begin(), bytes->end(), to.begin());
            exchange.writer.aaaa(Section::answer, exchange.query.name, options.node_ttl, to);
        } else {
            return negative(exchange, Rcode::noerror);
        }
        return {};
    }

    Outcome service_by_labels(Exchange& exchange, const std::vector<std::string>& labels) const {
        if (labels.size() == 2 && labels[0].starts_with('_') && labels[1].starts_with('_')) {
            const auto tag = labels[1].substr(1);
            return service(exchange, labels[0].substr(1), tag == "tcp" ? "" : tag);
        }
        return service(exchange, labels.back(), fmt::format("{}", fmt::join(labels.begin(), labels.end() - 1, ".")));
    }

    Outcome service(Exchange& exchange, const std::string& name, const std::string& tag) const {
        const auto at = exchange.now.services.find(name);
        if (at == exchange.now.services.end()) return negative(exchange, Rcode::nxdomain);
        std::vector<const Endpoint*> members;
        for (const auto& endpoint : *at->second)
            if (tag.empty() || std::find(endpoint.tags.begin(), endpoint.tags.end(), tag) != endpoint.tags.end())
                members.push_back(&endpoint);
        if (members.empty()) return negative(exchange, Rcode::nxdomain);
        std::shuffle(members.begin(), members.end(), dice());
        if (exchange.query.type == type::srv) return srv_records(exchange, members);
        return address_records(exchange, members);
    }

    Outcome address_records(Exchange& exchange, const std::vector<const Endpoint*>& members) const {
        const auto asked_type = exchange.query.type;
        const auto most = exchange.few_answers ? static_cast<std::size_t>(options.udp_answers) : std::size_t{4096};
        std::set<std::string> seen;
        std::size_t written = 0;
        bool cut = false, full = false;
        for (const auto* endpoint : members) {
            if (!endpoint->location.answers(asked_type) || !seen.insert(endpoint->location.key()).second) continue;
            if (written == most) {
                cut = true;
                break;
            }
            if (!endpoint->location.write(exchange.writer, Section::answer, exchange.query.name, options.service_ttl)) {
                full = true;
                break;
            }
            ++written;
        }
        // A CNAME must be the only record of its name.
        if (written == 0 && !full &&
            (asked_type == type::a || asked_type == type::aaaa || asked_type == type::any || asked_type == type::cname))
            for (const auto* endpoint : members)
                if (endpoint->location.kind == Location::Kind::host) {
                    endpoint->location.write(exchange.writer, Section::answer, exchange.query.name, options.service_ttl);
                    return {};
                }
        if (written == 0 && !full) return negative(exchange, Rcode::noerror);
        return {.truncated = full || (cut && options.truncate)};
    }

    Outcome srv_records(Exchange& exchange, const std::vector<const Endpoint*>& members) const {
        const auto most = exchange.few_answers ? static_cast<std::size_t>(options.udp_answers) : std::size_t{1024};
        std::set<std::string> seen;
        std::vector<const Endpoint*> written;
        bool cut = false, full = false;
        for (const auto* endpoint : members) {
            if (!seen.insert(fmt::format("{} {}", endpoint->port, endpoint->target.lowered())).second) continue;
            if (written.size() == most) {
                cut = true;
                break;
            }
            if (!exchange.writer.srv(Section::answer, exchange.query.name, options.service_ttl, 1, endpoint->weight, endpoint->port,
                                     endpoint->target)) {
                full = true;
                break;
            }
            written.push_back(endpoint);
        }
        std::set<std::string> added;
        for (const auto* endpoint : written) { // additional records that do not fit are left out; clients can query them
            if (!endpoint->target_is_ours || !added.insert(endpoint->target.lowered()).second) continue;
            if (!endpoint->location.write(exchange.writer, Section::additional, endpoint->target, options.node_ttl)) break;
            for (const auto& text : endpoint->meta)
                exchange.writer.txt(Section::additional, endpoint->target, options.node_ttl, text);
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
            self->state_->dirty.insert(ascii_lower(service));
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

std::size_t DnsAnswers::respond(dns::Bytes bytes, const dns::Client& asker, std::span<std::uint8_t> out) const noexcept {
    try {
        const auto reading = dns::read_query(bytes);
        if (reading.action == dns::ParsedQuery::Action::drop) return 0;
        if (reading.action == dns::ParsedQuery::Action::reject) return dns::write_error(out, reading.query, bytes, reading.rcode);
        std::size_t limit = out.size();
        bool few = false;
        if (asker.transport == dns::Client::Transport::udp) {
            limit =
                std::min<std::size_t>(reading.query.edns ? std::min<std::size_t>(reading.query.edns->size, 1232) : 512, out.size());
            few = limit <= 512;
        }
        const auto now = state_->snapshot.load();
        dns::Writer writer(out, limit, reading.query, bytes);
        State::Exchange exchange{reading.query, asker, writer, *now, limit, few};
        const auto outcome = state_->answer(exchange);
        return writer.finish({.rcode = outcome.rcode, .authoritative = outcome.authoritative, .truncated = outcome.truncated});
    } catch (...) {
        return 0; // out of memory: the client retries
    }
}

} // namespace orrery::api::consul
