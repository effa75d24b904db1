// SPDX-License-Identifier: Apache-2.0
// Text to ids and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::tokenizer {

// What callers make tokens at once, at most: SentencePiece takes up to 230 bytes of memory for each.
inline constexpr size_t kMostTextBytes = size_t{16} << 20;

struct EncodeOptions {
  bool parse_special = true;  // special-token text in the input becomes that token; false = ordinary text
  // Put BOS first, also where the text spells one (as the reference libraries do). Leave it off for rendered chat
  // templates, which spell their own. Throws UserError when the tokenizer has no BOS.
  bool add_bos = false;
};

// Const members may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Any bytes are accepted; malformed UTF-8 follows the library of the format (U+FFFD) and never fails. Throws
  // UserError only where the split pattern of tokenizer.json gives up on the text.
  virtual std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const = 0;
  // Whole sequence; invalid UTF-8 becomes U+FFFD, one per maximal bad part; but with the ByteFallback of a
  // tokenizer.json one per byte of the whole run of byte tokens, as in the reference library (StreamDecoder has one
  // rule for all). Ids out of range throw UserError.
  virtual std::string Decode(std::span<const int32_t> ids, bool skip_special) const = 0;
  // The raw bytes that `id` adds after earlier tokens (`is_first`: nothing came before). May be part of a UTF-8
  // character. Empty for an id without a token: models pad their vocabularies.
  virtual std::string TokenBytes(int32_t id, bool is_first) const = 0;

  virtual int32_t vocab_size() const = 0;  // one more than the largest id
  virtual bool IsSpecial(int32_t id) const = 0;
  virtual int32_t bos_id() const = 0;  // -1 = none
  virtual bool adds_bos() const = 0;   // what the tokenizer files say about plain text
  // Text of a special token by id, for chat templates; empty for none.
  virtual std::string TokenText(int32_t id) const = 0;
  // The token with exactly this text (an added token, else one of the vocabulary); -1 = none.
  virtual int32_t IdOfToken(std::string_view text) const = 0;

  // The eos_token, where the vocabulary has it (-1 = none), and the file that names it (empty: the class's default).
  int32_t eos_id() const { return eos_id_; }
  const std::string& eos_file() const { return eos_file_; }

  // What the files ask for that changes ids and is not followed, and where they contradict each other.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // What they ask for that changes the decoded text only and is not followed.
  const std::vector<std::string>& notes() const { return notes_; }

 protected:
  int32_t eos_id_ = -1;
  std::string eos_file_;
  std::vector<std::string> warnings_, notes_;
};

// Streaming decode: prints only complete UTF-8 characters and holds back the rest (tests: stream.json's rule).
class StreamDecoder {
 public:
  // `continues` = a prompt was shown before, so the first piece keeps its leading space.
  StreamDecoder(const Tokenizer* tokenizer, bool continues, bool skip_special = true);
  std::string Push(int32_t id);  // text to print now
  std::string Flush();           // at the end: an incomplete tail becomes one U+FFFD

 private:
  const Tokenizer* tokenizer_;
  bool is_first_;
  bool skip_special_;
  std::string held_;
};

// A folder (tokenizer.json wins over tokenizer.model), or one of those files; what stands beside it counts as
// tokenizer_config.h says. A tokenizer.model that is named itself, and not its folder, is SentencePiece alone: its BOS
// rule and added tokens come from the config, "legacy" does not.
//
// Whether plain text gets a BOS (adds_bos):
// - tokenizer.json: when its TemplateProcessing begins with a special token; but for LlamaTokenizer and
//   LlamaTokenizerFast by add_bos_token (true when absent), because those classes rebuild the post-processor.
// - tokenizer.model: add_bos_token, true when absent.
// add_eos_token is not followed: it is for training text, a prompt never ends with EOS.
//
// Throws FileError; unknown pre-tokenizers, normalizers and decoders are refused by name.
std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& path);

// True when the folder has tokenizer files.
bool HasTokenizer(const std::string& folder);

}  // namespace hydrant::tokenizer
