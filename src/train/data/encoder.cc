// SPDX-License-Identifier: Apache-2.0
#include "train/data/encoder.h"

#include <utility>

#include "base/json.h"
#include "base/text_parts.h"
#include "hydrant/error.h"
#include "train/data/reply_spans.h"

namespace hydrant::train {
namespace {

EncodedPart PartWithout(LeftOut reason) { return {.tokens = {}, .learned = {}, .left_out = reason}; }

[[noreturn]] void FailWithoutTemplate(const std::string& where) {
  std::string names;
  for (const std::string_view name : tokenizer::TemplateNames())
    names += (names.empty() ? "" : ", ") + std::string(name);
  throw FileError(where, "is a conversation, and the model has no chat template",
                  "name the one that the model was trained with by RenderChat::template_name (" + names + ")");
}

}  // namespace

Encoder::Encoder(const tokenizer::Tokenizer& tokenizer, const ReadOptions& options)
    : tokenizer_(tokenizer), options_(options) {
  const std::vector<int32_t> letter = tokenizer.Encode("a", {.parse_special = false, .add_bos = false});
  puts_space_ = !letter.empty() && tokenizer.TokenBytes(letter.front(), false).starts_with(' ');
  if (!options.template_name.empty()) {
    static_cast<void>(tokenizer::EndOfReply(options.template_name, options.template_tokens));  // refuses unknown names
  }
}

EncodedPart Encoder::Encode(const FilePart& part, const std::string& name) const {
  const std::string where = base::AtLine(name, part.line);
  try {
    if (part.is_json) return EncodeJson(part, where);
    std::vector<int32_t> tokens;
    AddPiece(part.text, part.begins, &tokens);
    return Finish(std::move(tokens), part.ends);
  } catch (const FileError&) {
    throw;
  } catch (const UserError& error) {  // the tokenizer's split pattern gave up
    throw FileError(where, error.what(), error.hint());
  }
}

EncodedPart Encoder::EncodeJson(const FilePart& part, const std::string& where) const {
  const Example example = [&] {
    const base::Json json = base::ParseJson(part.text, where);
    return ReadExample(base::JsonView(json, where));
  }();
  if (example.left_out) return PartWithout(*example.left_out);
  if (!example.messages.empty()) return EncodeMessages(example, where);
  std::vector<int32_t> tokens;
  std::string_view text = example.text;
  for (bool begins = true; !text.empty(); begins = false) {
    const std::string_view piece = FirstPiece(text, kPieceBytes);
    AddPiece(piece, begins, &tokens);
    text.remove_prefix(piece.size());
  }
  return Finish(std::move(tokens), !example.is_cut);
}

EncodedPart Encoder::EncodeMessages(const Example& example, const std::string& where) const {
  if (options_.template_name.empty()) FailWithoutTemplate(where);
  const ChatFormat format = {.template_name = options_.template_name, .tokens = options_.template_tokens};
  std::optional<RenderedChat> chat;
  try {
    chat = RenderChat(format, example.messages);
  } catch (const UserError&) {  // Mistral's takes no system message
    return PartWithout(LeftOut::kRefused);
  }
  if (!chat || chat->text.size() > tokenizer::kMostTextBytes) return PartWithout(LeftOut::kLong);
  if (example.is_cut) CutLastReply(format, &*chat);
  EncodedPart encoded;
  encoded.tokens = tokenizer_.Encode(chat->text, {.parse_special = true, .add_bos = false});
  std::optional<std::vector<uint8_t>> learned = LearnedTokens(tokenizer_, *chat, encoded.tokens);
  if (!learned) return PartWithout(LeftOut::kLong);
  encoded.learned = *std::move(learned);
  return encoded;
}

// The tokens of a text's pieces are those of the whole text: the space that the tokenizer puts before each text stands
// for the piece's own, or is taken off again.
void Encoder::AddPiece(std::string_view piece, bool begins, std::vector<int32_t>* tokens) const {
  const bool add_bos = begins && options_.add_bos && tokenizer_.adds_bos();
  const bool puts_space = puts_space_ && !begins;
  const bool has_space = puts_space && piece.starts_with(' ');
  if (has_space) piece.remove_prefix(1);
  const std::vector<int32_t> added = tokenizer_.Encode(piece, {.parse_special = false, .add_bos = add_bos});
  const bool is_extra =
      puts_space && !has_space && !added.empty() && tokenizer_.TokenBytes(added.front(), false) == " ";
  tokens->insert(tokens->end(), added.begin() + (is_extra ? 1 : 0), added.end());
}

EncodedPart Encoder::Finish(std::vector<int32_t> tokens, bool ends) const {
  if (ends && tokenizer_.eos_id() >= 0) tokens.push_back(tokenizer_.eos_id());
  EncodedPart encoded{.tokens = std::move(tokens), .learned = {}, .left_out = {}};
  encoded.learned.assign(encoded.tokens.size(), 1);
  return encoded;
}

}  // namespace hydrant::train
