#include "drivers/dns/resolved_names.h"

#include "drivers/dns/name_servers.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace orrery::drivers {

namespace {

std::uint16_t type_named(std::string_view type) {
    return type == "SRV" ? dns::type::srv : type == "AAAA" ? dns::type::aaaa : dns::type::a;
}

/// The records of one type in an answer; the server has followed aliases.
std::vector<ResolvedRecord> records_in(const dns::Message& message, std::uint16_t type) {
    std::vector<ResolvedRecord> out;
    for (const auto& record : message.answer) {
        if (record.type != type || record.dns_class != dns::dns_class::in) continue;
        const auto& data = record.data;
        if (type == dns::type::a && data.size() == 4) {
            out.push_back({fmt::format("{}.{}.{}.{}", data[0], data[1], data[2], data[3]), 0});
        } else if (type == dns::type::aaaa && data.size() == 16) {
            asio::ip::address_v6::bytes_type bytes;
            std::copy(data.begin(), data.end(), bytes.begin());
            out.push_back({asio::ip::address_v6(bytes).to_string(), 0});
        } else if (type == dns::type::srv && data.size() > 6) {
            dns::Name target;
            std::size_t at = 6;
            if (target.read(data, at, dns::Name::Pointers::no))
                out.push_back({target.lowered(), static_cast<std::uint16_t>(data[4] << 8 | data[5])});
        }
    }
    const auto key = [](const ResolvedRecord& record) { return std::tie(record.address, record.port); };
    std::sort(out.begin(), out.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

} // namespace

std::vector<DnsServer> servers_of_resolv_conf(std::string_view text) {
    constexpr std::size_t max_servers = 3; // as the C library
    std::vector<DnsServer> out;
    while (!text.empty() && out.size() < max_servers) {
        auto line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        constexpr std::string_view keyword = "nameserver";
        if (!line.starts_with(keyword)) continue;
        line.remove_prefix(keyword.size());
        const auto from = line.find_first_not_of(" \t");
        if (from == line.npos || from == 0) continue;
        line = line.substr(from, line.find_first_of(" \t\r#;", from) - from);
        if (auto server = parse_dns_server(line); server.ok()) out.push_back(*server);
    }
    return out;
}

struct ResolvedNames::State : std::enable_shared_from_this<State> {
    using Key = std::pair<std::string, std::string>; ///< name and type
    struct Followed {
        Result<std::vector<ResolvedRecord>> records = Error{Code::unavailable, "the name has not been resolved yet"};
        std::weak_ptr<void> handle;
        bool runs = false;
    };

    State(asio::any_io_executor executor, Clock& clock_, Options options_, Query query_)
        : clock(clock_), options(std::move(options_)), ask(std::move(query_)), group(executor) {}

    Task<std::vector<ResolvedRecord>> resolve(std::string name, std::uint16_t type) {
        CO_TRY(const auto parsed, dns::Name::from_text(name));
        Error last{Code::unavailable, "no name server is configured; set jobs.name_servers"};
        for (const auto& server : options.servers) {
            auto answer = co_await ask(ctx.with_timeout(std::chrono::seconds(5)), server, parsed, type);
            if (!answer.ok() && answer.error().code == Code::cancelled) co_return std::move(answer).error();
            if (!answer.ok()) {
                last = answer.error();
            } else if (answer->rcode == dns::Rcode::noerror || answer->rcode == dns::Rcode::nxdomain) {
                co_return records_in(*answer, type);
            } else {
                last = {Code::unavailable, fmt::format("{} answers {}", text_of(server), rcode_text(answer->rcode))};
            }
        }
        last.code = Code::unavailable;
        co_return last;
    }

    void notify(const std::string& name) {
        const auto all = subscribers;
        for (const auto& weak : all)
            if (const auto subscriber = weak.lock()) (*subscriber)(name);
        std::erase_if(subscribers, [](const auto& weak) { return weak.expired(); });
    }

    static asio::awaitable<void> watch(std::shared_ptr<State> self, Key key) {
        for (;;) {
            auto records = co_await self->resolve(key.first, type_named(key.second));
            const auto at = self->names.find(key);
            if (at == self->names.end() || at->second.handle.expired()) break;
            if (!records.ok() && records.error().code == Code::cancelled) co_return;
            auto& known = at->second.records;
            const bool same = known.ok() == records.ok() && (!known.ok() || *known == *records);
            known = std::move(records);
            if (!same) self->notify(key.first);
            const auto slept = co_await self->clock.sleep(self->options.interval);
            if (!slept.ok()) co_return;
        }
        self->names.erase(key);
    }

    void begin(const Key& key, Followed& followed) {
        if (followed.runs || !running) return;
        followed.runs = true;
        group.spawn(watch(shared_from_this(), key));
    }

    Clock& clock;
    Options options;
    Query ask;
    TaskGroup group;
    Context ctx = Context::make("names");
    bool running = false;
    std::map<Key, Followed> names;
    std::vector<std::weak_ptr<std::function<void(const std::string&)>>> subscribers;
};

ResolvedNames::ResolvedNames(asio::any_io_executor executor, Clock& clock, Options options, Query query)
    : state_(std::make_shared<State>(
          std::move(executor), clock, std::move(options),
          query ? std::move(query) : [](Context ctx, DnsServer server, dns::Name name, std::uint16_t type) {
              return drivers::query(std::move(ctx), server, name, type, Recursion::wanted);
          })) {}
ResolvedNames::~ResolvedNames() = default;

asio::awaitable<void> ResolvedNames::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    state->ctx = ctx.without_deadline();
    state->group.reopen();
    state->running = true;
    for (auto& [key, followed] : state->names) state->begin(key, followed);
    Notifier never(co_await asio::this_coro::executor);
    std::ignore = co_await never.wait(ctx.without_deadline());
    state->running = false;
    co_await state->group.stop();
    for (auto& [key, followed] : state->names) followed.runs = false;
}

Result<std::vector<ResolvedRecord>> ResolvedNames::find(std::string_view name, std::string_view type) const {
    const auto at = state_->names.find({std::string(name), std::string(type)});
    if (at == state_->names.end()) return Error{Code::unavailable, "the name has no follower and is not resolved"};
    return at->second.records;
}

std::shared_ptr<void> ResolvedNames::follow(std::string_view name, std::string_view type) {
    const State::Key key{std::string(name), std::string(type)};
    if (!state_->names.contains(key) && state_->names.size() >= state_->options.max_names) return {};
    auto& followed = state_->names[key];
    auto handle = followed.handle.lock();
    if (!handle) {
        handle = std::make_shared<int>();
        followed.handle = handle;
    }
    state_->begin(key, followed);
    return handle;
}

std::shared_ptr<void> ResolvedNames::subscribe(std::function<void(const std::string&)> changed) {
    auto handle = std::make_shared<std::function<void(const std::string&)>>(std::move(changed));
    state_->subscribers.push_back(handle);
    return handle;
}

} // namespace orrery::drivers
