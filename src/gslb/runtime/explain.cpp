#include "gslb/runtime/explain.h"

#include "core/json_fields.h"
#include "gslb/decide/decision.h"
#include "gslb/runtime/status_writer.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::gslb {

namespace {

/// An address, or a network by its first address.
Result<std::optional<boost::asio::ip::address>> explained_client(const std::string& text) {
    if (text.empty()) return std::optional<boost::asio::ip::address>{};
    boost::system::error_code failed;
    const auto address = boost::asio::ip::make_address(text.substr(0, text.find('/')), failed);
    if (!failed) return std::optional(address);
    Error error{Code::invalid, "the query is not right"};
    error.fields.push_back({"?client", "must be an address or a network, as in 198.51.100.7 or 198.51.100.0/24"});
    return error;
}

struct GslbExplainer {
    const resource::Resources& resources;
    const Controller& controller;

    Result<json::object> load_balancer(const resource::ExplainRequest& request) const {
        TRY(const auto client, explained_client(request.client));
        TRY(auto out, controller.why(request.name, client, request.at));
        std::vector<std::string> addresses;
        if (const auto* answers = object_at(out, "answer").if_contains("answers"); answers != nullptr && answers->is_array())
            for (const auto& one : answers->get_array())
                if (one.is_object())
                    for (const auto& address : texts_at(one.get_object(), "addresses")) addresses.push_back(address);
        const auto reasons = texts_at(out, "messages");
        out["message"] = fmt::format("{} answers {}{}{}", text_at(out, "fqdn"),
                                     addresses.empty() ? "no address" : fmt::format("{}", fmt::join(addresses, ", ")),
                                     reasons.empty() ? "" : ": ", fmt::join(reasons, "; "));
        return out;
    }

    json::object member_view(const MemberView& view, const MemberInput* input) const {
        json::object out{{"member", view.name},
                         {"addresses", to_array(view.addresses.texts())},
                         {"healthy", view.healthy},
                         {"message", view.message.empty() ? (view.healthy ? "healthy" : "not healthy") : view.message}};
        if (view.drained) out["drained"] = true;
        if (view.forced) out["forced"] = "by an administrator's override";
        if (input == nullptr) return out;
        out["health"] = name_of(input->health.state);
        if (!input->health.monitored) out["monitors"] = "none: it counts as up";
        if (input->health.stale) out["stale"] = "from before a restart; not confirmed yet";
        if (!input->health.message.empty()) out["result"] = input->health.message;
        if (!input->health.unchecked.empty()) out["unchecked"] = input->health.unchecked;
        if (input->health.load) out["load"] = *input->health.load;
        if (input->health.load_expired) out["load_expired"] = true;
        if (!input->health.evidence.is_null()) out["evidence"] = input->health.evidence;
        if (!input->no_address.empty()) out["no_address"] = input->no_address;
        return out;
    }

    json::array balancers(std::string_view pool, std::string_view member) const {
        json::array out;
        for (const auto& name : controller.engine().lbs_using(pool)) {
            const auto decision = controller.engine().decision(name);
            const auto* spec = controller.engine().spec(name);
            if (!decision || spec == nullptr) continue;
            json::object one{{"loadbalancer", name}, {"fqdn", spec->fqdn}, {"condition", name_of(decision->condition)}};
            const bool answers = std::any_of(decision->answers.begin(), decision->answers.end(), [&](const Answer& answer) {
                if (member.empty()) return std::find(answer.pools.begin(), answer.pools.end(), pool) != answer.pools.end();
                return std::any_of(answer.candidates.begin(), answer.candidates.end(),
                                   [&](const AnswerMember& serving) { return serving.member == member; });
            });
            one["answers_with_it"] = answers;
            out.push_back(std::move(one));
        }
        return out;
    }

    Result<json::object> pool(const resource::ExplainRequest& request) const {
        TRY(std::ignore, resources.get(*resources.registry().find("Pool"), request.name));
        const auto found = controller.engine().pool(request.name);
        if (!found) return Error{Code::unavailable, fmt::format("pool {} has not been evaluated yet", request.name)};
        const auto usable = is_usable(*found->view);
        json::array members;
        for (const auto& view : found->view->members) members.push_back(member_view(view, controller.engine().member(view.name)));
        json::object out{
            {"state", usable.usable ? "usable" : "unusable"},
            {"message", fmt::format("pool {} is {}: {}", request.name, usable.usable ? "usable" : "unusable", usable.message)},
            {"members", std::move(members)},
            {"loadbalancers", balancers(request.name, "")}};
        if (found->withheld != nullptr && !found->withheld->empty()) out["withheld"] = withheld_json(*found->withheld);
        return out;
    }

    Result<json::object> member(const resource::ExplainRequest& request) const {
        TRY(const auto object, resources.get(*resources.registry().find("Member"), request.name));
        const auto* input = controller.engine().member(request.name);
        const auto pool_name = text_at(object.spec, "pool");
        const auto of = controller.engine().pool(pool_name);
        if (input == nullptr || !of)
            return Error{Code::unavailable, fmt::format("member {} has not been evaluated yet", request.name)};
        const auto& members = of->view->members;
        const auto view = std::find_if(members.begin(), members.end(), [&](const auto& one) { return one.name == request.name; });
        if (view == members.end())
            return Error{Code::unavailable, fmt::format("member {} has not been evaluated yet", request.name)};
        auto out = member_view(*view, input);
        out["pool"] = pool_name;
        out["state"] = text_at(object.status, "state");
        if (object.status.contains("since")) out["since"] = object.status.at("since");
        out["message"] = fmt::format("member {} of pool {} is {}{}{}", request.name, pool_name,
                                     view->drained   ? "drained"
                                     : view->healthy ? "healthy"
                                                     : "not healthy",
                                     view->message.empty() && input->health.message.empty() ? "" : ": ",
                                     view->message.empty() ? input->health.message : view->message);
        out["loadbalancers"] = balancers(pool_name, request.name);
        return out;
    }

    Result<json::object> node(const resource::ExplainRequest& request) const {
        json::array members;
        for (const auto& referrer : resources.referrers(*resources.registry().find("Node"), request.name, 100)) {
            constexpr std::string_view prefix = "Member/";
            if (!referrer.starts_with(prefix)) continue;
            const auto name = referrer.substr(prefix.size(), referrer.find(' ') - prefix.size());
            if (auto one = member({.name = name, .at = {}}); one.ok()) members.emplace_back(std::move(*one));
        }
        json::object out;
        if (members.empty()) return out;
        out["message"] = fmt::format("members of pools on it: {}", members.size());
        out["members"] = std::move(members);
        return out;
    }
};

} // namespace

void add_explainers(resource::Explainers& explainers, const resource::Resources& resources, const Controller& controller) {
    using History = resource::Explainers::History;
    const GslbExplainer with{resources, controller};
    explainers.add("LoadBalancer", History::yes, [with](const auto& request) { return with.load_balancer(request); });
    explainers.add("Pool", History::no, [with](const auto& request) { return with.pool(request); });
    explainers.add("Member", History::no, [with](const auto& request) { return with.member(request); });
    explainers.contribute("Node", "Member", [with](const auto& request) { return with.node(request); });
}

} // namespace orrery::gslb
