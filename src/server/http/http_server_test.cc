// SPDX-License-Identifier: Apache-2.0
// The HTTP layer without a model: what clients may send, and what they must not.
#include "server/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/http_client.h"

namespace hydrant::server::http_server_test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using test::HttpClient;
using test::HttpReply;
using testing::HasSubstr;

// Answers GET /echo with what it has heard; holds GET /hold until Release; POST /stream gives ten parts.
class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpOptions options = {}) {
    options.port = 0;
    server_ = std::make_unique<HttpServer>(
        options, [this](HttpRequest request, std::shared_ptr<Exchange> exchange) { Handle(request, exchange); });
    server_->Start();
  }
  void TearDown() override {
    held_.clear();
    if (server_) server_->Stop();
  }

  void Handle(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    ++requests_;
    if (request.path == "/forget") return;
    if (request.path == "/hold") {
      exchange->OnGone([this] { ++gone_; });
      const std::lock_guard lock(mutex_);
      held_.push_back(exchange);
    } else if (request.path == "/stream") {
      exchange->Begin({.content_type = "text/plain", .body = "0,"});
      for (int i = 1; i < 10; ++i) exchange->Write(std::to_string(i) + ",");
      exchange->End();
    } else if (request.path == "/throw") {
      throw std::runtime_error("of a handler");
    } else if (request.path == "/flood") {
      exchange->Begin({.content_type = "text/plain"});
      for (int i = 0; i < 64; ++i) exchange->Write(std::string(1 << 20, 'x'));
      exchange->End();
    } else {
      exchange->Send({.content_type = "text/plain",
                      .body = request.method + " " + request.path + "?" + request.query + " " + request.body + " " +
                              std::string(request.Header("x-test"))});
    }
  }
  void Release() {
    std::vector<std::shared_ptr<Exchange>> held;
    {
      const std::lock_guard lock(mutex_);
      held.swap(held_);
    }
    for (const auto& exchange : held) exchange->Send({.content_type = "text/plain", .body = "held"});
  }
  // Waits for it; tests fail by what they expect afterwards.
  static void Await(const std::function<bool()>& condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(10ms);
  }
  uint16_t port() const { return server_->port(); }
  HttpReply Raw(const std::string& bytes) {
    HttpClient client(port());
    client.Send(bytes);
    return client.ReadReply();
  }

  std::unique_ptr<HttpServer> server_;
  std::atomic<int> requests_ = 0, gone_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> held_;
};

TEST_F(HttpServerTest, RequestsOfOneConnectionAreAnsweredInOrder) {
  Start();
  HttpClient client(port());
  EXPECT_EQ(client.Get("/a?b=c", "X-Test: yes\r\n").body, "GET /a?b=c  yes");
  const HttpReply reply = client.PostRaw("/p", "body");
  EXPECT_EQ(reply.body, "POST /p? body ");
  EXPECT_EQ(reply.Header("content-type"), "text/plain");
  EXPECT_THAT(reply.Header("date"), testing::MatchesRegex("..., .. ... .... ..:..:.. GMT"));
  // Pipelined: while the first is held, the second waits.
  client.Send(
      "GET /hold HTTP/1.1\r\nHost: t\r\n\r\nGET /second HTTP/1.1\r\nHost: t\r\n\r\nGET /third HTTP/1.1\r\nHost: "
      "t\r\n\r\n");
  Await([&] { return requests_ == 3; });
  Release();
  EXPECT_EQ(client.ReadReply().body, "held");
  EXPECT_EQ(client.ReadReply().body, "GET /second?  ");
  EXPECT_EQ(client.ReadReply().body, "GET /third?  ");
}

