#pragma once

#include "core/test_fixture.h"
#include "drivers/ssh/logins.h"
#include "drivers/ssh/remote.h"
#include "jobs/executor.h"
#include "net/ssh_fixture.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

/// For tests of executors: one node, which is an sshd on loopback, and an output that stores what it gets.
namespace orrery::drivers::testing {

class FakeLogins final : public Logins {
public:
    explicit FakeLogins(const net::testing::TestSshd& sshd) {
        target.host = "127.0.0.1";
        target.port = sshd.port();
        target.user = net::testing::TestSshd::user();
        target.private_key = sshd.private_key();
        target.host_key = sshd.host_key();
    }
    Result<net::SshTarget> login(const resource::Node&) override { return target; }
    net::SshTarget target;
};

class StoredOutput final : public jobs::Output {
public:
    void write(jobs::Stream stream, std::uint64_t offset, std::string_view bytes) override {
        auto& stored = stream == jobs::Stream::out ? out : err;
        if (offset > stored.size()) gaps = true;
        if (offset < stored.size()) bytes.remove_prefix(std::min<std::size_t>(bytes.size(), stored.size() - offset));
        stored += bytes;
    }
    void step(jobs::Step step) override { steps.push_back(std::move(step)); }
    std::string out, err;
    bool gaps = false;
    std::vector<jobs::Step> steps;
    jobs::Offsets offsets() const { return {out.size(), err.size(), out.substr(out.rfind('\n') + 1)}; }
};

inline jobs::Attempt attempt_on(std::string id, boost::json::value body) {
    jobs::Attempt attempt;
    attempt.job = "j";
    attempt.task = "t@n1";
    attempt.id = std::move(id);
    attempt.body = std::move(body);
    jobs::Target target;
    target.node.name = "n1";
    target.node.address = "127.0.0.1";
    attempt.targets.push_back(std::move(target));
    attempt.environment = {{"ORRERY_JOB", "j"}};
    attempt.timeout = std::chrono::seconds(20);
    return attempt;
}

} // namespace orrery::drivers::testing
