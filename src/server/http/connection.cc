// SPDX-License-Identifier: Apache-2.0
#include "server/http/connection.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/http/exchange.h"

namespace hydrant::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using TlsStream = asio::ssl::stream<tcp::socket>;
using Parser = http::request_parser<http::string_body>;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kLinger{2'000};  // for the last bytes of a connection
constexpr size_t kReadSize = 16 << 10;

// A request that no handler sees: the status that it gets, and why.
struct Refusal {
  int status = 0;  // 0: none
  std::string why = {};
};

Refusal RefusalOf(const boost::system::error_code& error, const HttpOptions& options) {
  if (error == http::error::header_limit) {
    return {431, fmt::format("the request's header has more than {} bytes", options.max_header)};
  }
  if (error == http::error::body_limit) {
    return {413, fmt::format("the request's body has more than {} bytes", options.max_body)};
  }
  return {400, "the request is not valid HTTP"};
}

// What Beast lets pass and two servers in a row could read differently.
Refusal RefusalOf(const Parser::value_type& message) {
  const auto transfer = message.find(http::field::transfer_encoding);
  if (transfer != message.end()) {
    if (message.count(http::field::content_length) > 0) {
      return {400, "Content-Length and Transfer-Encoding are both given"};
    }
    if (message.version() == 10 || message.count(http::field::transfer_encoding) > 1 ||
        !boost::beast::iequals(transfer->value(), "chunked")) {
      return {400, "Transfer-Encoding is not chunked alone"};
    }
  }
  if (message.count(http::field::content_length) > 1) return {400, "Content-Length is given twice"};
  if (message.count(http::field::host) > 1 || (message.version() == 11 && message.count(http::field::host) == 0)) {
    return {400, "expected one Host"};
  }
  return {};
}

HttpRequest Converted(Parser::value_type message, std::string remote) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  const size_t query = target.find('?');
  request.path = target.substr(0, query);
  if (query != std::string::npos) request.query = target.substr(query + 1);
  for (const auto& field : message) request.headers.emplace_back(field.name_string(), field.value());
  request.body = std::move(message.body());
  request.remote = std::move(remote);
  return request;
}

