#pragma once

#include "core/nearest.h"
#include "core/result.h"
#include "core/text.h"
#include "core/truncate.h"
#include "jobs/job_file.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Private to the sources that read job files: job_file.cpp, job_file_task.cpp and job_file_barrier.cpp.
namespace orrery::jobs {

constexpr std::size_t max_name = 128;

/// Reads the fields of one object and collects errors. `finish` reports the fields that were never read: they are unknown.
class FieldReader {
public:
    FieldReader(const json::object& object, std::string path, std::vector<FieldError>& errors)
        : object_(object), path_(std::move(path)), errors_(errors) {}

    const json::value* find(std::string_view name) {
        known_.push_back(name);
        const auto* value = object_.if_contains(name);
        return value == nullptr || value->is_null() ? nullptr : value;
    }
    std::string at(std::string_view name) const { return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name); }
    void wrong(std::string_view name, std::string message) { errors_.push_back({at(name), std::move(message)}); }

    void text(std::string_view name, std::string& out, std::size_t max_size = 1024) {
        const auto* value = find(name);
        if (value == nullptr) return;
        if (!value->is_string() || value->get_string().size() > max_size) {
            wrong(name, fmt::format("must be a text of at most {} characters", max_size));
            return;
        }
        out = std::string_view(value->get_string());
    }
    void flag(std::string_view name, bool& out) {
        const auto* value = find(name);
        if (value == nullptr) return;
        if (!value->is_bool()) return wrong(name, "must be true or false");
        out = value->get_bool();
    }
    void approval(bool& wanted, bool& by_another) {
        const auto* value = find("approve");
        if (value == nullptr) return;
        const auto* object = value->if_object();
        const auto* another = object == nullptr ? nullptr : object->if_contains("by_another");
        if (object == nullptr ? !value->is_bool() : object->size() != 1 || another == nullptr || !another->is_bool())
            return wrong("approve", "must be true, false or {by_another: true}");
        wanted = object != nullptr || value->get_bool();
        by_another = another != nullptr && another->get_bool();
    }
    void number(std::string_view name, int& out, int min, int max) {
        const auto* value = find(name);
        if (value == nullptr) return;
        if (!value->is_int64() || value->get_int64() < min || value->get_int64() > max)
            return wrong(name, fmt::format("must be a number from {} to {}", min, max));
        out = static_cast<int>(value->get_int64());
    }
    bool duration(std::string_view name, Duration& out, Duration min = Duration::zero()) {
        const auto* value = find(name);
        if (value == nullptr) return false;
        auto read =
            value->is_string() ? parse_duration(std::string_view(value->get_string())) : Result<Duration>(Error{Code::invalid, ""});
        if (!read.ok() || *read < min || *read > std::chrono::hours(24 * 366)) {
            wrong(name, fmt::format("must be a time such as 30s or 10m{}", min > Duration::zero() ? ", more than nothing" : ""));
            return false;
        }
        out = *read;
        return true;
    }
    /// Calls `each(value, path)` for the value, or for each item where it is a list.
    template <class F> void several(std::string_view name, F each, std::size_t max = 1000) {
        const auto* value = find(name);
        if (value == nullptr) return;
        if (!value->is_array()) return each(*value, at(name));
        if (value->get_array().size() > max) return wrong(name, fmt::format("may have at most {} entries", max));
        for (std::size_t i = 0; i < value->get_array().size(); ++i) each(value->get_array()[i], fmt::format("{}[{}]", at(name), i));
    }
    void names(std::string_view name, std::vector<std::string>& out) {
        several(
            name,
            [&](const json::value& value, const std::string& path) {
                if (!value.is_string() || value.get_string().empty() || value.get_string().size() > 253)
                    errors_.push_back({path, "must be a name"});
                else
                    out.emplace_back(std::string_view(value.get_string()));
            },
            100'000);
    }
    /// Reports unknown fields.
    void finish() {
        for (const auto& [key, value] : object_) {
            if (std::find(known_.begin(), known_.end(), std::string_view(key)) != known_.end()) continue;
            const auto near = nearest(key, known_.data(), known_.data() + known_.size());
            errors_.push_back(
                {at(truncate(key, 64)), near.empty() ? "is not known" : fmt::format("is not known; did you mean {}?", near)});
        }
    }
    std::vector<FieldError>& errors() { return errors_; }
    const std::vector<std::string_view>& known() const { return known_; }

private:
    const json::object& object_;
    std::string path_;
    std::vector<FieldError>& errors_;
    std::vector<std::string_view> known_;
};

/// Whether it is a name: letters, digits, `-`, `_` and `.`, at most 128 of them.
bool is_plain_name(std::string_view text);

/// "glance" or "glance:lb"; nothing where it is neither.
std::optional<ServiceRef> parse_service(std::string_view text);
/// The fields `service` and `tag` of an object.
void read_service(FieldReader& fields, ServiceRef& out);
/// A barrier as a service's name or as an object; nothing where it is neither.
std::optional<BarrierSpec> read_barrier(const json::value& value, const std::string& path, std::vector<FieldError>& errors);
/// `known`, where given, is filled with the names of a task's fields.
TaskSpec read_task(const json::object& object, const std::string& path, std::vector<FieldError>& errors,
                   std::vector<std::string_view>* known = nullptr);

} // namespace orrery::jobs
