// SPDX-License-Identifier: Apache-2.0
// What is wrong with a request, as OpenAI's clients read it.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/http.h"

namespace hydrant::server {

class ApiError : public std::exception {
 public:
  // `param`: the field that is at fault. `code`: a word for programs, such as "context_length_exceeded".
  ApiError(int status, std::string message, std::string param = {}, std::string code = {})
      : status_(status), message_(std::move(message)), param_(std::move(param)), code_(std::move(code)) {}

  // 405, with the methods that the path has as "Allow".
  static ApiError WrongMethod(std::string_view method, std::string_view path, std::string_view methods);

  int status() const { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& code() const { return code_; }
  // {"error": {"message", "type", "param", "code"}}; 429 and 503 with Retry-After.
  HttpResponse Response() const;
  std::string Body() const;

 private:
  int status_;
  std::string message_, param_, code_, allow_;
};

// Of whatever is being handled in a catch block: an ApiError itself, 400 for a UserError, else 500.
ApiError CurrentError();

}  // namespace hydrant::server
