// SPDX-License-Identifier: Apache-2.0
// A conversation with the model: what was said, how it goes on, and what lines that begin with '/' do to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags/run_flags.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

class Chat {
 public:
  Chat(Engine& engine, const RunOptions& options, std::string resolved_template);

  // The user's turn, and the reply to it, which is printed as it is made. A turn that fails is reported and taken back.
  void Say(const std::string& text);

  // A command such as "/help". False when the user leaves.
  bool Obey(const std::string& line);

 private:
  // What a turn is made of when it works out.
  struct Turn {
    std::vector<int32_t> prompt_ids;
    size_t dropped = 0;
  };

  bool has_template() const { return template_ != "none"; }
  size_t num_turns() const { return messages_.size() / 2; }
  std::vector<ChatMessage> Conversation(size_t dropped, const ChatMessage& question) const;
  Turn Fit(const ChatMessage& question) const;
  bool Reply(const std::string& text);
  void WarnOfLowAcceptance();
  void Retry();
  void Forget();
  void SetSystem(const std::string& text);
  void Set(const std::string& words);
  void SetNamed(const std::string& name, const std::string& value);
  void ListSettings() const;
  void Save(const std::string& path) const;
  void Load(const std::string& path);

  Engine& engine_;
  const RunOptions& options_;
  std::string template_;
  GenerationRequest request_;
  bool temperature_given_;
  std::optional<std::string> system_;
  std::vector<ChatMessage> messages_;  // the user's and the assistant's in turn, without the system's
  size_t dropped_ = 0;                 // oldest turns that the model no longer sees
  std::optional<std::string> last_question_;
  std::vector<int32_t> last_prompt_;
  std::optional<GenerationResult> last_;
  bool warned_of_acceptance_ = false;
};

}  // namespace hydrant::cli
