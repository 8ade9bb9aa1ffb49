#include "drivers/designate/designate.h"

#include "core/for_each_concurrent.h"
#include "drivers/designate/designate_messages.h"
#include "drivers/rest/rest.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace orrery::drivers {

namespace {

constexpr std::size_t writes_at_once = 4;   // Designate locks the zone for each write; more would only wait for the lock
constexpr std::size_t names_one_by_one = 4; // more are read with the whole zone
constexpr std::size_t page_size = 1000, max_pages = 200;

const DesignateRecordset* of_type(const std::vector<DesignateRecordset>& known, gslb::RecordType type) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.set.type == type && one.action != "DELETE"; });
    return found == known.end() ? nullptr : &*found;
}

class DesignatePublisher final : public gslb::DnsProvider {
public:
    DesignatePublisher(std::shared_ptr<OpenstackSession> session, DesignateOptions options)
        : session_(std::move(session)), options_(std::move(options)) {}

    std::string description() const override {
        return options_.endpoint.empty() ? "Designate" : "Designate at " + options_.endpoint;
    }
    std::size_t max_batch() const override { return 100; }

    Task<std::vector<gslb::ProviderRecords>> read(Context ctx, std::string zone, std::vector<std::string> names) override {
        CO_TRY(const auto in, co_await zone_named(ctx, zone));
        auto& known = known_[zone];
        if (names.size() <= names_one_by_one) {
            for (const auto& name : names) {
                CO_TRY(known[name], co_await recordsets(ctx, in, name));
            }
        } else {
            CO_TRY(auto all, co_await recordsets(ctx, in, {}));
            for (const auto& name : names) known[name].clear();
            for (auto& one : all)
                if (const auto wanted = known.find(one.name); wanted != known.end()) wanted->second.push_back(std::move(one));
        }
        std::vector<gslb::ProviderRecords> out;
        for (auto& name : names) out.push_back(designate_records(name, known[name]));
        co_return out;
    }

    Task<std::vector<Result<gslb::Accepted>>> publish(Context ctx, std::string zone, std::vector<gslb::Change> changes) override {
        CO_TRY(const auto in, co_await zone_named(ctx, zone));
        std::vector<Result<gslb::Accepted>> out(changes.size());
        CO_TRY(std::ignore, co_await for_each_concurrent(changes.size(), writes_at_once,
                                                         [&](std::size_t i) { return change_into(ctx, in, changes[i], out[i]); }));
        co_return out;
    }

private:
    Task<net::ClientResponse> call(Context ctx, std::string method, std::string path, std::string body = {}) {
        OpenstackSession::Call call;
        call.service = "dns";
        call.endpoint = options_.endpoint;
        call.method = std::move(method);
        call.path = std::move(path);
        call.body = std::move(body);
        co_return co_await session_->send(std::move(ctx), std::move(call));
    }

    Task<DesignateZone> zone_named(Context ctx, std::string zone) {
        if (const auto known = zones_.find(zone); known != zones_.end()) co_return known->second;
        CO_TRY(const auto answer, co_await call(ctx, "GET", "/v2/zones?name=" + net::percent_encode(zone)));
        if (answer.status != 200) co_return designate_refusal(answer.status, answer.body);
        CO_TRY(const auto found, read_designate_zones(answer.body));
        const auto match = std::find_if(found.begin(), found.end(), [&](const auto& one) { return one.name == zone; });
        if (match == found.end())
            co_return Error{Code::not_found, fmt::format("Designate has no zone {} in the project of the login", zone),
                            "create it there (openstack zone create), or log in to the project that owns it"};
        zones_[zone] = *match;
        co_return *match;
    }

    /// The recordsets of one name; of the whole zone where `name` is empty.
    Task<std::vector<DesignateRecordset>> recordsets(Context ctx, DesignateZone zone, std::string name) {
        std::vector<DesignateRecordset> out;
        std::string marker;
        for (std::size_t page = 0; page < max_pages; ++page) {
            auto path = fmt::format("/v2/zones/{}/recordsets?limit={}", net::percent_encode(zone.id), page_size);
            if (!name.empty()) path += "&name=" + net::percent_encode(name);
            if (!marker.empty()) path += "&marker=" + net::percent_encode(marker);
            CO_TRY(const auto answer, co_await call(ctx, "GET", std::move(path)));
            if (answer.status == 404) zones_.erase(zone.name); // the zone may have been deleted and created again, with another id
            if (answer.status != 200) co_return designate_refusal(answer.status, answer.body);
            CO_TRY(auto read, read_designate_recordsets(answer.body, zone.ttl));
            for (auto& one : read.recordsets) out.push_back(std::move(one));
            // A page that is exactly full has a "next" link although no page follows.
            if (read.size < page_size || read.last_id.empty() || read.last_id == marker) co_return out;
            marker = std::move(read.last_id);
        }
        co_return Error{Code::too_large, fmt::format("the zone {} has more than {} recordsets", zone.name, page_size * max_pages)};
    }

