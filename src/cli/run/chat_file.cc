// SPDX-License-Identifier: Apache-2.0
#include "cli/run/chat_file.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/flags/values.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

constexpr const char* kForm = "a saved chat is a list of {\"role\": .., \"content\": ..}";

ChatMessage MessageOf(const base::JsonView& view) {
  if (!view.is_object()) view.Fail("a message", kForm);
  for (const auto& [key, value] : view.raw().items()) {
    if (key != "role" && key != "content") view.At(key).Fail("no key but 'role' and 'content'", kForm);
  }
  return {view.At("role").String(), view.At("content").String()};
}

}  // namespace

std::vector<ChatMessage> LoadChat(const std::string& path) {
  const base::Json json = base::ParseJson(base::ReadTextFile(path, kMaxInputBytes), path);
  const base::JsonView root(json, path);
  if (!root.is_array()) throw FileError(path, "is no saved chat: it holds no list", kForm);
  std::vector<ChatMessage> messages;
  bool users_turn = true;
  for (size_t i = 0; i < root.Size(); ++i) {
    messages.push_back(MessageOf(root.At(i)));
    const std::string& role = messages.back().role;
    if (i == 0 && role == "system") continue;
    const char* const expected = users_turn ? "user" : "assistant";
    if (role != expected) root.At(i).At("role").Fail(fmt::format("\"{}\"", expected), "user and assistant take turns");
    users_turn = !users_turn;
  }
  if (!users_turn) {
    throw FileError(path, "ends with a message of the user's, expected the reply to it",
                    "user and assistant take turns");
  }
  return messages;
}

bool SaveChat(const std::string& path, std::span<const ChatMessage> messages) {
  std::error_code error;
  const bool replaces = std::filesystem::exists(path, error);
  if (replaces) {
    try {
      LoadChat(path);
    } catch (const UserError& e) {
      throw FileError(path, "is there already and is no saved chat, so it stays as it is", "choose another name");
    }
  }
  base::Json json = base::Json::array();
  for (const ChatMessage& message : messages) json.push_back({{"role", message.role}, {"content", message.content}});
  const std::string text = json.dump(1, ' ', false, base::Json::error_handler_t::replace) + "\n";
  base::AtomicFile file(path);
  file.Write(text.data(), text.size());
  file.Keep();
  return replaces;
}

std::string ExpandHome(const std::string& path) {
  const char* const home = std::getenv("HOME");
  if (home == nullptr || !path.starts_with("~/")) return path;
  return home + path.substr(1);
}

}  // namespace hydrant::cli
