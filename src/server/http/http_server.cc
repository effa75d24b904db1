// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "hydrant/error.h"
#include "server/http/connection.h"

namespace hydrant::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr auto kAwaitAccept = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kAcceptAgain{100};  // after an error that waiting may cure

// A connection takes a file descriptor, and many systems begin with 1,024 of them.
void RaiseOpenFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

asio::ssl::context TlsContext(const HttpOptions& options) {
  asio::ssl::context tls(asio::ssl::context::tls_server);
  tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                  asio::ssl::context::no_tlsv1_1);
  boost::system::error_code error;
  tls.use_certificate_chain_file(options.tls_cert, error);
  if (error) {
    throw FileError(options.tls_cert, "is no certificate chain: " + error.message(), "give a PEM file");
  }
  tls.use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error) {
    throw FileError(options.tls_key,
                    "is no private key of the certificate in " + options.tls_cert + ": " + error.message(),
                    "give a PEM file without a pass phrase");
  }
  return tls;
}

int SpareDescriptor() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpOptions& options, HttpHandler handler)
      : context(std::make_shared<ConnectionContext>()),
        work(context->io.get_executor()),
        strand(asio::make_strand(context->io)),
        acceptor(strand) {
    RaiseOpenFiles();
    context->options = options;
    context->handler = std::move(handler);
    if (!options.tls_cert.empty()) context->tls.emplace(TlsContext(options));
    Bind();
    spare = SpareDescriptor();
  }
  ~Impl() {
    if (spare >= 0) close(spare);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void Bind() {
    const HttpOptions& options = context->options;
    boost::system::error_code error;
    tcp::resolver resolver(context->io);
    const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
    if (error || found.empty()) {
      throw UserError(fmt::format("host '{}' is no address of this machine: {}", options.host, error.message()),
                      "127.0.0.1 is this machine alone, 0.0.0.0 every network");
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    CheckListens(error);
  }

  void Listen() {
    boost::system::error_code error;
    acceptor.listen(asio::socket_base::max_listen_connections, error);
    CheckListens(error);
  }

  void CheckListens(const boost::system::error_code& error) const {
    if (!error) return;
    throw UserError(
        fmt::format("cannot listen on {} port {}: {}", context->options.host, context->options.port, error.message()),
        "choose another port; 0 takes a free one");
  }

  asio::awaitable<void> AcceptAll() {
    while (acceptor.is_open()) {
      auto [error, socket] = co_await acceptor.async_accept(asio::make_strand(context->io), kAwaitAccept);
      if (!acceptor.is_open() || error == asio::error::operation_aborted) co_return;
      if (error == asio::error::no_descriptors || error.value() == ENFILE) {
        if (RefuseOne()) continue;
      }
      if (error) {
        asio::steady_timer pause(context->io, kAcceptAgain);
        co_await pause.async_wait(kAwaitAccept);
        continue;
      }
      ++context->accepted;
      Welcome(std::move(socket));
    }
  }

  void Welcome(tcp::socket socket) {
    if (context->open >= context->options.max_connections) {
      ++context->refused;
      static constexpr std::string_view kBusy =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
      boost::system::error_code ignored;
      if (!context->tls) socket.send(asio::buffer(kBusy), MSG_DONTWAIT, ignored);
      return;
    }
    MakeConnection(context, std::move(socket))->Start();
  }

  // No file descriptor is left: with the spare one the oldest waiting client is accepted and sent away.
  bool RefuseOne() {
    if (spare >= 0) close(spare);
    const int client = accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client >= 0) close(client);
    spare = SpareDescriptor();
    if (client < 0) return false;
    ++context->accepted;
    ++context->refused;
    return true;
  }

  std::vector<std::shared_ptr<Connection>> Connections();

  std::shared_ptr<ConnectionContext> context;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  asio::strand<asio::io_context::executor_type> strand;  // of the acceptor
  tcp::acceptor acceptor;
  int spare = -1;
  std::vector<std::thread> threads;
};

HttpServer::HttpServer(const HttpOptions& options, HttpHandler handler)
    : impl_(std::make_unique<Impl>(options, std::move(handler))) {}

HttpServer::~HttpServer() { Stop(); }

uint16_t HttpServer::port() const {
  boost::system::error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

void HttpServer::Start() {
  impl_->Listen();
  asio::co_spawn(impl_->acceptor.get_executor(), impl_->AcceptAll(), asio::detached);
  for (int32_t t = 0; t < impl_->context->options.threads; ++t) {
    impl_->threads.emplace_back([context = impl_->context] {
      while (true) {
        try {
          context->io.run();
          return;
        } catch (const std::exception&) {  // out of memory, in one connection: the others go on
        }
      }
    });
  }
}

HttpCounts HttpServer::counts() const {
  const ConnectionContext& context = *impl_->context;
  return {
      .open = context.open, .accepted = context.accepted, .refused = context.refused, .malformed = context.malformed};
}

void HttpServer::Drain() {
  impl_->context->draining = true;
  asio::post(impl_->strand, [impl = impl_.get()] {
    boost::system::error_code ignored;
    impl->acceptor.close(ignored);
  });
  for (const auto& connection : impl_->Connections()) connection->CloseIfIdle();
}

void HttpServer::Stop() {
  if (impl_->threads.empty()) return;
  Drain();
  for (const auto& connection : impl_->Connections()) connection->Close();
  impl_->work.reset();
  // What Close has posted still runs; then nothing is left to wait for.
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

std::vector<std::shared_ptr<Connection>> HttpServer::Impl::Connections() {
  const std::lock_guard lock(context->mutex);
  std::vector<std::shared_ptr<Connection>> found;
  for (Connection* const connection : context->connections) {
    if (auto alive = connection->Alive()) found.push_back(std::move(alive));
  }
  return found;
}

}  // namespace hydrant::server
