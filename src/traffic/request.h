// SPDX-License-Identifier: Apache-2.0
// What is asked of a server for one turn of a prompt, as OpenAI's API has it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "traffic/suite.h"

namespace hydrant::traffic {

struct RequestSettings {
  std::string model;
  bool is_chat = true;  // false: /v1/completions
  int32_t max_tokens = 128;
  double temperature = 0;
  uint64_t seed = 0;        // of the prompt with index 0; each further one has the next seed
  bool ignore_eos = false;  // sent where true: not of OpenAI's, but vLLM and llama.cpp know it
  bool is_plain = false;    // asks Hydrant for plain decoding; other servers do not know that field
};

// "/v1/chat/completions" or "/v1/completions".
std::string PathOf(const RequestSettings& settings);

// JSON. Completions have the contents of all messages as one text, with an empty line between.
std::string RequestBody(const RequestSettings& settings, std::span<const Message> messages, int64_t index);

}  // namespace hydrant::traffic
