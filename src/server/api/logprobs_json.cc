// SPDX-License-Identifier: Apache-2.0
#include "server/api/logprobs_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "tokenizer/utf8.h"

namespace hydrant::server {
namespace {

using base::Json;

// JSON has no infinities. -9999 is what OpenAI's API says of tokens that cannot come.
double Finite(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

// A part of a character is no text: its bytes are written out, as OpenAI's API does it.
std::string NameOfToken(const std::string& bytes) {
  if (tokenizer::IsValidUtf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char byte : bytes) name += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return name;
}

Json Entry(int32_t token, float logprob, const BytesOf& bytes_of) {
  const std::string bytes = bytes_of(token);
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return {{"token", NameOfToken(bytes)}, {"logprob", Finite(logprob)}, {"bytes", std::move(list)}};
}

// Bytes that begin a character.
int64_t NumCharacters(std::string_view bytes) {
  return std::ranges::count_if(bytes, [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0U) != 0x80U; });
}

constexpr std::string_view kNoCharacter = "\xEF\xBF\xBD";

// How many bytes of `text` the token adds. `held`: parts of a character that came before and with it.
size_t NumShown(std::string_view text, std::string& held) {
  const size_t size = held.size();
  const bool has_space = held.starts_with(' ');
  const bool is_whole = tokenizer::IsValidUtf8(held);
  size_t shown = 0;
  if (text.starts_with(held)) {
    shown = size;
  } else if (has_space && text.starts_with(std::string_view(held).substr(1))) {
    shown = size - 1;
  } else if (!is_whole && text.starts_with(kNoCharacter)) {
    shown = kNoCharacter.size();
  } else if (!is_whole && size < 4) {
    return 0;  // the rest of the character comes with later tokens
  }
  held.clear();
  return shown;
}

}  // namespace

Json ChatLogprobs(std::span<const int32_t> tokens, std::span<const TokenLogprobs> logprobs, const BytesOf& bytes_of) {
  Json content = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    Json entry = Entry(tokens[i], logprobs[i].chosen, bytes_of);
    entry["top_logprobs"] = Json::array();
    for (const Logprob& top : logprobs[i].top) {
      entry["top_logprobs"].push_back(Entry(top.token_id, top.value, bytes_of));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json CompletionLogprobs(std::span<const int32_t> tokens, std::span<const TokenLogprobs> logprobs,
                        const BytesOf& bytes_of, std::string_view text, int64_t& offset) {
  Json names = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
  const size_t without = tokens.size() - logprobs.size();
  std::string held;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string bytes = bytes_of(tokens[i]);
    held += bytes;
    names.push_back(NameOfToken(bytes));
    offsets.push_back(offset);
    const size_t shown = NumShown(text, held);
    offset += NumCharacters(text.substr(0, shown));
    text.remove_prefix(shown);
    if (i < without) {
      values.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    const TokenLogprobs& one = logprobs[i - without];
    Json top = Json::object();
    for (const Logprob& likely : one.top) top[NameOfToken(bytes_of(likely.token_id))] = Finite(likely.value);
    top[NameOfToken(bytes)] = Finite(one.chosen);  // beside the most likely ones, where it is none of them
    values.push_back(Finite(one.chosen));
    tops.push_back(std::move(top));
  }
  offset += NumCharacters(text);
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace hydrant::server
