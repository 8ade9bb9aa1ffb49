#include "drivers/octavia/octavia.h"

#include "core/for_each_concurrent.h"
#include "drivers/octavia/octavia_messages.h"
#include "drivers/rest/rest.h"
#include "net/http.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

namespace orrery::drivers {

namespace {

constexpr std::size_t ids_one_by_one = 3; // more are found in one list
constexpr std::size_t page_size = 1000, max_pages = 100;
constexpr std::size_t calls_at_once = 4;

class OctaviaSource final : public health::StatusSource {
public:
    OctaviaSource(std::shared_ptr<OpenstackSession> session, OctaviaOptions options)
        : session_(std::move(session)), options_(std::move(options)) {}

    std::string name() const override { return options_.endpoint.empty() ? "octavia" : "octavia at " + options_.endpoint; }

    Task<std::map<std::string, Reading>> read(Context ctx, std::vector<std::string> ids) override {
        std::map<std::string, health::BalancerState> found;
        if (ids.size() > ids_one_by_one) {
            CO_TRY(found, co_await list(ctx, {ids.begin(), ids.end()}));
        }
        // A balancer that is not on the list is read by itself before it counts as deleted.
        std::vector<std::string> missing;
        for (const auto& id : ids)
            if (!found.contains(id)) missing.push_back(id);
        std::vector<Result<health::BalancerState>> singles(missing.size());
        CO_TRY(std::ignore, co_await for_each_concurrent(missing.size(), calls_at_once,
                                                         [&](std::size_t i) { return one_into(ctx, missing[i], singles[i]); }));
        std::size_t unanswered = 0;
        for (std::size_t i = 0; i < singles.size(); ++i) {
            if (singles[i].ok())
                found[missing[i]] = std::move(*singles[i]);
            else
                ++unanswered;
        }
        if (unanswered == ids.size() && !ids.empty()) co_return singles.front().error();

        // The members matter only where the balancer is neither fully up nor fully down.
        std::vector<std::string> partial;
        for (const auto& [id, state] : found)
            if (state.exists && !state.goes_away &&
                (state.operating == Operating::degraded || state.operating == Operating::draining))
                partial.push_back(id);
        std::vector<Result<health::BalancerState>> trees(partial.size());
        CO_TRY(std::ignore, co_await for_each_concurrent(partial.size(), calls_at_once,
                                                         [&](std::size_t i) { return tree_into(ctx, partial[i], trees[i]); }));
        for (std::size_t i = 0; i < trees.size(); ++i) {
            if (trees[i].ok()) {
                auto addresses = std::move(found[partial[i]].addresses); // the tree has no addresses
                found[partial[i]] = std::move(*trees[i]);
                found[partial[i]].addresses = std::move(addresses);
            } else
                found.erase(partial[i]); // without its members, the balancer's state is no evidence
        }
        std::map<std::string, Reading> out;
        for (const auto& [id, state] : found) out[id] = health::judge(state, options_.min_members);
        co_return out;
    }

private:
    using Operating = health::BalancerState::Operating;

    std::string base() const { return options_.service == "network" ? "/v2.0/lbaas/loadbalancers" : "/v2/lbaas/loadbalancers"; }

    Task<net::ClientResponse> get(Context ctx, std::string path) {
        OpenstackSession::Call call;
        call.service = options_.service;
        call.endpoint = options_.endpoint;
        call.path = std::move(path);
        co_return co_await session_->send(std::move(ctx), std::move(call));
    }
    static Error refused(const net::ClientResponse& answer) {
        std::string message = answer.body;
        if (const auto document = read_answer("Octavia", answer.body); document.ok())
            message = text_at(as_object(*document), "faultstring");
        auto error = refusal("Octavia", answer.status, message);
        if (answer.status == 403)
            error.remedy = "give the source's user the role load-balancer_observer in the project that owns the balancers";
        return error;
    }

    Task<std::map<std::string, health::BalancerState>> list(Context ctx, std::set<std::string> wanted) {
        std::map<std::string, health::BalancerState> out;
        std::string marker;
        for (std::size_t page = 0; page < max_pages && out.size() < wanted.size(); ++page) {
            auto path = fmt::format("{}?fields=id&fields=operating_status&fields=provisioning_status&fields=vip_address&fields="
                                    "additional_vips&limit={}",
                                    base(), page_size);
            if (!marker.empty()) path += "&marker=" + net::percent_encode(marker);
            CO_TRY(const auto answer, co_await get(ctx, std::move(path)));
            if (answer.status != 200) co_return refused(answer);
            CO_TRY(auto balancers, read_octavia_list(answer.body));
            const auto last = balancers.empty() ? std::string() : balancers.back().id;
            const bool is_last = balancers.size() < page_size || last == marker;
            for (auto& balancer : balancers)
                if (wanted.contains(balancer.id)) out[balancer.id] = std::move(balancer.state);
            if (is_last) break;
            marker = last;
        }
        co_return out;
    }

    asio::awaitable<void> one_into(Context ctx, std::string id, Result<health::BalancerState>& out) {
        auto one = co_await one_of(std::move(ctx), std::move(id));
        out = std::move(one);
    }
    Task<health::BalancerState> one_of(Context ctx, std::string id) {
        CO_TRY(const auto answer, co_await get(ctx, fmt::format("{}/{}", base(), net::percent_encode(id))));
        if (answer.status == 404) {
            // Only a 404 of Octavia itself counts: a misconfigured proxy answers 404 too.
            const auto document = read_answer("Octavia", answer.body);
            if (!document.ok() || (!as_object(*document).contains("faultstring") && !as_object(*document).contains("NeutronError")))
                co_return refused(answer);
            health::BalancerState deleted;
            deleted.exists = false;
            co_return deleted;
        }
        if (answer.status != 200) co_return refused(answer);
        CO_TRY(auto balancer, read_octavia_balancer(answer.body));
        co_return std::move(balancer.state);
    }

    asio::awaitable<void> tree_into(Context ctx, std::string id, Result<health::BalancerState>& out) {
        auto tree = co_await tree_of(std::move(ctx), std::move(id));
        out = std::move(tree);
    }
    Task<health::BalancerState> tree_of(Context ctx, std::string id) {
        CO_TRY(const auto answer, co_await get(ctx, fmt::format("{}/{}/status{}", base(), net::percent_encode(id),
                                                                options_.service == "network" ? "es" : "")));
        if (answer.status != 200) co_return refused(answer);
        co_return read_octavia_tree(answer.body);
    }

    std::shared_ptr<OpenstackSession> session_;
    OctaviaOptions options_;
};

} // namespace

std::shared_ptr<health::StatusSource> octavia_source(std::shared_ptr<OpenstackSession> session, OctaviaOptions options) {
    return std::make_shared<OctaviaSource>(std::move(session), std::move(options));
}

} // namespace orrery::drivers
