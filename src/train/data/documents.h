// SPDX-License-Identifier: Apache-2.0
// Files of training data: the forms that others publish them in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "tokenizer/chat/chat_template.h"

namespace hydrant::train {

// Separates the documents of a plain text (TinyStories, GPT-2's data).
inline constexpr std::string_view kDocumentMark = "<|endoftext|>";

inline constexpr size_t kMostFileBytes = size_t{4} << 30;
inline constexpr size_t kMostJsonBytes = size_t{16}
                                         << 20;  // of one line or element; parsed it takes some 15 times this
// Longer texts are made tokens in pieces. SentencePiece takes longer for each byte of a long text (16 MB of books with
// the embedded model's tokenizer: 21.5 s in pieces of 4 MB, 9.0 s of 256 KB, 5.7 s of 16 KB or 4 KB), memory is
// bounded, and several threads work on one book.
inline constexpr size_t kPieceBytes = size_t{16} << 10;

// Some bytes of a file that are made tokens together.
struct FilePart {
  std::string_view text;
  size_t line = 1;       // for errors
  bool is_json = false;  // an object or a text of JSON, which is a document; else a piece of a plain text
  bool begins = true;    // a document begins here
  bool ends = true;      // and ends here
};

// Splits a file by what is there: an array of JSON, objects of JSON on lines, else plain text with or without
// kDocumentMark. "[Illustration]" begins no array, and texts of JSON on lines are told from a story's quotes by the
// file's name. on_part returns false: that is enough. Throws FileError, also for gzip and UTF-16.
void SplitFile(std::string_view content, const std::string& name, const std::function<bool(const FilePart&)>& on_part);

// Ends in .json or .jsonl, in letters of any case.
bool IsNamedForJson(std::string_view name);

// The first bytes of a longer text, at most `most`. What is left begins with a line break behind a letter or a space
// between two, across which hardly a tokenizer has a token; else with any blank; else with a whole character.
std::string_view FirstPiece(std::string_view text, size_t most);

// Why a document is left out. Data sets of conversations have thousands of such.
enum class LeftOut : uint8_t { kEmpty, kNoReply, kRoles, kNoText, kRefused, kLong };
inline constexpr size_t kNumLeftOut = 6;
// "without a reply"
std::string_view Words(LeftOut reason);

// What a value of JSON says: a text, or a conversation (then `messages` is not empty), or why it is neither.
struct Example {
  std::string text;
  std::vector<tokenizer::Message> messages;  // perhaps system, then user and assistant in turns, the assistant last
  std::optional<LeftOut> left_out = {};
  bool is_cut = false;  // the text or the last reply does not end there: its writer was stopped
};

//   "conversations": [{from, value}]    ShareGPT; a first reply without a question is dropped
//   "messages": [{role, content}]
//   "instruction", "input", "output"    Alpaca: instruction and input with an empty line between are the question
//   "prompt", "completion" or "response"
//   "question", "answer"
//   "text": TEXT, or the text itself; a pair without its answer beside it is none
// "finish_reason": "length" or "context" beside any of them says that it is cut.
// Throws FileError for other values.
Example ReadExample(const base::JsonView& value);

}  // namespace hydrant::train
