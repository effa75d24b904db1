// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/draft_vocab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "hydrant/error.h"
#include "quant/pack.h"
#include "tests/test_data.h"

namespace hydrant::draft::draft_vocab_test {
namespace {

std::vector<int32_t> Read(const std::string& text) {
  const test::TempDir dir;
  return ReadDraftVocab(dir.Write("draft_vocab.json", text), 100);
}

std::string ErrorOf(const std::string& text) {
  try {
    Read(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(DraftVocabTest, ReadsTokensAscending) { EXPECT_EQ(Read("[7, 3, 99]"), (std::vector<int32_t>{3, 7, 99})); }

TEST(DraftVocabTest, RefusesWhatIsNoListOfTokens) {
  EXPECT_NE(ErrorOf("[]").find("has no tokens"), std::string::npos);
  EXPECT_NE(ErrorOf("[1, 2, 1]").find("token 1 stands twice"), std::string::npos);
  EXPECT_NE(ErrorOf("[100]").find("100"), std::string::npos);
  EXPECT_NE(ErrorOf("[-1]").find("-1"), std::string::npos);
  EXPECT_NE(ErrorOf("{}"), "");
  EXPECT_NE(ErrorOf("[1.5]"), "");
}

TEST(DraftVocabTest, CountsTokens) {
  const std::vector<int32_t> text = {5, 5, 5, 2, 2, 9, 1};
  EXPECT_EQ(MostFrequentTokens(text, 2, 10), (std::vector<int32_t>{2, 5}));
  EXPECT_EQ(MostFrequentTokens(text, 3, 10), (std::vector<int32_t>{1, 2, 5}));      // 1 and 9 once each
  EXPECT_EQ(MostFrequentTokens(text, 50, 10), (std::vector<int32_t>{1, 2, 5, 9}));  // no token that it has not
  EXPECT_TRUE(MostFrequentTokens({}, 5, 10).empty());
  const std::vector<int32_t> beyond = {10, 10, 10, 2, 1'000'000'000, 5, 5};  // tokens that the model has no rows for
  EXPECT_EQ(MostFrequentTokens(beyond, 2, 10), (std::vector<int32_t>{2, 5}));
}

constexpr int64_t kOutputs = 40, kInputs = 200;
const std::vector<int32_t> kTokens = {0, 3, 15, 16, 17, 31, 32, 39, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};

std::vector<float> HeadValues() {
  std::vector<float> values;
  for (int64_t i = 0; i < kOutputs * kInputs; ++i) values.push_back(static_cast<float>((i * 7919) % 251) - 125.0F);
  return values;
}

// Reads `values` where they are.
model::Linear FloatHead(const std::vector<float>& values) {
  model::Linear head;
  head.weight.data = reinterpret_cast<const uint8_t*>(values.data());
  head.weight.shape = {kOutputs, kInputs};
  for (int64_t o = 0; o < kOutputs; ++o) head.bias.push_back(static_cast<float>(o));
  return head;
}

void ExpectOutputsOfTokens(const std::vector<float>& part, const std::vector<float>& whole) {
  ASSERT_EQ(part.size(), kTokens.size() * kInputs);
  for (size_t i = 0; i < part.size(); ++i) {
    const auto output = static_cast<size_t>(kTokens[i / kInputs]);
    ASSERT_EQ(part[i], whole[output * kInputs + i % kInputs]) << "output " << i / kInputs;
  }
}

TEST(DraftVocabTest, CutsFloatHeadsToTheirTokens) {
  const std::vector<float> values = HeadValues();
  LmHeadCutter cutter(kTokens);
  model::Linear floats = FloatHead(values), again = floats;
  cutter.Cut(floats);
  cutter.Cut(again);
  EXPECT_EQ(floats.weight.data, again.weight.data);
  EXPECT_EQ(floats.bias, std::vector<float>(kTokens.begin(), kTokens.end()));
  ExpectOutputsOfTokens(ToFloats(floats.weight), values);
}

// To 8 bits, with the same integers: two outputs' tables are one's only while they stand together.
TEST(DraftVocabTest, CutsPackedHeadsOfEitherLayout) {
  const std::vector<float> values = HeadValues();
  base::ThreadPool pool(1, false);
  for (const auto format : {quant::WeightFormat::kW8A8, quant::WeightFormat::kW4A8}) {
    for (const auto layout : {kernels::PackedLayout::kLines, kernels::PackedLayout::kInterleaved}) {
      SCOPED_TRACE(quant::NameOf(format) + std::string(" in ") + NameOf(layout));
      model::Linear head = FloatHead(values);
      head.packed = quant::Pack({.weight = head.weight, .name = "x", .file = "y"}, format, pool);
      if (layout != LayoutOf(head.packed->matrix.type)) head.packed = quant::InLayout(*head.packed, layout, pool);
      const std::vector<float> whole = quant::Unpack(head.packed->matrix);
      LmHeadCutter(kTokens).Cut(head);
      EXPECT_EQ(head.packed->format, quant::WeightFormat::kW8A8);
      ExpectOutputsOfTokens(quant::Unpack(head.packed->matrix), whole);
    }
  }
}

// A token is left out where all heads have pruned it: a low bias alone may be a trained one.
TEST(DraftVocabTest, FindsTheRowsThatAllLmHeadsHavePruned) {
  std::vector<float> first = HeadValues();
  const auto zero = [](std::vector<float>& values, int64_t row) {
    std::fill_n(values.begin() + row * kInputs, kInputs, 0.0F);
  };
  for (const int64_t row : {2, 3, 4, 39}) zero(first, row);
  std::vector<float> second = first;
  zero(second, 5);
  model::Linear a = FloatHead(first), b = FloatHead(second);
  for (const size_t row : {2, 3, 6}) a.bias[row] = b.bias[row] = kPrunedBias;
  a.bias[2] = kLargestPrunedBias;
  b.bias[4] = b.bias[5] = kPrunedBias;
  std::vector<int32_t> expected(static_cast<size_t>(kOutputs));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_FALSE(UnprunedTokens({}));
  model::Linear whole = FloatHead(first);
  EXPECT_FALSE(UnprunedTokens(std::vector<model::Linear*>{&whole})) << "rows of zeros alone";
  std::erase_if(expected, [](int32_t token) { return token == 2 || token == 3; });
  const std::vector<model::Linear*> both = {&a, &b};
  EXPECT_EQ(UnprunedTokens(both), expected);
  base::ThreadPool pool(1, false);
  for (model::Linear* head : both) {
    head->packed = quant::Pack({.weight = head->weight, .name = "x", .file = "y"}, quant::WeightFormat::kW8A8, pool);
  }
  EXPECT_EQ(UnprunedTokens(both), expected);
  b.bias.clear();
  EXPECT_FALSE(UnprunedTokens(both)) << "without biases no row can be pruned";
}

}  // namespace
}  // namespace hydrant::draft::draft_vocab_test
