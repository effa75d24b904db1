// SPDX-License-Identifier: Apache-2.0
#include "train/data/reply_spans.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text_parts.h"

namespace hydrant::train {
namespace {

using tokenizer::Message;
using tokenizer::Tokenizer;

size_t SizeOf(std::span<const Message> messages) {
  size_t bytes = 0;
  for (const Message& message : messages) bytes += message.content.size() + message.role.size();
  return bytes;
}

// One conversation under its template.
class Renderer {
 public:
  Renderer(const ChatFormat& format, std::span<const Message> messages)
      : format_(format),
        messages_(messages),
        end_of_reply_(tokenizer::EndOfReply(format.template_name, format.tokens)) {}

  RenderedChat Render() const {
    RenderedChat chat{.text = Prefix(messages_.size(), false), .replies = {}};
    for (size_t i = 1; i < messages_.size(); ++i) {
      if (messages_[i].role == "assistant") chat.replies.push_back(Reply(i, chat.text));
    }
    return chat;
  }

 private:
  std::string Prefix(size_t count, bool with_prompt) const {
    return tokenizer::RenderTemplate(format_.template_name, messages_.first(count), format_.tokens, with_prompt);
  }

  // Bytes before the reply's content: a reply of one sign that no template has or strips is looked for.
  size_t ContentBegin(size_t message_idx, size_t before) const {
    const std::string sign = "\x01";
    std::vector<Message> marked(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(message_idx));
    marked.push_back({.role = "assistant", .content = sign});
    const std::string text = tokenizer::RenderTemplate(format_.template_name, marked, format_.tokens, false);
    size_t begin = text.find(sign, before);
    HYDRANT_CHECK(begin != std::string::npos);
    while (begin > before && text[begin - 1] == ' ') --begin;
    return begin;
  }

  ByteSpan Reply(size_t message_idx, std::string_view whole) const {
    const size_t before = Prefix(message_idx, false).size();
    const std::string with_reply = Prefix(message_idx + 1, false);
    HYDRANT_CHECK(whole.starts_with(with_reply));  // templates write messages one after another
    const std::string prompt = Prefix(message_idx, true);
    ByteSpan span;
    span.begin = with_reply.starts_with(prompt) ? prompt.size() : ContentBegin(message_idx, before);
    span.end = with_reply.size();
    const size_t end = end_of_reply_.empty() ? std::string::npos : with_reply.rfind(end_of_reply_);
    if (end != std::string::npos && end >= span.begin) span.end = end + end_of_reply_.size();
    return span;
  }

  const ChatFormat& format_;
  std::span<const Message> messages_;
  std::string end_of_reply_;
};

class Walk {
 public:
  Walk(const Tokenizer& tokenizer, std::string_view text) : tokenizer_(tokenizer), text_(text) {}

  // False: the token is not what the text goes on with.
  bool Step(int32_t token, ByteSpan* span) {
    const std::string bytes = tokenizer_.TokenBytes(token, false);
    std::string_view rest = bytes;
    if (!Matches(at_, rest)) {
      size_t begin = at_;
      if (may_have_space_ && rest.starts_with(' ') && Matches(at_, rest.substr(1))) {
        rest.remove_prefix(1);
        may_have_space_ = false;
      } else {
        while (begin < text_.size() && IsBlank(text_[begin]) && !Matches(begin, rest)) ++begin;
        if (!Matches(begin, rest)) return false;
      }
      at_ = begin;
    }
    *span = {.begin = at_, .end = at_ + rest.size()};
    at_ = span->end;
    if (tokenizer_.IsSpecial(token)) {
      may_have_space_ = true;
    } else if (rest.find_first_not_of(' ') != std::string_view::npos) {
      may_have_space_ = false;  // only among the spaces at the front one may be too many
    }
    return true;
  }

  bool AtEnd() const { return base::Trimmed(text_.substr(at_)).empty(); }

