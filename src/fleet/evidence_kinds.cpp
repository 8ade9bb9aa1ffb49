#include "core/json_fields.h"
#include "fleet/benchmark/metrics.h"
#include "fleet/kinds.h"
#include "resource/object.h"
#include "resource/resources.h"

#include <fmt/format.h>

/// Kinds that hold the collected facts about machines.
namespace orrery::fleet {

using namespace resource;

namespace {

Field fact_list(std::string name, std::string doc) {
    return list(std::move(name), std::move(doc),
                list("fact", "Four texts: category, item, key, value.",
                     text("part", "One of the four.").format(Format::data).between(0, static_cast<std::int64_t>(max_fact_text)))
                    .between(4, 4))
        .required()
        .between(1, static_cast<std::int64_t>(max_facts));
}

/// A benchmark without a single measurement is a mistake in its source.
Task<Unit> prepare_benchmark(Context, Draft& draft) {
    std::vector<FieldError> errors;
    if (metrics_of(read_facts(array_at(draft.after.spec, "results"))).empty())
        errors.push_back({"spec.results",
                          "have no measurement: bogomips, loops_per_sec, bandwidth of cpu; standalone_ and simultaneous_ of "
                          "disk; bandwidth of network"});
    co_return verdict(*draft.resources->registry().find("Benchmark"), draft.after.name, std::move(errors));
}

} // namespace

Kind facts_kind() {
    Kind facts("Facts", "facts", "What introspection found out about a machine.");
    facts.spec(text("machine", "The Machine.").required().refers_to("Machine").indexed().immutable())
        .spec(
            text("source", "How they were found.").one_of({"file", "redfish", "inspector", "ramdisk", "ssh"}).default_value("file"))
        .spec(time("observed_at", "When."))
        .spec(fact_list(
            "facts", "Tuples as the introspection ramdisk reports them: [category, item, key, value], all texts. Sizes of memory "
                     "are bytes, sizes of disks whole gigabytes."))
        .column("NAME", "name")
        .column("MACHINE", "spec.machine")
        .column("SOURCE", "spec.source")
        .column("OBSERVED", "spec.observed_at")
        .column("AGE", "age")
        .example(R"(kind: Facts
name: ctl-0
spec:
  machine: ctl-0
  source: ramdisk
  observed_at: 2026-11-16T08:00:00Z
  facts:
    - [cpu, logical, number, "32"]
    - [memory, total, size, "68719476736"]
    - [disk, sda, size, "480"]
    - [system, kernel, arch, x86_64]
)");
    return facts;
}

Kind benchmark_kind() {
    Kind benchmark("Benchmark", "benchmarks",
                   "One benchmark run of a machine. The newest run of each machine counts; earlier ones are a baseline.");
    benchmark.spec(text("machine", "The Machine.").required().refers_to("Machine").indexed().immutable())
        .spec(time("measured_at", "When; the newest counts.").required())
        .spec(fact_list("results",
                        "Measurements as the introspection ramdisk reports them: [category, item, key, value], all texts."))
        .column("NAME", "name")
        .column("MACHINE", "spec.machine")
        .column("MEASURED", "spec.measured_at")
        .column("AGE", "age")
        .prepare([](Context ctx, Draft& draft) { return prepare_benchmark(std::move(ctx), draft); })
        .example(R"(kind: Benchmark
name: ctl-0-2026-11-16
spec:
  machine: ctl-0
  measured_at: 2026-11-16T08:10:00Z
  results:
    - [cpu, logical_0, loops_per_sec, "1412"]
    - [cpu, logical_0, bandwidth_1M, "9821"]
    - [disk, sda, standalone_read_1M_KBps, "142000"]
)");
    return benchmark;
}

} // namespace orrery::fleet
