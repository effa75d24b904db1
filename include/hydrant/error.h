// SPDX-License-Identifier: Apache-2.0
// Two kinds of failure, two types. A UserError is bad input (a file, a flag, a request) and ends with exit code 2;
// an InternalError is a broken invariant of ours and ends with exit code 1. Input can never cause an InternalError.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace hydrant {

class Error : public std::runtime_error {
 public:
  // `message` starts with the file where a file is at fault ("hydra_lm_head.pt: tensor 'x' is [2], expected [3]").
  // `hint` says what to do; it may be empty.
  explicit Error(const std::string& message, std::string hint = {})
      : std::runtime_error(message), hint_(std::move(hint)) {}

  const std::string& hint() const { return hint_; }

 private:
  std::string hint_;
};

// The user's mistake: exit code 2, later HTTP 4xx.
class UserError : public Error {
 public:
  using Error::Error;
};

// A file that cannot be used: missing, truncated, malformed, of an unknown kind. Names the file first.
class FileError : public UserError {
 public:
  FileError(const std::string& file, const std::string& problem, std::string hint = {})
      : UserError(file + ": " + problem, std::move(hint)), file_(file) {}

  const std::string& file() const { return file_; }

 private:
  std::string file_;
};

// Our mistake (a failed HYDRANT_CHECK): exit code 1, later HTTP 5xx.
class InternalError : public Error {
 public:
  using Error::Error;
};

// Nobody's mistake: who may say so (EngineOptions::stop) has said that the work shall end.
class Stopped : public Error {
 public:
  Stopped() : Error("stopped") {}
};

}  // namespace hydrant
