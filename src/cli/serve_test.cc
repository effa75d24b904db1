// SPDX-License-Identifier: Apache-2.0
// `hydrant serve` as whoever starts it meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "tests/http_client.h"
#include "tests/program.h"

namespace hydrant::test::serve_test {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// The program, from the line that says where it listens to its end.
class Server {
 public:
  // `max_files`: descriptors that it may have open; 0: as many as this process.
  explicit Server(std::vector<std::string> more, rlim_t max_files = 0) {
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    std::vector<std::string> words = {HYDRANT_PROGRAM, "serve", "--port", "0"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string err = dir_.path() + "/err";
    child_ = fork();
    if (child_ == 0) {
      setenv("XDG_CACHE_HOME", dir_.path().c_str(), 1);
      const rlimit files{max_files, max_files};
      if (max_files > 0) setrlimit(RLIMIT_NOFILE, &files);
      dup2(out[1], STDOUT_FILENO);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    FILE* const stream = fdopen(out[0], "r");
    char text[256] = "";
    if (std::fgets(text, sizeof text, stream) != nullptr) line_ = text;
    std::fclose(stream);
    const size_t colon = line_.rfind(':');
    if (colon != std::string::npos) port_ = static_cast<uint16_t>(std::atoi(line_.c_str() + colon + 1));
  }
  ~Server() {
    if (child_ > 0) {
      Signal(SIGKILL);
      Wait();
    }
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& line() const { return line_; }
  uint16_t port() const { return port_; }
  void Signal(int number) const { kill(child_, number); }
  // The exit code; 1000 + signal where one ended it.
  int Wait() {
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  std::string err() const { return ReadBack(dir_.path() + "/err"); }

 private:
  const TempDir dir_;
  pid_t child_ = -1;
  std::string line_;
  uint16_t port_ = 0;
};

TEST(ServeTest, GivesTheTextOfRunAndEndsBySigterm) {
  Server server({});
  EXPECT_THAT(server.line(), MatchesRegex("listening on http://127\\.0\\.0\\.1:[0-9]+\n"));
  EXPECT_THAT(server.err(), HasSubstr("using "));
  const Json run = JsonOf(Hydrant({"run", "--prompt", "Once upon a time", "--template", "none", "--max-tokens", "24",
                                   "--temperature", "0.7", "--seed", "3", "--json"}));
  const Json body = {{"prompt", "Once upon a time"},
                     {"max_tokens", 24},
                     {"temperature", 0.7},
                     {"seed", 3},
                     {"return_token_ids", true}};
  HttpClient client(server.port());
  const Json reply = client.Post("/v1/completions", body).json();
  EXPECT_EQ(reply["choices"][0]["token_ids"], run["token_ids"]);
  EXPECT_EQ(reply["choices"][0]["text"], run["text"]);
  EXPECT_EQ(reply["model"], "tale-14m");
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_TRUE(client.IsEnded());
}

TEST(ServeTest, RunningRequestsFinishAfterSigtermAndNoNewOnesAreTaken) {
  Server server({"--drain-delay", "1"});
  HttpClient client(server.port());
  client.Send(HttpClient::PostText(
      "/v1/completions",
      base::DumpJson({{"prompt", "Once"}, {"max_tokens", 100}, {"ignore_eos", true}, {"stream", true}})));
  ASSERT_TRUE(client.Until("data: "));
  HttpClient other(server.port());
  EXPECT_EQ(other.Get("/ready").status, 200);
  server.Signal(SIGTERM);
  HttpReply ready;
  ready.status = 200;
  for (int i = 0; i < 100 && ready.status == 200; ++i) ready = other.Get("/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_TRUE(client.Until("data: [DONE]"));
  EXPECT_EQ(server.Wait(), 0);
}

TEST(ServeTest, ASecondSignalEndsAtOnce) {
  Server server({});
  HttpClient client(server.port());
  client.Send(HttpClient::PostText(
      "/v1/completions", base::DumpJson({{"prompt", "Once"}, {"max_tokens", 400}, {"ignore_eos", true}, {"n", 64}})));
  HttpClient other(server.port());
  EXPECT_EQ(other.Get("/health").status, 200);
  server.Signal(SIGTERM);
  for (int i = 0; i < 500 && server.err().find("ending") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 1000 + SIGTERM);
}

TEST(ServeTest, WithoutAFileDescriptorConnectionsAreRefusedAndTheServerLivesOn) {
  Server server({}, /*max_files=*/48);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 80; ++i) clients.push_back(std::make_unique<HttpClient>(server.port(), /*timeout_ms=*/5000));
  int answered = 0, refused = 0;
  for (const auto& client : clients) {
    const HttpReply reply = client->Get("/health");
    answered += reply.status == 200 ? 1 : 0;
    refused += reply.status == 503 || reply.status == 0 ? 1 : 0;
  }
  EXPECT_GT(answered, 10);
  EXPECT_GT(refused, 30);
  EXPECT_EQ(answered + refused, 80);
  clients.clear();
  HttpReply reply;
  for (int i = 0; i < 500 && reply.status != 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    reply = HttpClient(server.port()).Post("/v1/completions", {{"prompt", "Once"}, {"max_tokens", 3}});
  }
  EXPECT_EQ(reply.status, 200) << server.err();
}

TEST(ServeTest, WhatCannotBeServedIsSaid) {
  const Server server({});
  ExpectRefused({"serve", "--port", std::to_string(server.port())},
                "cannot listen on 127.0.0.1 port " + std::to_string(server.port()));
  ExpectRefused({"serve", "--host", "no.such.host.invalid"}, "no address of this machine");
  ExpectRefused({"serve", "--tls-cert", "x.pem"}, "--tls-cert and --tls-key belong together");
  ExpectRefused({"serve", "--tls-cert", "x.pem", "--tls-key", "y.pem"}, "x.pem: is no certificate chain");
  ExpectRefused({"serve", "--tree", "chain", "--tree", "auto"}, "several times");
  ExpectRefused({"serve", "--prompt", "x"}, "unknown flag '--prompt'");
}

}  // namespace
}  // namespace hydrant::test::serve_test
