// SPDX-License-Identifier: Apache-2.0
#include "traffic/http_client.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "hydrant/error.h"

namespace hydrant::traffic {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;
using Request = http::request<http::string_body>;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadSize = 16 << 10;
constexpr uint32_t kMaxHeader = 64 << 10;

HttpOutcome OutcomeOf(const error_code& error, Failure otherwise, int status = 0) {
  if (error == beast::error::timeout) return {Failure::kTimeout, status, "no whole reply in time"};
  return {otherwise, status, error.message()};
}

// One connection.
class Link {
 public:
  virtual ~Link() = default;
  virtual asio::awaitable<HttpOutcome> Connect(const tcp::resolver::results_type& addresses, double timeout) = 0;
  virtual asio::awaitable<HttpOutcome> Talk(const Request& request, const HttpCall& call, double timeout) = 0;
  // May another request follow?
  bool is_open() const { return is_open_; }

 protected:
  bool is_open_ = false;
};

template <typename Stream>
class StreamLink : public Link {
 public:
  StreamLink(Stream stream, std::string host) : stream_(std::move(stream)), host_(std::move(host)) {}

  asio::awaitable<HttpOutcome> Connect(const tcp::resolver::results_type& addresses, double timeout) override {
    LimitTime(timeout);
    const auto [error, endpoint] = co_await lowest().async_connect(addresses, kAwait);
    if (error) co_return OutcomeOf(error, Failure::kConnect);
    error_code ignored;
    lowest().socket().set_option(tcp::no_delay(true), ignored);
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      SSL_set_tlsext_host_name(stream_.native_handle(), host_.c_str());
      stream_.set_verify_callback(asio::ssl::host_name_verification(host_));
      const auto [failed] = co_await stream_.async_handshake(asio::ssl::stream_base::client, kAwait);
      if (failed) co_return OutcomeOf(failed, Failure::kTls);
    }
    is_open_ = true;
    co_return HttpOutcome{};
  }

  asio::awaitable<HttpOutcome> Talk(const Request& request, const HttpCall& call, double timeout) override {
    is_open_ = false;
    LimitTime(timeout);
    const auto [unsent, sent] = co_await http::async_write(stream_, request, kAwait);
    if (unsent) co_return OutcomeOf(unsent, Failure::kCut);
    http::response_parser<http::buffer_body> parser;
    parser.header_limit(kMaxHeader);
    parser.body_limit(boost::none);  // who takes the parts says when there are enough
    const auto [error, count] = co_await http::async_read_header(stream_, buffer_, parser, kAwait);
    if (error) co_return OutcomeOf(error, Failure::kCut);
    const int status = static_cast<int>(parser.get().result_int());
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = bytes_.data();
      body.size = bytes_.size();
      auto [failed, read] = co_await http::async_read_some(stream_, buffer_, parser, kAwait);
      if (failed == http::error::need_buffer) failed = {};
      const std::string_view part(bytes_.data(), bytes_.size() - body.size);
      if (!part.empty() && !call.on_body(status, part)) co_return HttpOutcome{.status = status};
      if (failed) co_return OutcomeOf(failed, Failure::kCut, status);
    }
    is_open_ = parser.keep_alive();
    co_return HttpOutcome{.status = status};
  }

 private:
  PlainStream& lowest() { return beast::get_lowest_layer(stream_); }
  // For all that follows, until the next call.
  void LimitTime(double seconds) {
    lowest().expires_after(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
  }

  Stream stream_;
  std::string host_;
  beast::flat_buffer buffer_;
  std::array<char, kReadSize> bytes_;
};

asio::ssl::context TlsContext(const Server& server) {
  asio::ssl::context tls(asio::ssl::context::tls_client);
  error_code error;
  tls.set_default_verify_paths(error);
  if (error && !server.is_insecure) {
    throw UserError("the system's certificates cannot be read: " + error.message());
  }
  tls.set_verify_mode(server.is_insecure ? asio::ssl::verify_none : asio::ssl::verify_peer);
  return tls;
}

}  // namespace

struct HttpClient::Impl {
  Impl(asio::io_context& context, const Server& of) : io(context), server(of) {
    error_code error;
    tcp::resolver resolver(io);
    addresses = resolver.resolve(server.url.host, server.url.port, error);
    if (error || addresses.empty()) {
      throw UserError(
          fmt::format("{}: the host '{}' is not known: {}", server.url.Text(), server.url.host, error.message()));
    }
    if (server.url.is_tls) tls.emplace(TlsContext(server));
  }

  std::unique_ptr<Link> NewLink() {
    if (tls) return std::make_unique<StreamLink<TlsStream>>(TlsStream(io, *tls), server.url.host);
    return std::make_unique<StreamLink<PlainStream>>(PlainStream(io), server.url.host);
  }

  Request RequestOf(const HttpCall& call) const {
    Request request(call.body.empty() ? http::verb::get : http::verb::post, server.url.path + call.path, 11);
    request.set(http::field::host, server.url.HostField());
    request.set(http::field::user_agent, "hydrant");
    request.set(http::field::accept, "text/event-stream, application/json");
    if (!server.api_key.empty()) request.set(http::field::authorization, "Bearer " + server.api_key);
    if (!call.body.empty()) request.set(http::field::content_type, "application/json");
    request.body() = call.body;
    request.prepare_payload();
    return request;
  }

  // By value: `call` lives in this frame until the reply has ended.
  asio::awaitable<HttpOutcome> Send(HttpCall call) {
    const Request request = RequestOf(call);
    if (!idle.empty()) {
      std::unique_ptr<Link> link = std::move(idle.back());
      idle.pop_back();
      HttpOutcome outcome = co_await link->Talk(request, call, server.timeout);
      // A server may close a connection that waits, just as it is used again: that says nothing about the request.
      if (outcome.failure != Failure::kCut || outcome.status != 0) {
        if (link->is_open()) idle.push_back(std::move(link));
        co_return outcome;
      }
    }
    std::unique_ptr<Link> link = NewLink();
    HttpOutcome outcome = co_await link->Connect(addresses, server.timeout);
    if (outcome.failure != Failure::kNone) co_return outcome;
    outcome = co_await link->Talk(request, call, server.timeout);
    if (link->is_open()) idle.push_back(std::move(link));
    co_return outcome;
  }

  asio::io_context& io;
  Server server;
  tcp::resolver::results_type addresses;
  std::optional<asio::ssl::context> tls;
  std::vector<std::unique_ptr<Link>> idle;
};

HttpClient::HttpClient(asio::io_context& io, const Server& server) : impl_(std::make_unique<Impl>(io, server)) {}
HttpClient::~HttpClient() = default;

asio::awaitable<HttpOutcome> HttpClient::Send(HttpCall call) { return impl_->Send(std::move(call)); }

}  // namespace hydrant::traffic
