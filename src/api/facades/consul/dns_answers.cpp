#include "api/facades/consul/dns_answers.h"

#include "api/facades/consul/dns_snapshot.h"
#include "catalog/json_read.h"

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
using dns::Rcode;

std::mt19937& dice() {
    thread_local std::mt19937 random{std::random_device{}()};
    return random;
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
            NodeNames::One one{Whereabouts::of(node->address), meta_words(node->meta)};
            if (const auto name = node_name(node->name); name && one.where.kind != Whereabouts::Kind::host)
                out->by_address.emplace(one.where.key(), *name);
            out->nodes.emplace(lowered(node->name), std::move(one));
        }
        return out;
    }

    std::shared_ptr<const std::unordered_map<std::string, Name>> all_own_addresses(const Snapshot& of) const {
        auto out = std::make_shared<std::unordered_map<std::string, Name>>();
        for (const auto& [service, endpoints] : of.services)
            for (const auto& endpoint : *endpoints) {
                auto name = domain;
                if (endpoint.own_address && name.prepend(options.datacenter) && name.prepend("service") && name.prepend(service))
                    out->emplace(endpoint.where.key(), name);
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
        if (labels.empty()) return negative(asked, Rcode::noerror);

        // [.<dc>[.dc]] at the end, before that the kind of name.
        const auto is_kind = [](const std::string& label) { return label == "service" || label == "node" || label == "addr"; };
        auto count = labels.size();
        if (count >= 3 && labels[count - 1] == "dc" && is_kind(labels[count - 3])) --count;
        std::string datacenter = options.datacenter;
        if (count >= 2 && is_kind(labels[count - 2]) && !(is_kind(labels[count - 1]) && count == 2)) datacenter = labels[--count];
        if (count >= 1 && is_kind(labels[count - 1])) {
            const auto kind = labels[count - 1];
            labels.resize(count - 1);
            if (datacenter != options.datacenter) return negative(asked, Rcode::nxdomain);
            // Nothing is there but what is below it, and that must not be denied (RFC 8020).
            if (labels.empty()) return negative(asked, Rcode::noerror);
            if (kind == "node") return node(asked, labels);
            if (kind == "addr") return address(asked, labels);
            return service_by_labels(asked, labels);
        }
        if (labels == std::vector<std::string>{options.datacenter} || labels == std::vector<std::string>{"dc"} ||
            labels == std::vector<std::string>{options.datacenter, "dc"})
            return negative(asked, Rcode::noerror);
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
        const auto& own = *asked.now.own_addresses;
        const auto node = nodes.find(*address_bytes);
        const auto service = own.find(*address_bytes);
        // Reverse zones are others': what we do not know there we do not deny.
        if (node == nodes.end() && service == own.end()) return {.rcode = Rcode::refused, .authoritative = false};
        if (asked.query.type == type::ptr || asked.query.type == type::any)
            asked.writer.name(Section::answer, asked.query.name, type::ptr, 0,
                              node != nodes.end() ? node->second : service->second);
        return {};
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
