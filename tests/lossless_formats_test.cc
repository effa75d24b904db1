// SPDX-License-Identifier: Apache-2.0
// Losslessness in every weight format, and the same text and bits on every target. Targets, formats and kinds of heads
// take turns where their product would take minutes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "eval/logits.h"
#include "kernels/kernels.h"
#include "load/loaded_model.h"
#include "model/decoder.h"
#include "tests/drafting_kinds.h"
#include "tests/lossless_util.h"

namespace hydrant::test::lossless_formats_test {
namespace {

// What targets of equal bits gave, by the target that they are compared to. Tiles add the products of bf16 keys and
// values in an order of their own (docs/algorithms/order_of_additions.md), so that there the targets with tiles have
// equal bits, and the others.
template <class Values>
class Twins {
 public:
  explicit Twins(DType kv_type) : kv_type_(kv_type) {}

  const Values& TwinOf(const kernels::KernelTable& table, const Values& values) {
    return by_table_.try_emplace(&kernels::AttentionTwin(table, kv_type_), values).first->second;
  }
  size_t count() const { return by_table_.size(); }

 private:
  DType kv_type_;
  std::map<const kernels::KernelTable*, Values> by_table_;
};

using Texts = std::vector<std::vector<int32_t>>;  // per setting

// EngineOptions::kv_type "auto".
DType KvTypeUnder(const Formats& formats) { return IsPacked(formats) ? DType::kBF16 : DType::kF32; }

// Layers of fewer than 128 inputs keep 8 bits, so that of the small reference model only the down projections and the
// heads are in 4 bits; the embedded model below is 4 bits throughout.
TEST(LosslessFormats, EveryWeightFormatOnEveryTarget) {
  size_t turn = 0;  // of the wide trees
  for (const Formats& formats : EveryFormat()) {
    const size_t tree = 1 + turn++ % 2;
    Twins<Texts> twins(KvTypeUnder(formats));
    for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
      const Texts texts = ExpectLossless({.base = Golden("base_mha"),
                                          .heads = Golden("hydra/prefix_mlp_k2_l1"),
                                          .prompt = Prompt(),
                                          .num_tokens = 30,
                                          .formats = formats,
                                          .trees = {tree}},
                                         table->name);
      EXPECT_EQ(texts, twins.TwinOf(*table, texts)) << table->name << " " << NameOf(formats);
    }
  }
}

// Each kind of drafter in each format; each format and each kind meets each target and each tree.
TEST(LosslessFormats, EveryKindOfDrafterInEveryFormat) {
  const auto targets = kernels::AvailableKernels();
  size_t turn = 0, first_tree = 0;
  for (const DraftingKind& kind : DraftingKinds()) {
    if (kind.drafts.size() != 1 || !IsThere(kind)) continue;
    const EngineOptions options = OptionsOf(kind);
    size_t tree = first_tree++;
    for (const Formats& formats : EveryFormat()) {
      ExpectLossless({.base = options.model,
                      .heads = options.draft,
                      .prompt = Prompt(),
                      .num_tokens = 20,
                      .formats = formats,
                      .trees = {tree++ % 3},
                      .is_trained = IsTrained(kind)},
                     targets[turn++ % targets.size()]->name);
    }
  }
}

// The slow twins, portable and amx-twin, decode less: the beginning of what the others do.
TEST(LosslessFormats, TheEmbeddedModelInEveryFormat) {
  for (const Formats& formats : EveryFormat()) {
    Twins<Texts> twins(KvTypeUnder(formats));
    for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
      const std::string target = table->name;
      const bool slow = target == "portable" || target == "amx-twin";
      if (slow && !IsPacked(formats)) continue;  // the small model covers it
      Case embedded{.base = Embedded("tale-14m"),
                    .heads = Embedded("tale-14m-hydra-pp"),
                    .prompt = TalePrompt(),
                    .num_tokens = slow ? 6 : 12,
                    .formats = formats};
      if (slow || !IsPacked(formats)) embedded.trees = {0};
      Texts texts = ExpectLossless(embedded, target);
      for (std::vector<int32_t>& text : texts) text.resize(6);
      EXPECT_EQ(texts, twins.TwinOf(*table, texts)) << target << " " << NameOf(formats);
    }
  }
}

std::unique_ptr<load::LoadedModel> LoadEmbedded(const Formats& formats, const std::string& target, DType kv_type) {
  EngineOptions options;
  options.model = Embedded("tale-14m");
  options.draft = Embedded("tale-14m-hydra-pp");
  options.weights = formats.base;
  options.head_weights = formats.heads;
  options.kv_type = NameOf(kv_type);
  options.cpu_target = target;
  options.load_tokenizer = false;
  auto loaded = load::LoadModel(options);
  EXPECT_EQ(loaded->info.weights, formats.base);
  EXPECT_EQ(loaded->info.head_weights, formats.heads);
  EXPECT_EQ(loaded->kv_shape.dtype, kv_type);
  EXPECT_EQ(loaded->options.prefill_chunk, load::BestPrefillChunk(*loaded->queue.table, loaded->weights));
  return loaded;
}

