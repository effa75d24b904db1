// SPDX-License-Identifier: Apache-2.0
#include "traffic/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <utility>

#include "base/json.h"
#include "hydrant/error.h"
#include "traffic/http_client.h"

namespace hydrant::traffic {
namespace {

constexpr size_t kMostBytes = 4 << 20;
constexpr double kMostSeconds = 30;  // a list of models takes no time to make

HttpOutcome Get(const Server& server, const std::string& path, std::string& body) {
  boost::asio::io_context io{1};
  Server hurried = server;
  hurried.timeout = std::min(server.timeout, kMostSeconds);
  HttpClient client(io, hurried);
  HttpOutcome outcome;
  HttpCall call{.path = path, .body = {}, .on_body = {}};
  call.on_body = [&body](int /*status*/, std::string_view bytes) {
    body += bytes;
    return body.size() <= kMostBytes;
  };
  boost::asio::co_spawn(io, client.Send(std::move(call)), [&outcome](const std::exception_ptr& error, HttpOutcome got) {
    if (error) std::rethrow_exception(error);
    outcome = std::move(got);
  });
  io.run();
  return outcome;
}

}  // namespace

std::string FindModel(const Server& server) {
  const std::string where = server.url.Text() + "/v1/models";
  std::string body;
  const HttpOutcome outcome = Get(server, "/v1/models", body);
  if (outcome.failure == Failure::kConnect) {
    throw UserError(fmt::format("{}: nobody answers there: {}", server.url.Text(), outcome.problem),
                    "start the server first, and give the URL that it prints");
  }
  if (outcome.failure == Failure::kTls) {
    throw UserError(fmt::format("{}: no TLS connection: {}", server.url.Text(), outcome.problem),
                    "name a file with the server's certificate in SSL_CERT_FILE, or take any certificate");
  }
  if (outcome.failure != Failure::kNone) {
    throw UserError(fmt::format("{}: {}", where, outcome.problem),
                    server.url.is_tls ? "" : "a server that speaks TLS wants https:// in its URL");
  }
  if (outcome.status == 401 || outcome.status == 403) {
    throw UserError(fmt::format("{}: status {}: {}", where, outcome.status, MessageOfError(body)),
                    "the server wants an API key");
  }
  if (outcome.status != 200) {
    throw UserError(fmt::format("{}: status {}, expected 200: {}", where, outcome.status, MessageOfError(body)),
                    "a server with OpenAI's API is expected there");
  }
  const base::Json json = base::ParseJson(body, where);
  const base::JsonView models = base::JsonView(json, where).At("data");
  if (models.Size() == 0) models.Fail("one model at least");
  return models.At(size_t{0}).At("id").String();
}

}  // namespace hydrant::traffic
