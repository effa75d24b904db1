// SPDX-License-Identifier: Apache-2.0
// Which tokens of a conversation a model says itself: those of the replies, and the ones that end them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::train {

// Bytes [begin, end) of a text.
struct ByteSpan {
  size_t begin = 0;
  size_t end = 0;

  bool operator==(const ByteSpan&) const = default;
};

struct RenderedChat {
  std::string text;
  std::vector<ByteSpan> replies;  // each from the end of the prompt for it to the end of the token that ends it
};

struct ChatFormat {
  std::string template_name;
  tokenizer::TemplateTokens tokens;
};

// `messages`: perhaps system, then user and assistant in turns. A prompt for a reply is what a server renders; where it
// is no beginning of the rendered reply (vicuna_newline_variant), the reply begins with its content and the spaces
// before. Throws UserError where the template does. Renders every reply's prompt, so 3 * replies * text bytes are
// written; nothing where these are more than kMostRenderedBytes.
std::optional<RenderedChat> RenderChat(const ChatFormat& format, std::span<const tokenizer::Message> messages);
inline constexpr size_t kMostRenderedBytes = size_t{1} << 28;

// Ends the text with the content of its last reply: the model that wrote it was stopped there, and did not end it.
void CutLastReply(const ChatFormat& format, RenderedChat* chat);

// The bytes of `text` that each of its tokens stands for, found by walking along the text. A tokenizer may put a space
// before a text and behind a special token (SentencePiece's dummy prefix), and may drop blanks. Nothing where tokens
// and text differ in more, as where a normalizer or the unknown token has changed letters.
std::optional<std::vector<ByteSpan>> SpansOfTokens(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                                                   std::span<const int32_t> tokens);

// 1 for each token that begins in a reply. Where SpansOfTokens finds nothing, tokens are counted by those of the text
// before each reply and to its end; nothing where that is more than kMostTextBytes of tokenizer.h to encode.
std::optional<std::vector<uint8_t>> LearnedTokens(const tokenizer::Tokenizer& tokenizer, const RenderedChat& chat,
                                                  std::span<const int32_t> tokens);

}  // namespace hydrant::train
