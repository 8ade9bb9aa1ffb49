// Bodies of Kosmos v0.1: each is a valid resource or is refused, and the shown form reads back as the same resource.
#include "api/facades/kosmos/kosmos_mapping.h"
#include "gslb/model/kinds.h"
#include "resource/kind.h"

#include <boost/json/parse.hpp>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <tuple>

namespace {

using namespace orrery;
namespace json = boost::json;

void use(const api::kosmos::ResourceType& sort, const resource::Kind& kind, const json::value& document) {
    const auto body = api::kosmos::body_of(sort, document);
    if (!body.ok()) return;
    api::kosmos::ResourceBody before;
    if (sort.kind == "Member") before.spec["pool"] = "eu";
    const auto written = sort.read(*body, before);
    if (!written.ok()) {
        if (written.error().fields.empty()) std::abort(); // it has no address
        return;
    }
    const auto object =
        resource::read_object(kind, "a", json::object{{"name", "a"}, {"labels", written->labels}, {"spec", written->spec}});
    if (!object.ok()) return;
    auto shown = sort.shown(*object);
    // What Kosmos's clients read they may send back.
    if (sort.kind == "Monitor" && shown.at("type").as_string().empty()) std::abort();
    const auto again = sort.read(shown, {object->spec, written->labels});
    if (!again.ok()) std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const resource::Kind balancer = gslb::load_balancer_kind(), pool = gslb::pool_kind(), member = gslb::member_kind(),
                                monitor = gslb::monitor_kind();
    boost::system::error_code failed;
    json::parse_options options;
    options.max_depth = 32;
    const auto document = json::parse(std::string_view(reinterpret_cast<const char*>(data), size), failed, {}, options);
    if (failed) return 0;
    use(api::kosmos::gslb(), balancer, document);
    use(api::kosmos::pool(), pool, document);
    use(api::kosmos::member(), member, document);
    use(api::kosmos::monitor(), monitor, document);
    return 0;
}
