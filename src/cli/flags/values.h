// SPDX-License-Identifier: Apache-2.0
// Values of flags: numbers with a range, names out of a list, lists of token ids. Every refusal names the flag, what
// was found, and what is accepted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::cli {

// Most bytes taken from stdin, a prompt file or a list of ids.
inline constexpr size_t kMaxInputBytes = size_t{64} << 20;
// Bytes of text for each token, at most. No text comes near it, and a tokenizer may take some hundred bytes of memory
// for each (SentencePiece: 225).
inline constexpr size_t kMostTokenBytes = 128;

// A decimal integer from min to max.
int64_t ParseInteger(std::string_view flag, const std::string& text, int64_t min, int64_t max);
uint64_t ParseSeed(std::string_view flag, const std::string& text);

// Bytes: a number with K, M, G or T behind it, powers of 1024, and perhaps B or iB ("512M", "8GiB"); 1 to 2^60.
uint64_t ParseBytes(std::string_view flag, const std::string& text);

struct FloatRange {
  double min = 0;
  double max = 0;
  bool open_below = false;  // min itself is refused
};
// A finite decimal number in the range; "nan" and "inf" are refused.
float ParseFloat(std::string_view flag, const std::string& text, const FloatRange& range);

// One of `choices`; otherwise refused with the nearest.
std::string ParseChoice(std::string_view flag, const std::string& text, std::span<const std::string_view> choices);

// What a list holds, in any of the spellings 1,4 and [1, 4], for names also ["a", "b"].
std::vector<std::string> ListItems(const std::string& text);

// Token ids, as 1,4 or [1, 4]: the literal itself, or with `or_file` also the path of a file that holds one.
std::vector<int32_t> ParseIdList(std::string_view flag, const std::string& text, bool or_file);

// Refuses a path that is not there or is a file where a folder is wanted.
void CheckIsFolder(std::string_view flag, const std::string& path);

// The double with the shortest decimal that reads back as `value`: 0.8F prints as 0.8.
double ShortestDouble(float value);

}  // namespace hydrant::cli
