#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <string>

namespace orrery {

/// A part of the process whose failures are contained. Its tasks run on `executor()`, the executor of the loop marked with the
/// component. Each TaskGroup made with that executor belongs to the component. An exception that leaves one of its tasks or
/// handlers is a failure of the component and does not end the process. Held by a shared_ptr; must outlive all use of its executor.
/// Loop thread only, except `fail`.
class Component : public std::enable_shared_from_this<Component> {
public:
    using OnFailure = std::function<void(const std::string& message)>;

    Component(std::string name, boost::asio::io_context& loop, OnFailure on_failure);
    Component(const Component&) = delete;
    Component& operator=(const Component&) = delete;

    const std::string& name() const { return name_; }
    boost::asio::any_io_executor executor();
    /// Makes this the component of all groups on the loop whose executor is not marked. Once per loop.
    void own_unmarked();
    /// Logs the failure and calls `on_failure` from the loop, never from within the failing task. Any thread.
    void fail(std::string message);
    /// Failures are not reported after this call.
    void close() { on_failure_ = nullptr; }

    /// The component that the executor is marked with; else the component that owns unmarked groups of its loop; else null.
    static std::shared_ptr<Component> of(const boost::asio::any_io_executor& executor);

private:
    std::string name_;
    boost::asio::io_context& loop_;
    OnFailure on_failure_;
};

/// A completion handler for co_spawn that reports exceptions as failures of the executor's component. Use it instead of
/// asio::detached, which loses them.
std::function<void(std::exception_ptr)> fail_component_of(boost::asio::any_io_executor executor);

/// The text of an exception, for the log. Empty for the exception that ends a cancelled coroutine.
std::string describe_failure(const std::exception_ptr& exception);

} // namespace orrery