// Logits and hidden states of a prompt, and the logits of every head after it.
std::vector<float> BitsOf(load::LoadedModel& loaded) {
  const eval::EvalLogitsResult result = eval::EvalLogits(loaded, {1, 300, 700, 1200, 310, 45}, {});
  std::vector<float> values;
  for (const Matrix* matrix : {&result.logits, &result.hidden, &result.head_logits}) {
    for (int64_t r = 0; r < matrix->rows(); ++r) {
      const std::span<const float> row = matrix->row_span(r);
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  return values;
}

// Sums of integers are exact, sums of floats have one order (docs/algorithms/order_of_additions.md). Together with the
// next test this holds for rows of trees too.
TEST(LosslessFormats, EveryFormatHasTheSameBitsOnEveryTarget) {
  for (const Formats& formats : EveryFormat()) {
    for (const DType kv_type : {DType::kF32, DType::kBF16}) {
      if (kv_type == DType::kBF16 && !IsPacked(formats)) continue;  // nothing that the others would not show
      Twins<std::vector<float>> twins(kv_type);
      for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
        const auto loaded = LoadEmbedded(formats, table->name, kv_type);
        const std::vector<float> bits = BitsOf(*loaded);
        const std::vector<float>& twin = twins.TwinOf(*table, bits);
        ASSERT_EQ(bits.size(), twin.size());
        EXPECT_EQ(std::memcmp(bits.data(), twin.data(), twin.size() * sizeof(float)), 0)
            << NameOf(formats) << " " << table->name << " " << NameOf(kv_type);
      }
      EXPECT_EQ(twins.count(), kv_type == DType::kF32 ? 1U : 2U);
    }
  }
}

// Forwards of the base alone over the same keys and values: the prompt, then rows in the place after it.
class RowsAfterPrompt {
 public:
  RowsAfterPrompt(load::LoadedModel& loaded, std::span<const int32_t> prompt)
      : loaded_(&loaded), pool_(loaded.kv_shape, 16), blocks_(&pool_) {
    HYDRANT_CHECK(blocks_.Reserve(400));
    batch_.AddChain(prompt, 0, blocks_.blocks());
    Forward();
    blocks_.Append(static_cast<int32_t>(prompt.size()));
  }

  // [N, V], row i = node i.
  const Matrix& Tree(const tree::Topology& topology, std::span<const int32_t> tokens) {
    for (tree::NodeId node = 0; node < topology.num_nodes(); ++node) {
      batch_.AddTreeRow(tokens[static_cast<size_t>(node)], blocks_.length(), topology.PathTo(node), blocks_.blocks());
      batch_.WantLogits();
    }
    return Forward();
  }

  // The last node's, [1, V], one row per forward.
  const Matrix& Plain(std::span<const tree::NodeId> path, std::span<const int32_t> tokens) {
    for (size_t i = 0; i < path.size(); ++i) {
      batch_.AddChain(tokens.subspan(static_cast<size_t>(path[i]), 1), blocks_.length() + static_cast<int32_t>(i),
                      blocks_.blocks());
      batch_.WantLogits();
      Forward();
    }
    return output_.logits;
  }

 private:
  const Matrix& Forward() {
    batch_.Seal();
    loaded_->decoder->Forward(batch_, pool_, output_);
    batch_.Clear();
    return output_.logits;
  }

  load::LoadedModel* loaded_;
  kv::BlockPool pool_;
  kv::BlockTable blocks_;
  model::RowBatch batch_;
  model::ForwardOutput output_;
};

// Bits, not only tokens: rows of a random tree against the same tokens decoded one after another.
void ExpectTreeRowsAreThoseOfPlainDecoding(load::LoadedModel& loaded, std::span<const int32_t> prompt,
                                           tree::NodeId step) {
  const tree::Topology topology = RandomTree(23, 4);
  std::vector<int32_t> tokens(static_cast<size_t>(topology.num_nodes()));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((i * 37 + 11) % 512);
  RowsAfterPrompt rows(loaded, prompt);
  const Matrix& logits = rows.Tree(topology, tokens);
  const int64_t vocab = logits.cols();
  Matrix expected(logits.rows(), vocab);
  for (int64_t r = 0; r < logits.rows(); ++r) std::copy_n(logits.row(r), vocab, expected.row(r));
  for (tree::NodeId node = 0; node < topology.num_nodes(); node += step) {
    const Matrix& plain = rows.Plain(topology.PathTo(node), tokens);
    EXPECT_EQ(std::memcmp(expected.row(node), plain.row(0), static_cast<size_t>(vocab) * 4), 0) << "node " << node;
  }
}

TEST(LosslessFormats, TreeRowsHaveTheBitsOfPlainDecoding) {
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    for (const Formats& formats : EveryFormat()) {
      SCOPED_TRACE(std::string(table->name) + " " + NameOf(formats));
      EngineOptions options;
      options.model = Golden("base_mha");
      options.weights = formats.base;
      options.cpu_target = table->name;
      options.load_tokenizer = false;
      const auto loaded = load::LoadModel(options);
      ExpectTreeRowsAreThoseOfPlainDecoding(*loaded, Prompt(), 3);
    }
  }
}

TEST(LosslessFormats, TreeRowsOfTheEmbeddedModelHaveTheBitsOfPlainDecoding) {
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    for (const Formats& formats : EveryFormat()) {
      if (!IsPacked(formats)) continue;  // portable takes long, and the small model has the same kernels
      SCOPED_TRACE(std::string(table->name) + " " + NameOf(formats));
      const auto loaded = LoadEmbedded(formats, table->name, KvTypeUnder(formats));
      ExpectTreeRowsAreThoseOfPlainDecoding(*loaded, TalePrompt(), 9);
    }
  }
}

}  // namespace
}  // namespace hydrant::test::lossless_formats_test
