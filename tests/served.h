// SPDX-License-Identifier: Apache-2.0
// An engine behind the server's own HTTP, in this process.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/json.h"
#include "hydrant/engine.h"
#include "server/http/http_server.h"
#include "server/service.h"
#include "tests/http_client.h"
#include "tests/test_data.h"

namespace hydrant::test {

// The embedded model with its heads. One engine for all tests: each request's text hangs on the request alone.
inline Engine& TaleEngine() {
  static Engine engine([] {
    EngineOptions options;
    options.model = SourceDir() + "/models/tale-14m";
    options.draft = SourceDir() + "/models/tale-14m-hydra-pp";
    options.weights = "w8a8";
    options.threads = 2;
    return options;
  }());
  return engine;
}

class Served {
 public:
  Served(Engine& engine, server::ServiceOptions options, server::HttpOptions http = {})
      : service_(engine, std::move(options)),
        http_(
            [&] {
              http.port = 0;
              return http;
            }(),
            [this](const server::HttpRequest& request, std::shared_ptr<server::Exchange> exchange) {
              service_.Handle(request, std::move(exchange));
            }) {
    http_.Start();
  }
  ~Served() { http_.Stop(); }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  server::Service& service() { return service_; }
  server::HttpServer& http() { return http_; }
  uint16_t port() const { return http_.port(); }

  HttpReply Post(const std::string& path, const base::Json& body) const { return HttpClient(port()).Post(path, body); }
  base::Json Complete(const base::Json& body, const std::string& path = "/v1/completions") const {
    const HttpReply reply = Post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }
  // The value of a metric, by its name and labels as they stand there; -1 where it is not.
  double Metric(const std::string& name) const {
    const std::string text = "\n" + HttpClient(port()).Get("/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

 private:
  server::Service service_;
  server::HttpServer http_;
};

}  // namespace hydrant::test
