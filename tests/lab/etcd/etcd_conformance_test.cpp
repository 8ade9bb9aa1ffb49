// The suite that defines a store, on real etcd: one member, and three of which one is always being killed or coming back.

#include "core/test_fixture.h"
#include "lab/etcd/etcd_cluster.h"
#include "store/conformance_test.h"
#include "store/etcd/etcd_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace orrery::store::conformance {

namespace {

using orrery::testing::EtcdCluster;

/// A cluster for all tests of this program; each test has its own prefix.
class SharedCluster {
public:
    explicit SharedCluster(std::size_t members) : members_(members) {}
    ~SharedCluster() { end(); }

    Result<EtcdCluster*> get() {
        if (!cluster_) {
            cluster_ = std::make_unique<EtcdCluster>();
            TRY(std::ignore, cluster_->start(members_));
            if (members_ > 1) killer_ = std::thread([this] { kill_in_turn(); });
        }
        return cluster_.get();
    }
    void end() {
        {
            std::lock_guard lock(mutex_);
            ended_ = true;
        }
        told_.notify_all();
        if (killer_.joinable()) {
            killer_.join();
            fmt::print("members were killed {} times meanwhile\n", kills_);
        }
        cluster_.reset();
        ended_ = false;
        kills_ = 0;
    }

private:
    bool rest(std::chrono::milliseconds time) {
        std::unique_lock lock(mutex_);
        return !told_.wait_for(lock, time, [this] { return ended_; });
    }
    // The members that it starts are bound to this thread and end with it.
    void kill_in_turn() {
        for (std::size_t next = 0; rest(2500ms); next = (next + 1) % members_) {
            cluster_->kill(next);
            ++kills_;
            const bool go_on = rest(700ms);
            if (!cluster_->restart(next).ok() || !go_on) return;
        }
    }

    const std::size_t members_;
    std::unique_ptr<EtcdCluster> cluster_;
    std::thread killer_;
    std::mutex mutex_;
    std::condition_variable told_;
    bool ended_ = false;
    int kills_ = 0;
};

SharedCluster& one_member() {
    static SharedCluster cluster(1);
    return cluster;
}
SharedCluster& three_members() {
    static SharedCluster cluster(3);
    return cluster;
}

class EtcdLab final : public EngineFixture {
public:
    explicit EtcdLab(SharedCluster& shared) : shared_(shared), prefix_(fmt::format("/test-{}/", random_id())) {}

    Task<std::unique_ptr<Store>> open(asio::any_io_executor executor, Mirror::Options mirror) override {
        CO_TRY(auto* cluster, shared_.get());
        EtcdOptions options;
        options.endpoints = cluster->endpoints();
        options.prefix = prefix_;
        options.mirror = mirror;
        options.retry_time = 20s; // a member is always being killed here
        options.give_up = 30s;
        co_return co_await open_etcd(Context::background().with_timeout(30s), executor, options);
    }
    asio::awaitable<void> advance(Duration time) override { std::ignore = co_await real_clock().sleep(time); }
    Duration short_lease() const override { return 3s; }
    Duration lease_slack() const override { return 2s; }
    bool is_dense() const override { return false; } // opening and closing take revisions
    bool keeps_history() const override { return false; }

private:
    SharedCluster& shared_;
    std::string prefix_;
};

template <SharedCluster& (*shared)()> std::unique_ptr<EngineFixture> make_lab() {
    if (!EtcdCluster::installed()) return nullptr;
    return std::make_unique<EtcdLab>(shared());
}

class EndClusters final : public ::testing::Environment {
public:
    void TearDown() override {
        one_member().end();
        three_members().end();
    }
};
[[maybe_unused]] const auto* const end_clusters = ::testing::AddGlobalTestEnvironment(new EndClusters);

} // namespace

INSTANTIATE_TEST_SUITE_P(OneMember, StoreConformance, ::testing::Values(Engine{"etcd", make_lab<one_member>}));
INSTANTIATE_TEST_SUITE_P(MembersKilledOneAtATime, StoreConformance, ::testing::Values(Engine{"etcd", make_lab<three_members>}));

} // namespace orrery::store::conformance