TEST_F(HttpServerTest, BodiesMayComeInChunksAndRepliesDo) {
  Start();
  HttpClient client(port());
  client.Send("POST /p HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  std::this_thread::sleep_for(20ms);
  client.Send("2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n");
  EXPECT_EQ(client.ReadReply().body, "POST /p? abcde ");
  const HttpReply stream = client.PostRaw("/stream", "");
  EXPECT_EQ(stream.Header("transfer-encoding"), "chunked");
  EXPECT_EQ(stream.body, "0,1,2,3,4,5,6,7,8,9,");
  EXPECT_EQ(client.Get("/again").status, 200) << "the connection goes on";
}

TEST_F(HttpServerTest, EmptyLinesBeforeARequestAreNothing) {
  Start();
  HttpClient client(port());
  client.Send("\r\n\r\n" + HttpClient::PostText("/p", "a") + "\r\n");
  EXPECT_EQ(client.ReadReply().body, "POST /p? a ");
  EXPECT_EQ(client.Get("/b").body, "GET /b?  ");
  // A client that has sent one and goes is noticed all the same.
  client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n\r\n");
  Await([&] { return requests_ == 3; });
  client.Close();
  Await([&] { return gone_ == 1; });
  EXPECT_EQ(gone_, 1);
}

TEST_F(HttpServerTest, OneReplyMayBeLargerThanWhatMayWait) {
  Start({.max_body = 4 << 20, .max_unsent = 1 << 20});
  HttpClient client(port());
  EXPECT_EQ(client.PostRaw("/p", std::string(3 << 20, 'x')).body.size(), std::string("POST /p?  ").size() + (3U << 20));
}

TEST_F(HttpServerTest, ByteByByteIsTheSameRequest) {
  Start();
  HttpClient client(port());
  for (const char c : std::string("POST /p HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nok")) {
    ASSERT_TRUE(client.Send(std::string(1, c)));
  }
  EXPECT_EQ(client.ReadReply().body, "POST /p? ok ");
}

TEST_F(HttpServerTest, OldClientsGetRepliesWithoutChunks) {
  Start();
  HttpClient client(port());
  client.Send("GET /stream HTTP/1.0\r\n\r\n");
  const HttpReply reply = client.ReadReply();
  EXPECT_EQ(reply.Header("transfer-encoding"), "");
  EXPECT_EQ(reply.body, "0,1,2,3,4,5,6,7,8,9,");
  EXPECT_EQ(Raw("GET /a HTTP/1.0\r\n\r\n").Header("connection"), "close");
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Start();
  HttpClient client(port());
  client.Send("HEAD /a HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.ReadReply(/*has_body=*/false).Header("content-length"), "10");
  EXPECT_EQ(client.Get("/b").body, "GET /b?  ");
}

// What two servers in a row could read as different requests.
TEST_F(HttpServerTest, AmbiguousRequestsAreRefusedAndTheConnectionEnds) {
  Start();
  const std::string post = "POST /p HTTP/1.1\r\nHost: t\r\n";
  for (const std::string& bytes :
       std::vector<std::string>{post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                                post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
                                post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
                                post + "Content-Length: 3, 4\r\n\r\nabcd",
                                post + "Content-Length: +3\r\n\r\nabc",
                                post + "Content-Length: 0x3\r\n\r\nabc",
                                post + "Content-Length: -1\r\n\r\n",
                                post + "Content-Length: 99999999999999999999\r\n\r\n",
                                post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                                post + "Transfer-Encoding: xchunked\r\n\r\n",
                                post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
                                post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
                                post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
                                post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
                                std::string("POST /p HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
                                std::string("GET /a HTTP/1.1\r\n\r\n"),
                                std::string("GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
                                std::string("GET /a b HTTP/1.1\r\nHost: t\r\n\r\n"),
                                std::string("GET\r\n\r\n"),
                                std::string("GET /a HTTP/1.1\nHost: t\n\n"),
                                "\0\1\2\3\r\n\r\n"s,
                                std::string("GET /a HTTP/1.1\r\nHost: t\r\nBad Name: x\r\n\r\n"),
                                "GET /a HTTP/1.1\r\nHost: t\r\nX: a\0b\r\n\r\n"s}) {
    HttpClient client(port());
    client.Send(bytes);
    const HttpReply reply = client.ReadReply();
    EXPECT_EQ(reply.status, 400) << bytes;
    EXPECT_THAT(reply.body, HasSubstr("invalid_request_error")) << bytes;
    EXPECT_TRUE(client.IsEnded()) << bytes;
  }
  EXPECT_EQ(requests_, 0);
  EXPECT_GT(server_->counts().malformed, 20);
}

TEST_F(HttpServerTest, VersionsHeadersAndBodiesHaveLimits) {
  Start({.max_header = 1000, .max_body = 100});
  EXPECT_EQ(Raw("GET /a HTTP/3.7\r\nHost: t\r\n\r\n").status, 400);
  EXPECT_EQ(Raw("GET /a HTTP/1.1\r\nHost: t\r\nX: " + std::string(2000, 'x') + "\r\n\r\n").status, 431);
  EXPECT_EQ(Raw("GET /" + std::string(2000, 'x') + " HTTP/1.1\r\nHost: t\r\n\r\n").status, 431);
  const HttpReply large = Raw(HttpClient::PostText("/p", std::string(101, 'x')));
  EXPECT_EQ(large.status, 413);
  EXPECT_THAT(large.body, HasSubstr("more than 100 bytes"));
  EXPECT_EQ(Raw(HttpClient::PostText("/p", std::string(100, 'x'))).status, 200);
  // Refused by its length, before it is sent; and in chunks once there are too many.
  EXPECT_EQ(Raw("POST /p HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n").status, 413);
  std::string chunks;
  for (int i = 0; i < 5; ++i) chunks += "20\r\n" + std::string(32, 'x') + "\r\n";
  EXPECT_EQ(Raw("POST /p HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks).status, 413);
}

TEST_F(HttpServerTest, AClientMayAskBeforeItSendsABody) {
  Start();
  HttpClient client(port());
  client.Send("POST /p HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_THAT(client.Until("\r\n\r\n").value_or(""), HasSubstr("100 Continue"));
  client.Send("ok");
  EXPECT_EQ(client.ReadReply().body, "POST /p? ok ");
}

TEST_F(HttpServerTest, SlowClientsAreSentAway) {
  Start({.idle = 300ms, .read = 200ms});
  HttpClient slow(port());
  slow.Send("POST /p HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nabc");
  EXPECT_EQ(slow.ReadReply().status, 408);
  HttpClient slower(port());
  slower.Send("GET /a HT");
  EXPECT_EQ(slower.ReadReply().status, 408);
  HttpClient idle(port());
  EXPECT_TRUE(idle.IsEnded());
  HttpClient waits(port());
  waits.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  std::this_thread::sleep_for(600ms);
  Release();
  EXPECT_EQ(waits.ReadReply().body, "held") << "waiting for a reply is not idle";
}

TEST_F(HttpServerTest, AClientThatGoesIsNoticedWhileItsReplyIsMade) {
  Start();
  for (const bool reset : {false, true}) {
    gone_ = 0;
    const int before = requests_;
    HttpClient client(port());
    client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    Await([&] { return requests_ == before + 1; });
    reset ? client.Reset() : client.Close();
    Await([&] { return gone_ == 1; });
    EXPECT_EQ(gone_, 1) << reset;
    Release();  // too late, and nobody minds
  }
  Await([&] { return server_->counts().open == 0; });
  EXPECT_EQ(server_->counts().open, 0);
}

TEST_F(HttpServerTest, AClientThatDoesNotReadIsClosedAndTakesNoMoreMemory) {
  Start({.max_unsent = 4 << 20});
  HttpClient client(port());
  client.Send("GET /flood HTTP/1.1\r\nHost: t\r\n\r\n");
  Await([&] { return server_->counts().open == 0; });
  EXPECT_EQ(server_->counts().open, 0);
}

TEST_F(HttpServerTest, AHandlerWithoutAReplyIs500) {
  Start();
  EXPECT_EQ(Raw("GET /forget HTTP/1.1\r\nHost: t\r\n\r\n").status, 500);
  EXPECT_EQ(Raw("GET /throw HTTP/1.1\r\nHost: t\r\n\r\n").status, 500);
}

TEST_F(HttpServerTest, TooManyConnectionsAreRefusedAndTheOthersGoOn) {
  Start({.max_connections = 3});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port()));
    EXPECT_EQ(clients.back()->Get("/a").status, 200);
  }
  HttpClient fourth(port());
  EXPECT_EQ(fourth.ReadReply().status, 503);
  EXPECT_EQ(clients[0]->Get("/a").status, 200);
  clients.clear();
  Await([&] { return server_->counts().open == 0; });
  HttpClient again(port());
  EXPECT_EQ(again.Get("/a").status, 200);
}

TEST_F(HttpServerTest, DrainingEndsIdleConnectionsAndFinishesTheOthers) {
  Start();
  HttpClient idle(port()), busy(port());
  EXPECT_EQ(idle.Get("/a").status, 200);
  busy.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  Await([&] { return requests_ == 2; });
  const uint16_t before = port();
  server_->Drain();
  EXPECT_TRUE(idle.IsEnded());
  Await([&] { return !HttpClient(before).is_connected(); });
  EXPECT_FALSE(HttpClient(before).is_connected());
  Release();
  const HttpReply reply = busy.ReadReply();
  EXPECT_EQ(reply.body, "held");
  EXPECT_TRUE(busy.IsEnded());
}

TEST_F(HttpServerTest, AThousandIdleConnectionsLeaveRoomForOthers) {
  Start();
  std::vector<std::unique_ptr<HttpClient>> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(std::make_unique<HttpClient>(port()));
    ASSERT_TRUE(idle.back()->is_connected()) << i;
  }
  Await([&] { return server_->counts().open == 1000; });
  EXPECT_EQ(server_->counts().open, 1000);
  EXPECT_EQ(Raw("GET /a HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
  EXPECT_EQ(idle[500]->Get("/a").status, 200);
}

}  // namespace
}  // namespace hydrant::server::http_server_test
