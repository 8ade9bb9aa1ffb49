#include "core/component.h"

#include "core/context.h"
#include "core/log.h"

#include <boost/asio/error.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/require.hpp>
#include <boost/system/system_error.hpp>

#include <exception>
#include <type_traits>
#include <utility>

namespace orrery {

namespace asio = boost::asio;

namespace {

/// The loop's executor with a mark. All properties are the loop's; a handler that throws is a failure of the component.
template <class Inner> class MarkedExecutor {
public:
    MarkedExecutor(Inner inner, Component* component) noexcept : inner_(std::move(inner)), component_(component) {}
    Component* component() const noexcept { return component_; }

    template <class Property>
        requires asio::can_query<const Inner&, Property>::value
    typename asio::query_result<const Inner&, Property>::type query(const Property& property) const
        noexcept(asio::is_nothrow_query<const Inner&, Property>::value) {
        return asio::query(inner_, property);
    }
    template <class Property>
        requires asio::can_require<const Inner&, Property>::value
    auto require(const Property& property) const noexcept(asio::is_nothrow_require<const Inner&, Property>::value) {
        using Other = std::decay_t<typename asio::require_result<const Inner&, Property>::type>;
        return MarkedExecutor<Other>(asio::require(inner_, property), component_);
    }
    template <class Property>
        requires asio::can_prefer<const Inner&, Property>::value
    auto prefer(const Property& property) const noexcept(asio::is_nothrow_prefer<const Inner&, Property>::value) {
        using Other = std::decay_t<typename asio::prefer_result<const Inner&, Property>::type>;
        return MarkedExecutor<Other>(asio::prefer(inner_, property), component_);
    }
    template <class Function> void execute(Function&& function) const {
        inner_.execute([function = std::decay_t<Function>(std::forward<Function>(function)), component = component_]() mutable {
            try {
                std::move(function)();
            } catch (...) {
                if (auto message = describe_failure(std::current_exception()); !message.empty())
                    component->fail(std::move(message));
            }
        });
    }
    friend bool operator==(const MarkedExecutor& a, const MarkedExecutor& b) noexcept {
        return a.inner_ == b.inner_ && a.component_ == b.component_;
    }
    friend bool operator!=(const MarkedExecutor& a, const MarkedExecutor& b) noexcept { return !(a == b); }

private:
    Inner inner_;
    Component* component_;
};

using LoopExecutor = asio::io_context::executor_type;

/// Keeps the owner of a loop's unmarked groups with the loop.
class UnmarkedOwner : public asio::execution_context::service {
public:
    using key_type = UnmarkedOwner;
    static inline asio::execution_context::id id;
    explicit UnmarkedOwner(asio::execution_context& context) : service(context) {}
    std::weak_ptr<Component> owner;

private:
    void shutdown() override { owner.reset(); }
};

} // namespace

Component::Component(std::string name, asio::io_context& loop, OnFailure on_failure)
    : name_(std::move(name)), loop_(loop), on_failure_(std::move(on_failure)) {}

asio::any_io_executor Component::executor() { return MarkedExecutor<LoopExecutor>(loop_.get_executor(), this); }

void Component::own_unmarked() { asio::use_service<UnmarkedOwner>(loop_).owner = weak_from_this(); }

void Component::fail(std::string message) {
    log::error(Context::background(), "a task of component {} ended with an exception: {}", name_, message);
    asio::post(loop_, [self = shared_from_this(), message = std::move(message)] {
        if (self->on_failure_) self->on_failure_(message);
    });
}

std::shared_ptr<Component> Component::of(const asio::any_io_executor& executor) {
    if (const auto* marked = executor.target<MarkedExecutor<LoopExecutor>>()) return marked->component()->shared_from_this();
    auto& context = asio::query(executor, asio::execution::context);
    if (!asio::has_service<UnmarkedOwner>(context)) return nullptr;
    return asio::use_service<UnmarkedOwner>(context).owner.lock();
}

std::function<void(std::exception_ptr)> fail_component_of(asio::any_io_executor executor) {
    return [executor = std::move(executor)](const std::exception_ptr& exception) {
        if (!exception) return;
        auto message = describe_failure(exception);
        if (message.empty()) return;
        const auto component = Component::of(executor);
        if (!component) std::rethrow_exception(exception);
        component->fail(std::move(message));
    };
}

std::string describe_failure(const std::exception_ptr& exception) {
    try {
        std::rethrow_exception(exception);
    } catch (const boost::system::system_error& error) {
        return error.code() == asio::error::operation_aborted ? std::string() : error.what();
    } catch (const std::exception& error) {
        const std::string message = error.what();
        return message.empty() ? "an exception without a message" : message;
    } catch (...) {
        return "an unknown exception";
    }
}

} // namespace orrery
