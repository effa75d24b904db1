// SPDX-License-Identifier: Apache-2.0
#include "server/api/api_error.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "hydrant/error.h"

namespace hydrant::server {
namespace {

std::string_view TypeOf(int status) {
  if (status == 401) return "authentication_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

// What the library calls by its own names, clients know as fields.
struct FieldName {
  std::string_view option, field;
};
constexpr std::array<FieldName, 13> kFields = {{{"EngineOptions::tree", "speculation.tree"},
                                                {"tree '", "speculation.tree"},
                                                {"GenerationRequest::draft_ids", "draft_token_ids"},
                                                {"GenerationRequest::prediction_ids", "prediction"},
                                                {"GenerationRequest::prompt_ids", "prompt"},
                                                {"GenerationRequest::max_nodes", "speculation.max_nodes"},
                                                {"GenerationRequest::draft_p_min", "speculation.draft_p_min"},
                                                {"GenerationRequest::draft_depth", "speculation.draft_depth"},
                                                {"AcceptOptions::rule", "speculation.accept"},
                                                {"lookup is on", "speculation.lookup"},
                                                {"StopOptions::max_tokens", "max_tokens"},
                                                {"a stop string", "stop"},
                                                {"prompt token", "prompt"}}};

ApiError OfTheLibrary(std::string message) {
  // Who runs the server sets these, by its flags.
  for (const auto& [option, flag] : {std::pair{"EngineOptions::kv_memory", "the server's --kv-memory"},
                                     std::pair{"EngineOptions::draft", "the server's --draft"}}) {
    const std::string_view name = option;
    if (const size_t at = message.find(name); at != std::string::npos) message.replace(at, name.size(), flag);
  }
  size_t first = std::string::npos;  // of the names in the message: the first is the one at fault
  std::string param;
  for (const auto& [option, field] : kFields) {
    const size_t at = message.find(option);
    if (at >= first) continue;
    first = at;
    param = field;
  }
  for (const auto& [option, field] : kFields) {
    if (option.find(':') == std::string_view::npos) continue;
    for (size_t at = 0; (at = message.find(option, at)) != std::string::npos; at += field.size()) {
      message.replace(at, option.size(), field);
    }
  }
  return ApiError(400, std::move(message), param);
}

base::Json OrNull(const std::string& text) { return text.empty() ? base::Json() : base::Json(text); }

}  // namespace

ApiError ApiError::WrongMethod(std::string_view method, std::string_view path, std::string_view methods) {
  ApiError error(405, fmt::format("{} takes {}, and this is {}", path, methods, method));
  error.allow_ = methods;
  return error;
}

std::string ApiError::Body() const {
  return base::DumpJson(
      {{"error",
        {{"message", message_}, {"type", TypeOf(status_)}, {"param", OrNull(param_)}, {"code", OrNull(code_)}}}});
}

HttpResponse ApiError::Response() const {
  HttpResponse response{.status = status_, .body = Body()};
  if (status_ == 429 || status_ == 503) response.headers.emplace_back("Retry-After", "1");
  if (status_ == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (!allow_.empty()) response.headers.emplace_back("Allow", allow_);
  return response;
}

ApiError CurrentError() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const UserError& error) {
    const std::string hint = error.hint().empty() ? "" : " (" + error.hint() + ")";
    return OfTheLibrary(error.what() + hint);
  } catch (const std::exception& error) {
    return ApiError(500, std::string("internal error: ") + error.what());
  } catch (...) {
    return ApiError(500, "internal error");
  }
}

}  // namespace hydrant::server
