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
  Server server({"--drain-delay", "2"});
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
  for (int i = 0; i < 150 && ready.status == 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ready = other.Get("/ready");
  }
  EXPECT_EQ(ready.status, 503);
  EXPECT_TRUE(client.Until("data: [DONE]"));
  EXPECT_EQ(server.Wait(), 0);
}

TEST(ServeTest, WhatRunsLongerThanTheServerWaitsGetsAnError) {
  Server server({"--shutdown-timeout", "0", "--cpu-target", "portable", "--threads", "1"});
  HttpClient client(server.port());
  client.Send(HttpClient::PostText(
      "/v1/completions", base::DumpJson({{"prompt", "Once"}, {"max_tokens", 400}, {"ignore_eos", true}, {"n", 64}})));
  HttpClient other(server.port());
  for (int i = 0; i < 1000 && other.Get("/metrics").body.find("hydrant_sequences_running 0") != std::string::npos;
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  server.Signal(SIGTERM);
  const HttpReply reply = client.ReadReply();
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.body, HasSubstr("the server is ending"));
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
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UBSan opens a pipe to see whether an object is there, and takes it for gone where it cannot";
#endif
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

TEST(ServeTest, BenchServeMeasuresItAndComparesTextsWithPlainDecoding) {
  const Server server({});
  const TempDir dir;
  const std::string url = "http://127.0.0.1:" + std::to_string(server.port());
  const std::string suite = dir.Write("suite.jsonl", "{\"turns\": [\"The dog\", \"Why?\"]}\n{\"text\": \"The cat\"}\n");
  const std::vector<std::string> command = {"bench", "serve", "--url", url, "--suite", suite, "--max-tokens", "8"};
  const auto with = [&command](std::vector<std::string> more) {
    more.insert(more.begin(), command.begin(), command.end());
    return Hydrant(more);
  };
  const Json json =
      JsonOf(with({"--concurrency", "1,2", "--compare-plain", "--rounds", "2", "--temperature", "0.8", "--json"}));
  EXPECT_EQ(json["model"], "tale-14m");
  EXPECT_EQ(json["prompts"], 2);
  ASSERT_EQ(json["ways"].size(), 4U);
  const Json& plain = json["ways"][3];
  EXPECT_EQ(plain["name"], "2 open, plain");
  EXPECT_EQ(plain["requests"], 6) << "three turns a round";
  EXPECT_EQ(plain["failed"], 0);
  EXPECT_EQ(plain["tokens_counted_by"], "usage");
  EXPECT_EQ(plain["tokens_per_step"], 1);
  EXPECT_EQ(plain["ttft_ms"]["count"], 6);
  EXPECT_GT(plain["output_tokens_per_second"], 0);
  EXPECT_EQ(json["texts"]["compared"], 33) << "the first of twelve runs of three has nothing to be compared with";
  EXPECT_EQ(json["texts"]["different"], 0) << json["texts"];
  EXPECT_EQ(json["comparisons"][1]["rounds"], 2);
  const Outcome table = with({"--rate", "50", "--requests", "3", "--completions"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, testing::AllOf(HasSubstr("completions, 2 prompts"), HasSubstr("\n50/s "), HasSubstr("TTFT")));
  const Outcome other = with({"--model", "other"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("no request was answered; status 404: "));
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
