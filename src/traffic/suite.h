// SPDX-License-Identifier: Apache-2.0
// Files of prompts to send, in the forms that other benchmarks have them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::traffic {

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;

  bool operator==(const Message&) const = default;
};

struct Prompt {
  std::vector<Message> before;     // what stands before the first turn; often nothing
  std::vector<std::string> turns;  // of the user, one at least; each is sent with the replies to those before

  bool operator==(const Prompt&) const = default;
};

struct Suite {
  std::string form;  // which of the forms, for messages: "lines of JSON with \"turns\""
  std::vector<Prompt> prompts;
};

inline constexpr size_t kMaxSuiteBytes = size_t{1} << 30;  // of a file
inline constexpr size_t kMaxPromptBytes = size_t{4} << 20;
inline constexpr size_t kMaxPrompts = 1'000'000;

// What is asked of a conversation that stands in the file.
enum class Asked {
  kOnce,  // as benchmarks do
  // Every text of the user, in turn. What stands before the first comes before it, replies are left out: new ones take
  // their place.
  kEveryTurn,
};

// The form is found by what is there: an array of JSON, one object of JSON a line, else one prompt a line. Objects:
//   "turns": [TEXT, ..]                 MT-bench, Spec-Bench
//   "conversations": [{from, value}]    ShareGPT: asked once, the first text of the human is the prompt
//   "messages": [{role, content}]       asked once, everything up to the user's last message
//   "instruction", "input"              TensorRT-LLM, Alpaca: one of them, or both with an empty line between
//   "prompt" or "text": TEXT
// `name` is the file's, for errors. Throws FileError with the line, what was expected and what is there.
Suite ParseSuite(std::string_view content, const std::string& name, Asked asked = Asked::kOnce);
Suite ReadSuite(const std::string& file, Asked asked = Asked::kOnce);

}  // namespace hydrant::traffic
