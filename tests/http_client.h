// SPDX-License-Identifier: Apache-2.0
// A client of HTTP/1.1 over a plain socket, for tests: it may also send what no well-behaved client sends.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace hydrant::test {

struct HttpReply {
  int status = 0;  // 0: the connection ended first
  std::string head, body;

  // Lower case, as "content-type"; empty where there is none.
  std::string Header(const std::string& name) const {
    std::string lower = head;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const size_t at = lower.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
  base::Json json() const { return base::ParseJson(body, "the reply"); }
};

class HttpClient {
 public:
  explicit HttpClient(uint16_t port, int timeout_ms = 60'000) : timeout_ms_(timeout_ms) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool is_connected() const { return is_connected_; }
  int fd() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // Ends the connection at once, with unread bytes and all.
  void Reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    Close();
  }
  void EndSending() { shutdown(fd_, SHUT_WR); }

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

  HttpReply Get(const std::string& path, const std::string& headers = "") {
    Send("GET " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n");
    return ReadReply();
  }
  static std::string PostText(const std::string& path, const std::string& body, const std::string& headers = "") {
    return "POST " + path + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  HttpReply PostRaw(const std::string& path, const std::string& body, const std::string& headers = "") {
    Send(PostText(path, body, headers));
    return ReadReply();
  }
  HttpReply Post(const std::string& path, const base::Json& body) { return PostRaw(path, base::DumpJson(body)); }

  // The next reply, whole. Status 0 where the connection ends or nothing comes for the time limit.
  HttpReply ReadReply(bool has_body = true) {
    HttpReply reply;
    const std::optional<std::string> head = Until("\r\n\r\n");
    if (!head) return reply;
    reply.head = "\r\n" + head->substr(std::min(head->size(), head->find("\r\n") + 2));
    reply.status = std::atoi(head->substr(9, 3).c_str());
    if (reply.status == 100) return ReadReply(has_body);
    if (!has_body) return reply;
    if (reply.Header("transfer-encoding") == "chunked") {
      if (!ReadChunks(reply.body)) reply.status = 0;
    } else if (const std::string length = reply.Header("content-length"); !length.empty()) {
      while (buffer_.size() < std::stoul(length)) {
        if (!More()) return HttpReply{};
      }
      reply.body = Take(std::stoul(length));
    } else {
      while (More()) {
      }
      reply.body = Take(buffer_.size());
    }
    return reply;
  }

  // Everything up to `end`, with it.
  std::optional<std::string> Until(const std::string& end) {
    size_t at;
    while ((at = buffer_.find(end)) == std::string::npos) {
      if (!More()) return {};
    }
    return Take(at + end.size());
  }
  // Does the server end the connection, within the time limit?
  bool IsEnded() {
    while (More()) {
    }
    return ended_;
  }

 private:
  bool ReadChunks(std::string& body) {
    while (true) {
      const std::optional<std::string> line = Until("\r\n");
      if (!line) return false;
      const size_t size = std::stoul(*line, nullptr, 16);
      while (buffer_.size() < size + 2) {
        if (!More()) return false;
      }
      body += Take(size);
      Take(2);
      if (size == 0) return true;
    }
  }
  std::string Take(size_t count) {
    std::string taken = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return taken;
  }
  bool More() {
    pollfd poll_for{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&poll_for, 1, timeout_ms_) <= 0) return false;
    char bytes[4096];
    const ssize_t count = recv(fd_, bytes, sizeof bytes, 0);
    ended_ = count <= 0;
    if (count > 0) buffer_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }

  int fd_ = -1, timeout_ms_;
  bool is_connected_ = false, ended_ = false;
  std::string buffer_;
};

// The JSON of a stream's events; the last one must be [DONE].
inline std::vector<base::Json> EventsOf(const std::string& body) {
  std::vector<base::Json> events;
  bool is_done = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) break;
    const std::string line = body.substr(at, end - at);
    at = end + 2;
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    is_done = line == "data: [DONE]";
    if (!is_done) events.push_back(base::ParseJson(line.substr(6), "an event"));
  }
  EXPECT_TRUE(is_done) << body;
  return events;
}

}  // namespace hydrant::test
