#include "health/engine/resolver.h"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <mutex>
#include <netdb.h>
#include <netinet/in.h>
#include <unordered_map>

namespace orrery::health {

namespace {

constexpr auto good_for = std::chrono::seconds(30);
constexpr auto usable_for = std::chrono::hours(1);
constexpr std::size_t max_names = 65'536;

Address with_port(Address address, std::uint16_t port) {
    if (address.family() == AF_INET6)
        reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = htons(port);
    else
        reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
    return address;
}

Addresses with_port(const std::vector<Address>& addresses, std::uint16_t port) {
    auto out = std::make_shared<std::vector<Address>>();
    for (const auto& address : addresses) out->push_back(with_port(address, port));
    return out;
}

Result<std::vector<Address>> ask_system(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (error == EAI_NONAME || error == EAI_NODATA || error == EAI_ADDRFAMILY)
        return Error{Code::not_found, fmt::format("the name {} was not found", host)};
    if (error != 0)
        return Error{Code::unavailable, fmt::format("the name {} could not be resolved: {}", host, ::gai_strerror(error))};
    std::vector<Address> out;
    for (auto* at = found; at != nullptr && out.size() < 16; at = at->ai_next) {
        if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
        Address address;
        std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
        address.size = at->ai_addrlen;
        out.push_back(address);
    }
    ::freeaddrinfo(found);
    if (out.empty()) return Error{Code::not_found, fmt::format("the name {} has no address", host)};
    return out;
}

} // namespace

Addresses literal_address(const std::string& host, std::uint16_t port) {
    Address out;
    if (auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage); ::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        out.size = sizeof(sockaddr_in);
    } else if (auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage); ::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        out.size = sizeof(sockaddr_in6);
    } else {
        return nullptr;
    }
    return std::make_shared<std::vector<Address>>(1, with_port(out, port));
}

Result<Addresses> permitted_addresses(const net::OutboundRules* rules, Addresses addresses) {
    if (rules == nullptr) return addresses;
    std::vector<Address> kept;
    Result<Unit> denial = Unit{};
    for (const auto& address : *addresses) {
        auto checked = rules->check(address.get());
        if (checked.ok())
            kept.push_back(address);
        else if (denial.ok())
            denial = std::move(checked);
    }
    if (denial.ok()) return addresses;
    if (kept.empty()) return denial.error();
    return Addresses(std::make_shared<std::vector<Address>>(std::move(kept)));
}

struct Resolver::State : std::enable_shared_from_this<State> {
    explicit State(Resolve resolve_) : resolve(std::move(resolve_)) {}

    struct Known {
        std::vector<Address> addresses;
        SteadyTime at{};
        bool asking = false;
        std::vector<std::pair<std::uint16_t, std::function<void(Answer)>>> waiting;
    };

    void ask(const std::string& host) {
        asio_post([self = shared_from_this(), host] {
            auto answer = self->resolve(host);
            std::vector<std::pair<std::uint16_t, std::function<void(Answer)>>> waiting;
            {
                std::lock_guard lock(self->mutex);
                auto& known = self->known[host];
                known.asking = false;
                waiting.swap(known.waiting);
                if (answer.ok()) {
                    known.addresses = *answer;
                    known.at = real_clock().steady();
                } else if (answer.error().code == Code::not_found) {
                    self->known.erase(host);
                }
            }
            for (auto& [port, then] : waiting) {
                if (answer.ok())
                    then(with_port(*answer, port));
                else
                    then(answer.error());
            }
        });
    }
    template <class F> void asio_post(F work) { boost::asio::post(pool, std::move(work)); }

    Resolve resolve;
    std::mutex mutex;
    std::unordered_map<std::string, Known> known;
    boost::asio::thread_pool pool{2};
};

Resolver::Resolver() : Resolver(ask_system) {}
Resolver::Resolver(Resolve resolve) : state_(std::make_shared<State>(std::move(resolve))) {}
Resolver::~Resolver() { stop(); }

void Resolver::stop() {
    state_->pool.stop(); // what waits for its turn is dropped
    state_->pool.join();
}

Addresses Resolver::find(const std::string& host, std::uint16_t port, SteadyTime now, std::function<void(Answer)> then) {
    std::lock_guard lock(state_->mutex);
    if (state_->known.size() > max_names) std::erase_if(state_->known, [](const auto& one) { return !one.second.asking; });
    auto& known = state_->known[host];
    const bool usable = !known.addresses.empty() && now - known.at < usable_for;
    if (!usable) known.waiting.emplace_back(port, std::move(then));
    if (!known.asking && (!usable || now - known.at >= good_for)) {
        known.asking = true;
        state_->ask(host);
    }
    return usable ? with_port(known.addresses, port) : nullptr;
}

} // namespace orrery::health