// All members are used on the socket's strand, but in Queue and Close, which post to it.
template <typename Stream>
class StreamConnection : public Connection,
                         public ExchangeSink,
                         public std::enable_shared_from_this<StreamConnection<Stream>> {
 public:
  StreamConnection(std::shared_ptr<ConnectionContext> context, Stream stream, std::string remote)
      : context_(std::move(context)),
        stream_(std::move(stream)),
        remote_(std::move(remote)),
        read_timer_(stream_.get_executor()),
        write_timer_(stream_.get_executor()),
        exchange_ended_(stream_.get_executor(), asio::steady_timer::time_point::max()),
        queued_(stream_.get_executor(), asio::steady_timer::time_point::max()) {
    ++context_->open;
    const std::lock_guard lock(context_->mutex);
    context_->connections.insert(this);
  }
  ~StreamConnection() override {
    --context_->open;
    const std::lock_guard lock(context_->mutex);
    context_->connections.erase(this);
  }
  StreamConnection(const StreamConnection&) = delete;
  StreamConnection& operator=(const StreamConnection&) = delete;

  void Start() override {
    asio::co_spawn(
        stream_.get_executor(), [self = this->shared_from_this()] { return self->ReadAll(); }, asio::detached);
  }
  void Close() override {
    Post([](StreamConnection& self) { self.Gone(); });
  }
  void CloseIfIdle() override {
    Post([](StreamConnection& self) {
      if (self.is_idle_) self.Gone();
    });
  }
  std::shared_ptr<Connection> Alive() override { return this->weak_from_this().lock(); }
  void Queue(std::string bytes, bool is_last, bool must_close) override {
    Post([bytes = std::move(bytes), is_last, must_close](StreamConnection& self) mutable {
      self.Take(std::move(bytes), is_last, must_close);
    });
  }

 private:
  template <typename Fn>
  void Post(Fn fn) {
    asio::post(stream_.get_executor(), [self = this->shared_from_this(), fn = std::move(fn)]() mutable { fn(*self); });
  }

  tcp::socket::lowest_layer_type& socket() { return stream_.lowest_layer(); }

  void Gone() {
    if (!is_open_) return;
    is_open_ = false;
    boost::system::error_code ignored;
    socket().close(ignored);
    read_timer_.cancel();
    write_timer_.cancel();
    exchange_ended_.cancel();
    queued_.cancel();
    if (const auto exchange = exchange_.lock()) exchange->Gone();
  }

  // Ends reads that have not ended by then. The timer outlives what it waits for, so it looks whether it was moved.
  void LimitRead(std::chrono::milliseconds most) {
    read_timed_out_ = false;
    read_timer_.expires_after(most);
    read_timer_.async_wait([self = this->shared_from_this()](const boost::system::error_code& error) {
      if (error || self->read_timer_.expiry() > asio::steady_timer::clock_type::now()) return;
      self->read_timed_out_ = true;
      boost::system::error_code ignored;
      self->socket().cancel(ignored);
    });
  }

  void Take(std::string bytes, bool is_last, bool must_close) {
    if (!is_open_) return;
    // Of what waits already: one part may be larger.
    if (unsent_ > context_->options.max_unsent) return Gone();
    unsent_ += bytes.size();
    parts_.push_back(std::move(bytes));
    exchange_is_written_ = exchange_is_written_ || is_last;
    closes_ = closes_ || must_close || (is_last && context_->draining);
    queued_.cancel();
  }

  asio::awaitable<bool> Handshake() {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      LimitRead(context_->options.read);
      const auto [error] = co_await stream_.async_handshake(asio::ssl::stream_base::server, kAwait);
      co_return !error;
    } else {
      co_return true;
    }
  }

  asio::awaitable<void> ReadAll() {
    const auto self = this->shared_from_this();
    is_idle_ = true;
    if (!co_await Handshake()) co_return Gone();
    asio::co_spawn(
        stream_.get_executor(), [self] { return self->WriteAll(); }, asio::detached);
    while (is_open_ && !closes_) {
      if (!co_await AwaitFirstByte()) break;
      Parser parser;
      const Refusal refusal = co_await ReadMessage(parser);
      if (!is_open_ || refusal.status < 0) break;
      co_await ExchangeEnd();
      if (!is_open_ || closes_) break;
      if (refusal.status > 0) {
        ++context_->malformed;
        Refuse(refusal);
        break;
      }
      Handle(parser.release());
    }
    co_await Discard();
  }

  // Until the request in hand is answered, and all of the answer is sent.
  asio::awaitable<void> ExchangeEnd() {
    while (is_open_ && has_exchange_) co_await exchange_ended_.async_wait(kAwait);
  }

  // Empty lines before a request are nothing (RFC 9112, 2.2): old clients send one behind a body.
  void SkipEmptyLines() {
    const auto begins = [this](const char* line) {
      return buffer_.size() >= 2 && std::memcmp(buffer_.cdata().data(), line, 2) == 0;
    };
    while (begins("\r\n")) buffer_.consume(2);
  }

  // False at the connection's end. Waits for as long as the last request is being answered, and then for `idle`.
  asio::awaitable<bool> AwaitFirstByte() {
    SkipEmptyLines();
    while (is_open_ && !closes_ && buffer_.size() == 0) {
      is_idle_ = !has_exchange_;
      if (is_idle_ && context_->draining) co_return false;
      if (is_idle_) LimitRead(context_->options.idle);
      is_waiting_ = true;
      const auto [error, count] = co_await stream_.async_read_some(buffer_.prepare(kReadSize), kAwait);
      is_waiting_ = false;
      buffer_.commit(count);
      SkipEmptyLines();
      is_idle_ = false;
      if (error) {
        if (!closes_) Gone();  // a client that only ends its own side is held to be gone, as most servers hold it
        co_return false;
      }
    }
    co_return is_open_ && !closes_;
  }

  // A negative status: the client has gone.
  asio::awaitable<Refusal> ReadMessage(Parser& parser) {
    parser.header_limit(context_->options.max_header);
    parser.body_limit(context_->options.max_body);
    LimitRead(context_->options.read);
    auto [error, count] = co_await http::async_read_header(stream_, buffer_, parser, kAwait);
    if (!error) {
      if (const Refusal refusal = RefusalOf(parser.get()); refusal.status > 0) co_return refusal;
      if (!parser.is_done() && boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
        co_await ExchangeEnd();
        Take("HTTP/1.1 100 Continue\r\n\r\n", false, false);
      }
      LimitRead(context_->options.read);
      std::tie(error, count) = co_await http::async_read(stream_, buffer_, parser, kAwait);
    }
    read_timer_.cancel();
    if (!error) co_return Refusal{};
    if (read_timed_out_) co_return Refusal{408, "the request took too long to arrive"};
    if (error.category() == http::make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      co_return RefusalOf(error, context_->options);
    }
    Gone();
    co_return Refusal{-1};
  }

  void Refuse(const Refusal& refusal) {
    has_exchange_ = true;
    const std::string body =
        R"({"error":{"message":")" + refusal.why + R"(","type":"invalid_request_error","param":null,"code":null}})";
    SinkExchange(this->shared_from_this(), {.keep_alive = false}).Send({.status = refusal.status, .body = body});
  }

  void Handle(Parser::value_type message) {
    const ExchangeSettings settings{.head_only = message.method() == http::verb::head,
                                    .is_http10 = message.version() == 10,
                                    .keep_alive = message.keep_alive() && !context_->draining};
    auto exchange = std::make_shared<SinkExchange>(this->shared_from_this(), settings);
    has_exchange_ = true;
    exchange_ = exchange;
    try {
      context_->handler(Converted(std::move(message), remote_), exchange);
    } catch (...) {  // the exchange's end answers with 500
    }
  }

  asio::awaitable<void> WriteAll() {
    const auto self = this->shared_from_this();
    while (is_open_) {
      if (parts_.empty() && !exchange_is_written_) {
        co_await queued_.async_wait(kAwait);
        continue;
      }
      if (!co_await WriteParts()) co_return Gone();
      if (!exchange_is_written_ || !parts_.empty()) continue;
      exchange_is_written_ = false;
      has_exchange_ = false;
      exchange_.reset();
      exchange_ended_.cancel();
      if (closes_) co_return co_await Shutdown();
      if (is_waiting_) {
        is_idle_ = true;
        LimitRead(context_->options.idle);
        if (context_->draining) co_return Gone();
      }
    }
  }

  asio::awaitable<bool> WriteParts() {
    const std::vector<std::string> parts = std::exchange(parts_, {});
    std::vector<asio::const_buffer> buffers;
    for (const std::string& part : parts) buffers.push_back(asio::buffer(part));
    write_timer_.expires_after(context_->options.write);
    write_timer_.async_wait([self = this->shared_from_this()](const boost::system::error_code& error) {
      if (!error && self->write_timer_.expiry() <= asio::steady_timer::clock_type::now()) self->Gone();
    });
    const auto [error, count] = co_await asio::async_write(stream_, buffers, kAwait);
    write_timer_.cancel();
    unsent_ -= std::min<uint64_t>(unsent_, count);
    co_return !error && is_open_;
  }

  // Ends our side, so that the client reads the reply's last bytes; Discard waits for its side.
  asio::awaitable<void> Shutdown() {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      LimitRead(kLinger);
      static_cast<void>(co_await stream_.async_shutdown(kAwait));
      Gone();
    } else {
      boost::system::error_code ignored;
      socket().shutdown(tcp::socket::shutdown_send, ignored);
      if (is_waiting_) LimitRead(kLinger);
    }
  }

  // Reads what the client still sends, for a moment: a socket that is closed with unread bytes resets the connection,
  // and the client might lose the reply.
  asio::awaitable<void> Discard() {
    co_await ExchangeEnd();
    if constexpr (!std::is_same_v<Stream, TlsStream>) {
      if (read_timed_out_) co_return Gone();
      if (is_open_) LimitRead(kLinger);
      for (uint64_t total = 0; is_open_ && total < (1U << 20);) {
        const auto [error, count] = co_await stream_.async_read_some(asio::buffer(discarded_), kAwait);
        if (error) break;
        total += count;
      }
      Gone();
    }
  }

  std::shared_ptr<ConnectionContext> context_;
  Stream stream_;
  std::string remote_;
  asio::steady_timer read_timer_, write_timer_;
  asio::steady_timer exchange_ended_, queued_;  // never expire; cancelled where what they wait for may have come
  boost::beast::flat_buffer buffer_;
  std::array<char, kReadSize> discarded_;
  std::vector<std::string> parts_;  // to be sent
  uint64_t unsent_ = 0;             // bytes of those, and of what is being sent
  std::weak_ptr<SinkExchange> exchange_;
  bool is_open_ = true;
  bool closes_ = false;               // after the reply in hand
  bool has_exchange_ = false;         // a request is being answered
  bool exchange_is_written_ = false;  // and parts_ has its end
  bool is_waiting_ = false;           // for the first byte of a request
  bool is_idle_ = false;              // and no request is being answered
  bool read_timed_out_ = false;
};

}  // namespace

std::shared_ptr<Connection> MakeConnection(std::shared_ptr<ConnectionContext> context, tcp::socket socket) {
  boost::system::error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  std::string remote = error ? "" : peer.address().to_string();
  socket.set_option(tcp::no_delay(true), error);
  socket.set_option(asio::socket_base::keep_alive(true), error);
  if (!context->tls) {
    return std::make_shared<StreamConnection<tcp::socket>>(std::move(context), std::move(socket), std::move(remote));
  }
  TlsStream stream(std::move(socket), *context->tls);
  return std::make_shared<StreamConnection<TlsStream>>(std::move(context), std::move(stream), std::move(remote));
}

}  // namespace hydrant::server
