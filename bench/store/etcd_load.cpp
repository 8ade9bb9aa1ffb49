// Load on etcd with direct gRPC calls, one outstanding call for each client, without our client code.

#include "load.h"
#include "store/etcd/etcd.grpc.pb.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace orrery::bench {

namespace {

/// One client: one call after another.
class Client {
public:
    Client(const Load& load, std::shared_ptr<grpc::Channel> channel, unsigned seed, double until, std::string value)
        : load_(load), stub_(etcdserverpb::KV::NewStub(channel)), random_(seed), until_(until), value_(std::move(value)) {}

    void start() { next(); }
    void wait() {
        std::unique_lock lock(mutex_);
        ended_.wait(lock, [this] { return over_; });
    }
    std::uint64_t calls() const { return calls_; }
    const std::string& problem() const { return problem_; }

private:
    void next() {
        if (now_seconds() >= until_ || !problem_.empty()) {
            std::lock_guard lock(mutex_);
            over_ = true;
            ended_.notify_all();
            return;
        }
        context_ = std::make_unique<grpc::ClientContext>();
        auto done = [this](grpc::Status status) {
            if (!status.ok()) problem_ = status.error_message();
            ++calls_;
            next();
        };
        const auto key = "/bench/" + key_of(random_() % static_cast<unsigned>(load_.keys));
        if (load_.what == "reads") {
            range_.set_key(key);
            stub_->async()->Range(context_.get(), &range_, &found_, done);
        } else {
            put_.set_key(key);
            put_.set_value(value_);
            stub_->async()->Put(context_.get(), &put_, &written_, done);
        }
    }

    const Load& load_;
    std::unique_ptr<etcdserverpb::KV::Stub> stub_;
    std::mt19937 random_;
    double until_;
    std::string value_;
    std::unique_ptr<grpc::ClientContext> context_;
    etcdserverpb::RangeRequest range_;
    etcdserverpb::RangeResponse found_;
    etcdserverpb::PutRequest put_;
    etcdserverpb::PutResponse written_;
    std::uint64_t calls_ = 0;
    std::string problem_;
    std::mutex mutex_;
    std::condition_variable ended_;
    bool over_ = false;
};

std::vector<std::shared_ptr<grpc::Channel>> open_channels(const std::string& where, int clients) {
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (int i = 0; i < std::min(8, (clients + 31) / 32); ++i) {
        grpc::ChannelArguments arguments;
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1); // one connection for each client
        channels.push_back(grpc::CreateCustomChannel(where, grpc::InsecureChannelCredentials(), arguments));
    }
    return channels;
}

std::string fill_etcd(const Load& load, std::shared_ptr<grpc::Channel> channel, const std::string& value) {
    auto stub = etcdserverpb::KV::NewStub(channel);
    for (int i = 0; i < load.keys; ++i) {
        grpc::ClientContext context;
        etcdserverpb::PutRequest request;
        etcdserverpb::PutResponse response;
        request.set_key("/bench/" + key_of(static_cast<unsigned>(i)));
        request.set_value(value);
        const auto status = stub->Put(&context, request, &response);
        if (!status.ok()) return status.error_message();
    }
    return {};
}

} // namespace

Found load_etcd(const Load& load) {
    Found found;
    const std::string value(static_cast<std::size_t>(load.value), 'v');
    const auto channels = open_channels(load.where, load.clients);
    if (load.what == "reads") found.problem = fill_etcd(load, channels.front(), value);
    if (!found.problem.empty()) return found;
    const auto start = now_seconds(), cpu = cpu_seconds();
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < load.clients; ++i)
        clients.push_back(std::make_unique<Client>(load, channels[static_cast<std::size_t>(i) % channels.size()],
                                                   static_cast<unsigned>(i + 1), start + load.seconds, value));
    for (auto& client : clients) client->start();
    for (auto& client : clients) {
        client->wait();
        found.calls += client->calls();
        if (!client->problem().empty()) found.problem = client->problem();
    }
    found.seconds = now_seconds() - start;
    found.cpu_seconds = cpu_seconds() - cpu;
    return found;
}

} // namespace orrery::bench
