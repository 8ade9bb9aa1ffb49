#include "jobs/job_file_reader.h"

/// Barriers and services of a job file.
namespace orrery::jobs {

std::string Count::text() const {
    switch (type) {
    case Type::number: return std::to_string(number);
    case Type::hosts: return fmt::format("hosts({})", role);
    case Type::all: return "all";
    }
    return {};
}

std::string BarrierSpec::text() const {
    if (is_dns())
        return fmt::format("{} {} record{} of {}{}", count.text(), tag, count.number == 1 ? "" : "s",
                           std::string_view(service).substr(dns_prefix.size()),
                           hold > Duration::zero() ? " for " + to_text(hold) : "");
    return fmt::format("{} of {}{}{} {}{}", count.text(), service, tag.empty() ? "" : ":", tag, name_of(state),
                       hold > Duration::zero() ? " for " + to_text(hold) : "");
}

bool is_plain_name(std::string_view text) {
    return !text.empty() && text.size() <= max_name && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    });
}

std::optional<ServiceRef> parse_service(std::string_view text) {
    const auto colon = text.find(':');
    ServiceRef ref{std::string(text.substr(0, colon)), colon == text.npos ? "" : std::string(text.substr(colon + 1))};
    if (!is_plain_name(ref.service) || (colon != text.npos && !is_plain_name(ref.tag))) return {};
    return ref;
}

void read_service(FieldReader& fields, ServiceRef& out) {
    std::string service, tag;
    fields.text("service", service, max_name);
    fields.text("tag", tag, max_name);
    auto ref = parse_service(service);
    if (!ref) return fields.wrong("service", "must be a service's name, such as mysql or glance:lb");
    out = std::move(*ref);
    if (tag.empty()) return;
    if (!out.tag.empty() || !is_plain_name(tag)) return fields.wrong("tag", "must be one name, and given once");
    out.tag = std::move(tag);
}

namespace {

void read_count(FieldReader& fields, Count& out) {
    const auto* value = fields.find("count");
    if (value == nullptr) return;
    if (value->is_int64() && value->get_int64() >= 1 && value->get_int64() <= 1'000'000) {
        out.number = value->get_int64();
        return;
    }
    if (value->is_string()) {
        const std::string_view text(value->get_string());
        if (text == "all") {
            out.type = Count::Type::all;
            return;
        }
        if (text.starts_with("hosts(") && text.ends_with(')') && is_plain_name(text.substr(6, text.size() - 7))) {
            out.type = Count::Type::hosts;
            out.role = text.substr(6, text.size() - 7);
            return;
        }
    }
    fields.wrong("count", "must be a number from 1, hosts(ROLE) or all");
}

bool is_dns_name(std::string_view text) {
    if (text.ends_with('.')) text.remove_suffix(1);
    if (text.empty() || text.size() > 253) return false;
    for (std::size_t from = 0; from <= text.size();) {
        const auto dot = std::min(text.find('.', from), text.size());
        const auto label = text.substr(from, dot - from);
        if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-' ||
            !std::all_of(label.begin(), label.end(), [](char c) {
                return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
            }))
            return false;
        from = dot + 1;
    }
    return true;
}

/// {dns: db.example.org, type: A, count: 2}
void read_dns_barrier(FieldReader& fields, BarrierSpec& out) {
    std::string name;
    fields.text("dns", name, 254);
    out.tag = "A";
    fields.text("type", out.tag, 8);
    if (!is_dns_name(name)) fields.wrong("dns", "must be a DNS name, such as db.example.org or _ldap._tcp.example.org");
    if (out.tag != "A" && out.tag != "AAAA" && out.tag != "SRV") fields.wrong("type", "must be A, AAAA or SRV");
    if (out.count.type != Count::Type::number)
        fields.wrong("count", "must be a number from 1: the records of a DNS name are counted");
    if (name.ends_with('.')) name.pop_back();
    out.service = fmt::format("{}{}", dns_prefix, name);
}

} // namespace

std::optional<BarrierSpec> read_barrier(const json::value& value, const std::string& path, std::vector<FieldError>& errors) {
    BarrierSpec barrier;
    if (value.is_string()) {
        auto ref = parse_service(std::string_view(value.get_string()));
        if (!ref) {
            errors.push_back({path, "must be a service's name, such as mysql or glance:lb, or {service, tag, state, count, ...}"});
            return {};
        }
        barrier.service = std::move(ref->service);
        barrier.tag = std::move(ref->tag);
        return barrier;
    }
    if (!value.is_object()) {
        errors.push_back({path, "must be {service, tag, state, count, hold, deadline, on_timeout}, or {dns, type, count, ...}"});
        return {};
    }
    FieldReader fields(value.get_object(), path, errors);
    read_count(fields, barrier.count);
    std::string on_timeout = "fail";
    if (fields.find("dns") != nullptr) {
        read_dns_barrier(fields, barrier);
    } else {
        ServiceRef ref;
        read_service(fields, ref);
        barrier.service = std::move(ref.service);
        barrier.tag = std::move(ref.tag);
        std::string state = "passing";
        fields.text("state", state, 16);
        if (auto read = catalog::parse_state(state); read.ok())
            barrier.state = *read;
        else
            fields.wrong("state", fmt::format("must be registered, usable or passing, got \"{}\"", truncate(state, 64)));
    }
    fields.duration("hold", barrier.hold);
    Duration deadline{};
    if (fields.duration("deadline", deadline, std::chrono::milliseconds(1))) barrier.deadline = deadline;
    fields.text("on_timeout", on_timeout, 16);
    if (on_timeout == "fail")
        barrier.on_timeout = OnTimeout::fail;
    else if (on_timeout == "ask")
        barrier.on_timeout = OnTimeout::ask;
    else if (on_timeout == "continue")
        barrier.on_timeout = OnTimeout::go_on;
    else
        fields.wrong("on_timeout", "must be fail, ask or continue");
    fields.finish();
    return barrier;
}

} // namespace orrery::jobs
