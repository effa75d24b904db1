// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json/split_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "hydrant/error.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

// Published patterns have about 120 bytes.
constexpr size_t kMaxPatternBytes = 4096;
// A lazy or greedy repeat over the whole text takes a few steps a byte; exponential patterns take more than that.
constexpr uint32_t kStepsPerByte = 64;
constexpr uint32_t kMinSteps = 100'000;
constexpr uint32_t kMaxMatchSteps = 200'000'000;
constexpr uint32_t kMaxDepth = 1'000'000;
constexpr uint32_t kMaxHeapKib = 64 * 1024;

std::string MessageOf(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;
using CompileContext = std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)>;

MatchContext MakeMatchContext(size_t text_bytes) {
  MatchContext context(pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  HYDRANT_CHECK(context != nullptr);
  const size_t steps = text_bytes > kMaxMatchSteps / kStepsPerByte ? kMaxMatchSteps : text_bytes * kStepsPerByte;
  pcre2_set_match_limit(context.get(), std::max(kMinSteps, static_cast<uint32_t>(steps)));
  pcre2_set_depth_limit(context.get(), kMaxDepth);
  pcre2_set_heap_limit(context.get(), kMaxHeapKib);
  return context;
}

}  // namespace

struct SplitRegex::Compiled {
  pcre2_code* code = nullptr;

  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() { pcre2_code_free(code); }
};

SplitRegex::SplitRegex(const std::string& pattern, const std::string& file) : file_(file) {
  const CompileContext context(pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  HYDRANT_CHECK(context != nullptr);
  pcre2_set_max_pattern_length(context.get(), kMaxPatternBytes);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_shared<Compiled>();
  // \C could cut a character in two. UCP: \s and \p as the reference libraries have them, over all of Unicode.
  compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (compiled->code == nullptr) {
    throw FileError(file,
                    "the split pattern does not compile: " + MessageOf(error) + " at offset " + std::to_string(offset));
  }
  // Where the JIT is absent or declines the pattern, the interpreter is used.
  pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);
  compiled_ = std::move(compiled);
}

std::vector<TextRange> SplitRegex::Split(std::string_view text) const {
  const MatchContext context = MakeMatchContext(text.size());
  const MatchData data(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  HYDRANT_CHECK(data != nullptr);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
  std::vector<TextRange> ranges;
  size_t done = 0;    // ranges reach to here
  size_t search = 0;  // the next match starts here or later
  while (search < text.size()) {
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int result = pcre2_match(compiled_->code, subject, text.size(), search, options, data.get(), context.get());
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      options |= PCRE2_NO_JIT;
      result = pcre2_match(compiled_->code, subject, text.size(), search, options, data.get(), context.get());
    }
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      throw UserError(file_ + ": the split pattern gives up on a text of " + std::to_string(text.size()) +
                          " bytes: " + MessageOf(result),
                      "shorten the text, or use the pattern that the model's authors published");
    }
    const size_t begin = std::max(found[0], done);
    const size_t end = std::max(found[1], begin);
    if (begin > done) ranges.push_back({done, begin});
    if (end > begin) ranges.push_back({begin, end});
    done = end;
    search = end > search ? end : search + NextChar(text.substr(search)).size;
  }
  if (done < text.size()) ranges.push_back({done, text.size()});
  return ranges;
}

}  // namespace hydrant::tokenizer