 private:
  static bool IsBlank(char letter) { return base::kBlank.find(letter) != std::string_view::npos; }
  bool Matches(size_t at, std::string_view bytes) const { return text_.substr(at).starts_with(bytes); }

  const Tokenizer& tokenizer_;
  std::string_view text_;
  size_t at_ = 0;
  bool may_have_space_ = true;
};

// How many of `tokens` belong to the first bytes of the text, of which a token over the cut is or is no part.
size_t CountTokens(const Tokenizer& tokenizer, std::string_view first_bytes, std::span<const int32_t> tokens) {
  const std::vector<int32_t> first = tokenizer.Encode(first_bytes, {.parse_special = true, .add_bos = false});
  const auto differs = std::mismatch(first.begin(), first.end(), tokens.begin(), tokens.end());
  const auto same = static_cast<size_t>(differs.first - first.begin());
  return std::min(same == first.size() ? same : same + 1, tokens.size());
}

std::optional<std::vector<uint8_t>> LearnedByCounting(const Tokenizer& tokenizer, const RenderedChat& chat,
                                                      std::span<const int32_t> tokens) {
  size_t bytes = 0;
  for (const ByteSpan& reply : chat.replies) bytes += reply.begin + reply.end;
  if (bytes > tokenizer::kMostTextBytes) return std::nullopt;
  std::vector<uint8_t> learned(tokens.size(), 0);
  const std::string_view text = chat.text;
  for (const ByteSpan& reply : chat.replies) {
    const size_t begin = CountTokens(tokenizer, text.substr(0, reply.begin), tokens);
    const size_t end = CountTokens(tokenizer, text.substr(0, reply.end), tokens);
    for (size_t i = begin; i < end; ++i) learned[i] = 1;
  }
  return learned;
}

}  // namespace

std::optional<RenderedChat> RenderChat(const ChatFormat& format, std::span<const Message> messages) {
  if (messages.size() * SizeOf(messages) > kMostRenderedBytes) return std::nullopt;
  return Renderer(format, messages).Render();
}

void CutLastReply(const ChatFormat& format, RenderedChat* chat) {
  if (chat->replies.empty()) return;
  ByteSpan& reply = chat->replies.back();
  std::string_view text = std::string_view(chat->text).substr(0, reply.end);
  const std::string end = tokenizer::EndOfReply(format.template_name, format.tokens);
  if (text.ends_with(end)) text.remove_suffix(end.size());
  // Llama-2's template puts a space before the end. A reply that is cut behind a space of its own loses that, too.
  while (text.size() > reply.begin && base::kBlank.find(text.back()) != std::string_view::npos) text.remove_suffix(1);
  reply.end = text.size();
  chat->text.resize(reply.end);
}

std::optional<std::vector<ByteSpan>> SpansOfTokens(const Tokenizer& tokenizer, std::string_view text,
                                                   std::span<const int32_t> tokens) {
  Walk walk(tokenizer, text);
  std::vector<ByteSpan> spans(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!walk.Step(tokens[i], &spans[i])) return std::nullopt;
  }
  if (!walk.AtEnd()) return std::nullopt;
  return spans;
}

std::optional<std::vector<uint8_t>> LearnedTokens(const Tokenizer& tokenizer, const RenderedChat& chat,
                                                  std::span<const int32_t> tokens) {
  const std::optional<std::vector<ByteSpan>> spans = SpansOfTokens(tokenizer, chat.text, tokens);
  if (!spans) return LearnedByCounting(tokenizer, chat, tokens);
  std::vector<uint8_t> learned(tokens.size(), 0);
  size_t reply_idx = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t begin = (*spans)[i].begin;
    while (reply_idx < chat.replies.size() && chat.replies[reply_idx].end <= begin) ++reply_idx;
    learned[i] = reply_idx < chat.replies.size() && chat.replies[reply_idx].begin <= begin ? 1 : 0;
  }
  return learned;
}

}  // namespace hydrant::train
