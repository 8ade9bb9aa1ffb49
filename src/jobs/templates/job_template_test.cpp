#include "core/text.h"
#include "jobs/engine_fixture.h"
#include "jobs/templates/job_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::jobs {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view restart = R"(
parameters:
  - {name: role, required: true, pattern: "[a-z]+", description: which machines}
  - {name: unit, default: nginx, allowed: [nginx, haproxy]}
  - {name: at_once, type: integer, default: 1, min: 1, max: 10}
  - {name: share, type: number, default: 0.5, max: 1}
  - {name: force, type: boolean, default: false}
  - {name: extra, type: list, default: [], pattern: "[a-z]+"}
job:
  tasks:
    - name: restart
      on: ${param.role}
      batch: ${param.at_once}
      with: {unit: "${param.unit}", force: "${param.force}", extra: "${param.extra}"}
      run: {fake: {unit: "${param.unit}"}}
)";

json::object spec_of(std::string_view yaml) {
    auto read = parse_yaml(yaml);
    EXPECT_TRUE(read.ok());
    return read->at(0).value.as_object();
}

Result<JobTemplate> read(std::string_view yaml, const Executors* executors = nullptr) {
    return read_job_template("t", spec_of(yaml), executors);
}

std::vector<std::string> paths_of(const Error& error) {
    std::vector<std::string> out;
    for (const auto& field : error.fields) out.push_back(field.path);
    return out;
}

json::object values(std::string_view text) { return parse_json(text)->as_object(); }

TEST(JobTemplate, ARunHasItsOwnNameItsParametersAndItsStructure) {
    const auto of = read(restart);
    ASSERT_TRUE(of.ok()) << of.error().text();
    const auto now = *from_rfc3339("2026-11-17T02:30:05Z");
    const auto run = make_run(*of, {values(R"({"role":"web","at_once":3})"), {}, {}}, now);
    ASSERT_TRUE(run.ok()) << run.error().text();
    EXPECT_THAT(run->name, ::testing::MatchesRegex("t\\.run\\.20261117-023005-[0-9a-f]{6}"));
    EXPECT_NE(run->name, make_run(*of, {values(R"({"role":"web"})"), {}, {}}, now)->name);
    const auto& task = run->spec.at("tasks").as_array().at(0).as_object();
    EXPECT_EQ(task.at("on"), json::value("web"));
    EXPECT_EQ(task.at("batch"), json::value(3));
    EXPECT_EQ(task.at("run").at("fake").at("unit"), json::value("${param.unit}")) << "bound when the task starts";
    EXPECT_EQ(run->spec.at("template"), json::value("t"));
    EXPECT_EQ(run->spec.at("parameters"),
              json::value(values(R"({"role":"web","unit":"nginx","at_once":3,"share":0.5,"force":false,"extra":[]})")));
    EXPECT_EQ(template_of_run(run->name), "t");
}

TEST(JobTemplate, ARunOfAScheduleHasTheSameNameOnEveryServer) {
    const auto of = read(restart);
    const auto due = *from_rfc3339("2026-11-17T02:30:00Z");
    const auto one = make_run(*of, {values(R"({"role":"web"})"), "nightly", due}, due + std::chrono::minutes(3));
    ASSERT_TRUE(one.ok());
    EXPECT_EQ(one->name, "t.nightly.20261117-0230");
    EXPECT_EQ(one->spec.at("due_at"), json::value("2026-11-17T02:30:00.000Z"));
    EXPECT_EQ(template_of_run("a.b.nightly.20261117-0230"), "a.b");
    EXPECT_EQ(template_of_run("plain"), "");
    EXPECT_EQ(template_of_run("a.b"), "");
}

TEST(JobTemplate, InvalidParametersAreNamed) {
    const auto of = read(restart);
    ASSERT_TRUE(of.ok());
    const auto wrong = parameter_values(
        of->parameters, values(R"({"unit":"apache","at_once":11,"share":"x","force":1,"extra":["ok","NO"],"rol":"web"})"));
    ASSERT_FALSE(wrong.ok());
    EXPECT_THAT(paths_of(wrong.error()), ElementsAre("parameters.role", "parameters.unit", "parameters.at_once", "parameters.share",
                                                     "parameters.force", "parameters.extra", "parameters.rol"));
    EXPECT_EQ(wrong.error().fields[0].message, "is required: which machines");
    EXPECT_EQ(wrong.error().fields[1].message, R"(must be one of "nginx", "haproxy")");
    EXPECT_EQ(wrong.error().fields[2].message, "must be at most 10");
    EXPECT_THAT(wrong.error().fields[6].message, HasSubstr("did you mean role?"));
    EXPECT_FALSE(parameter_values(of->parameters, values(R"({"role":"web\nx"})")).ok()) << "the whole text must match";
    EXPECT_FALSE(parameter_values(of->parameters, values(R"({"role":"web","at_once":1.5})")).ok());
}

TEST(JobTemplate, AValueIsDataAndNamesNothing) {
    const auto of = read("parameters: [{name: x, required: true}]\njob: {tasks: [{name: a, with: {x: \"${param.x}\"}}]}");
    ASSERT_TRUE(of.ok());
    for (const auto* text : {R"({"x":"${secret.db.password}"})", R"({"x":"a${"})", R"({"x":"$(reboot); 'x' \"y\" `z` $HOME"})"}) {
        const auto taken = parameter_values(of->parameters, values(text));
        ASSERT_TRUE(taken.ok()) << text;
        EXPECT_EQ(*taken, values(text));
    }
}