    asio::awaitable<void> change_into(Context ctx, DesignateZone zone, const gslb::Change& change, Result<gslb::Accepted>& out) {
        auto done = co_await change_one(std::move(ctx), std::move(zone), change);
        out = std::move(done);
    }

    Task<gslb::Accepted> change_one(Context ctx, DesignateZone zone, const gslb::Change& change) {
        CO_TRY(std::ignore, gslb::guard_against_emptying(change));
        const auto base = fmt::format("/v2/zones/{}/recordsets", net::percent_encode(zone.id));
        const auto known = known_[zone.name][change.name]; // a copy: other names are read and written concurrently
        gslb::Accepted out;
        // Removals come first where a name changes between addresses and an alias, because Designate refuses the two together.
        // Where a name only loses an address family, the removal comes last.
        const bool kind_changes = (gslb::find(change.before, gslb::RecordType::cname) != nullptr) !=
                                  (gslb::find(change.after, gslb::RecordType::cname) != nullptr);
        if (kind_changes) {
            CO_TRY(std::ignore, co_await remove(ctx, base, change, known));
        }
        for (const auto& set : change.after) {
            const auto* current = of_type(known, set.type);
            if (current != nullptr && current->set.same_data(set) && current->set.mark == set.mark) continue;
            CO_TRY(const auto propagated, co_await write(ctx, zone, base, change, set, current));
            out.propagated = out.propagated && propagated;
        }
        if (!kind_changes) {
            CO_TRY(std::ignore, co_await remove(ctx, base, change, known));
        }
        if (change.after.size() < change.before.size()) out.propagated = false;
        co_return out;
    }

    /// Removes the sets that are not in `change.after`.
    Task<Unit> remove(Context ctx, std::string base, const gslb::Change& change, const std::vector<DesignateRecordset>& known) {
        for (const auto& set : change.before) {
            const auto* current = gslb::find(change.after, set.type) == nullptr ? of_type(known, set.type) : nullptr;
            if (current == nullptr) continue;
            CO_TRY(const auto answer, co_await call(ctx, "DELETE", fmt::format("{}/{}", base, net::percent_encode(current->id))));
            if (answer.status != 202 && answer.status != 204 && answer.status != 404)
                co_return designate_refusal(answer.status, answer.body);
        }
        co_return Unit{};
    }

    /// Returns whether Designate serves the set already.
    Task<bool> write(Context ctx, DesignateZone zone, std::string base, const gslb::Change& change, const gslb::RecordSet& set,
                     const DesignateRecordset* current) {
        const bool is_new = current == nullptr;
        auto path = is_new ? base : fmt::format("{}/{}", base, net::percent_encode(current->id));
        auto body = is_new ? designate_create(change.name, set, change.reason) : designate_update(set, change.reason);
        CO_TRY(const auto answer, co_await call(ctx, is_new ? "POST" : "PUT", std::move(path), std::move(body)));
        if (answer.status == 404 && current != nullptr)
            co_return Error{Code::conflict,
                            fmt::format("the {} recordset of {} was deleted by another client", name_of(set.type), change.name)};
        if (answer.status < 200 || answer.status > 202) co_return designate_refusal(answer.status, answer.body);
        CO_TRY(const auto written, read_designate_recordset(answer.body, zone.ttl));
        if (current != nullptr && written.version > current->version + 1)
            co_return Error{
                Code::conflict,
                fmt::format("another client wrote {} between our read and our write, and its records were replaced", change.name)};
        co_return written.status == "ACTIVE";
    }

    std::shared_ptr<OpenstackSession> session_;
    DesignateOptions options_;
    std::map<std::string, DesignateZone> zones_;
    std::map<std::string, std::map<std::string, std::vector<DesignateRecordset>>> known_; // by zone and name, as of the last read
};

} // namespace

Result<std::unique_ptr<gslb::DnsProvider>> designate_publisher(std::shared_ptr<OpenstackSession> session,
                                                               DesignateOptions options) {
    return std::unique_ptr<gslb::DnsProvider>(std::make_unique<DesignatePublisher>(std::move(session), std::move(options)));
}

} // namespace orrery::drivers