TEST(JobTemplate, AValueInTheStructureOfAJobIsNotReadAgain) {
    const auto of = read(
        "parameters: [{name: x, required: true}]\njob: {description: \"${param.x}\", tasks: [{name: a, lock: \"${param.x}\"}]}");
    ASSERT_TRUE(of.ok());
    const auto run = make_run(*of, {values(R"({"x":"${param.x}"})"), {}, {}}, WallTime{});
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(run->spec.at("description"), json::value("${param.x}"));
    EXPECT_EQ(run->spec.at("tasks").at(0).at("lock"), json::value("${param.x}"));
}

TEST(JobTemplate, ErrorsOfATemplateNameTheirPath) {
    const auto paths = [](std::string_view yaml) {
        const auto wrong = read(yaml);
        return wrong.ok() ? std::vector<std::string>() : paths_of(wrong.error());
    };
    EXPECT_THAT(paths("job: {tasks: [{name: a, on: \"${param.x}\"}]}"), ElementsAre("spec.job.tasks[0].on"));
    EXPECT_THAT(paths("job: {tasks: [{name: a, with: {v: \"${param.x}\"}}]}"), ElementsAre("spec.job.tasks[0].with"));
    EXPECT_THAT(paths("parameters: [{name: r, default: web}]\njob: {tasks: [{name: a, on: {labels: \"role=${param.r}\"}}]}"),
                Contains("spec.job.tasks[0].on.labels"));
    EXPECT_THAT(paths("job: {tasks: [{name: a, timeout: soon}]}"), ElementsAre("spec.job.tasks[0].timeout"));
    EXPECT_THAT(paths("job: {template: x, tasks: [{name: a}]}"), ElementsAre("spec.job.template"));
    EXPECT_THAT(paths("parameters: [{name: x}]\njob: {tasks: [{name: a}]}"), ElementsAre("spec.parameters[0]"));
    EXPECT_THAT(paths("parameters: [{name: x, default: 1}, {name: y, required: true, pattern: '('}]\njob: {tasks: [{name: a}]}"),
                ElementsAre("spec.parameters[0].default", "spec.parameters[1].pattern"));
    EXPECT_THAT(paths("schedules: [{name: s, cron: '61 * * * *', time_zone: Mars}]\njob: {tasks: [{name: a}]}"),
                ElementsAre("spec.schedules[0].cron", "spec.schedules[0].time_zone"));
    EXPECT_THAT(paths("parameters: [{name: x, required: true}]\nschedules: [{name: s, cron: '@daily'}]\njob: {tasks: [{name: a}]}"),
                ElementsAre("spec.schedules[0].parameters.x"));
    EXPECT_THAT(paths("schedules: [{name: s, cron: '@daily', missed: run-all}]\njob: {tasks: [{name: a}]}"),
                ElementsAre("spec.schedules[0].missed"));
    // A parameter without a value is not validated: a duration here.
    EXPECT_THAT(paths("parameters: [{name: t, required: true}]\njob: {tasks: [{name: a, timeout: \"${param.t}\"}]}"), IsEmpty());
    const Executors none;
    const auto unknown = read("job: {tasks: [{name: a, on: web, run: {magic: {}}}]}", &none);
    ASSERT_FALSE(unknown.ok());
    EXPECT_THAT(paths_of(unknown.error()), ElementsAre("spec.job.tasks[0].run"));
}

TEST(JobParameters, AreBoundAsDataWhenATaskStarts) {
    testing::EngineFixture world;
    world.start();
    world.nodes("db", 1);
    world.submit("j", R"(
parameters: {version: "1.2; reboot", count: 3, hostile: "${secret.a.b} ${node.name} $(id) ${"}
tasks:
  - {name: a, on: db, with: {version: "${param.version}", n: "${param.count}"}, env: {V: "v${param.version}", H: "${param.hostile}"}, run: {fake: {n: "${param.count}", script: "echo ${param.hostile}"}}}
)");
    EXPECT_TRUE(world.reaches("j", JobState::succeeded));
    const auto& begun = world.fake.attempts().begin()->second;
    EXPECT_EQ(begun.attempt.values.at("version"), json::value("1.2; reboot"));
    EXPECT_EQ(begun.attempt.values.at("n"), json::value(3));
    EXPECT_EQ(begun.attempt.environment.at("V"), "v1.2; reboot");
    EXPECT_EQ(begun.attempt.body.at("n"), json::value(3));
    EXPECT_EQ(begun.attempt.environment.at("H"), "${secret.a.b} ${node.name} $(id) ${") << "a value is never read again";
    EXPECT_EQ(begun.attempt.body.at("script"), json::value("echo ${secret.a.b} ${node.name} $(id) ${"));
    const auto refused = [&](std::string_view yaml) {
        const auto made = world.apply("Job", "refused", yaml);
        return made.ok() ? std::string() : made.error().fields.at(0).path + " " + made.error().fields.at(0).message;
    };
    EXPECT_THAT(refused("parameters: {v: x}\ntasks: [{name: a, on: db, with: {x: \"${param.w}\"}}]"), HasSubstr("no parameter w"));
}

TEST(JobTemplate, AStoredBodyOfAnEarlierVersionIsMigrated) {
    testing::EngineFixture world;
    json::object spec = spec_of("job: {tasks: {a: {on: n, run: {fake: {}}, retries: {times: 1, first: 2s, longest: 9s}}}}"), status;
    job_template_kind(world.executors, world.clock).migration()(spec, status);
    EXPECT_EQ(to_json_text(spec.at("job").at("tasks").at("a").at("retries")), R"({"times":1,"delay":"2s","max_delay":"9s"})");
}

} // namespace
} // namespace orrery::jobs
