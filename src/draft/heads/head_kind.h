// SPDX-License-Identifier: Apache-2.0
// Kinds of draft heads as data. A kind says by rows how released files spell its tensors and what shape they have, and
// by places where each goes. Loader, packer, converter, `inspect`, random weights and byte counts read only these
// (docs/adding_a_head.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "checkpoint/tensor_table.h"
#include "draft/heads/head_tensors.h"
#include "kernels/ops/queue.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace hydrant::draft {

class Drafter;

// What a row describes: a linear layer or a vector ("NAME.weight", and "NAME.bias" by `bias`), a table of which only
// single rows are read ("NAME.weight"), a token map ("NAME", integers; kTokenOffsets: row j is token j + NAME[j]), a
// whole decoder layer (names that begin with NAME: model/weights.h has its rows), or a tensor that may be there and is
// not used.
enum class Form : uint8_t { kLinear, kVector, kTable, kTokenMap, kTokenOffsets, kDecoderLayer, kUnused };

enum class Size : uint8_t {
  kNone,
  kHiddenSize,
  kFirstInputs,  // of head i's first block: the hidden state and i + 1 embeddings
  kVocabulary,   // vocab_size
  kDraftRows,    // tokens that heads draft: vocab_size, or the rows of a token map
  kTwoHidden,    // 2 * hidden_size
  kThreeHidden,  // 3 * hidden_size
  kExit,         // HeadsInfo::exit_size
  // Of HeadPlace::layer_config.
  kQueryRows,
  kKeyRows,
  kInnerSize,
  kStateSize,    // of a state that goes from stage to stage: its intermediate_size, which configs call inner_dim
  kStateInputs,  // likewise; of stage 0: hidden_size
};

enum class Bias : uint8_t { kNone, kRequired, kOptional };

struct HeadTensor {
  std::string_view role;  // what a HeadPlace calls it
  const char* name;       // '#' stands for the head's number, a second one or '%' for the layer's place
  Form form = Form::kLinear;
  Size outputs = Size::kNone, inputs = Size::kNone;
  Bias bias = Bias::kNone;
  checkpoint::ShardAxis shard = checkpoint::ShardAxis::kReplicated;
  const char* note = "";  // for the error about a wrong shape
};

// The roles that code outside a kind's own files knows.
inline constexpr std::string_view kBlock = "block";
inline constexpr std::string_view kLmHead = "lm_head";
inline constexpr std::string_view kSharedLmHead = "shared_lm_head";  // one for all heads
inline constexpr std::string_view kTokenMap = "token_map";

// HeadLayout::spelling of rank files (checkpoint/rank_files.h).
inline constexpr const char* kRankSpelling = "tensorrt-llm";

// How one tool writes a kind's tensors.
struct HeadLayout {
  const char* name;  // as docs/formats.md has it; for Hydra the hydra_head_arch
  std::span<const HeadTensor> tensors;
  // Layer l of a head stands at first_place + l * place_step of the file's Sequential.
  int32_t first_place = 0, place_step = 1;
  // Does the file hold nothing else? Then what no row names is refused.
  bool is_alone = true;
  // What `convert` calls it; null: it is read, and another spelling is written.
  const char* spelling = nullptr;
  // Do such heads run through the base's lm head where the file holds none?
  bool may_lack_lm_heads = false;

  const HeadTensor* Find(std::string_view role) const;  // null: none
};

// Where one tensor of the loaded heads goes.
struct HeadPlace {
  std::string_view role;
  int32_t head = -1;  // -1: of no head, but before all of them (a prefix layer)
  int32_t layer = 0;  // of the head
  // One of these.
  model::Linear* linear = nullptr;
  std::vector<model::Linear>* slices =
      nullptr;  // one matrix by equal parts of its inputs; the bias goes with the first
  std::vector<float>* vector = nullptr;
  TensorView* table = nullptr;
  model::LayerWeights* decoder_layer = nullptr;
  std::vector<float>* vector_bias = nullptr;  // beside `vector`, where its row has a bias
  // The block of the same head that released files repeat here: one module, stored once or several times.
  model::Linear* tied_to = nullptr;
  const model::ModelConfig* layer_config = nullptr;  // of decoder_layer, or of the layer that a matrix belongs to
};

// The weights of one kind, loaded or not.
class HeadWeights {
 public:
  HeadWeights() = default;
  HeadWeights(HeadWeights&&) = default;
  HeadWeights& operator=(HeadWeights&&) = delete;
  virtual ~HeadWeights() = default;

  // Every tensor, in the order of the file.
  virtual std::vector<HeadPlace> Places() = 0;
  // A drafter that takes these weights over. `base` and `queue` must outlive it.
  virtual std::unique_ptr<Drafter> IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) = 0;

  HeadsInfo info;
  std::unique_ptr<checkpoint::TensorSource> tensors;  // null: the weights come from elsewhere
  std::vector<int32_t> token_map;         // [V'], row j of an lm head is the logit of token_map[j]; empty = identity
  std::vector<std::string> used_tensors;  // as the source spells them
  uint64_t bytes = 0;
};

// Heads as their paper publishes them, for measuring without a download.
struct PublishedHeads {
  const char* name;
  HeadsInfo (*info)();
};

struct HeadKind {
  const char* name;  // "hydra"
  // The key of config.json that names such heads; null: they are known by their tensors alone.
  const char* config_key;
  const char* layout_word;  // what `inspect` calls HeadsInfo::layout
  std::span<const HeadLayout> layouts;
  // Is this file of this kind? Fills what `info` says of it. Throws FileError for heads of this kind that cannot run.
  bool (*resolve)(const checkpoint::TensorSource& tensors, const base::JsonView* config, HeadsInfo& info);
  // Null, or: throws FileError for a config that names heads of this kind that cannot run, before weights are opened.
  void (*check_config)(const base::JsonView& config);
  // Weights without values, sized by the file's info and the base. Throws FileError where these do not fit.
  std::unique_ptr<HeadWeights> (*make)(const HeadsFile& file, const model::ModelConfig& base);
  std::span<const PublishedHeads> published;
};

// Every kind, in the order in which a file is asked. A new kind is one entry here, in head_kinds.cc.
std::span<const HeadKind* const> HeadKinds();

// The name of a row's tensor: without ".weight" and ".bias".
std::string NameOf(const HeadsInfo& info, const HeadTensor& tensor, int32_t head, int32_t layer);
// By its role. Throws InternalError where the layout has none.
std::string NameOf(const HeadsInfo& info, std::string_view role, int32_t head, int32_t layer);

// What a layout's keys in a file say.
struct HeadCounts {
  int32_t heads = 0;
  int32_t max_place = -1;      // largest second number of a block
  int32_t lm_head_place = -1;  // of the lm heads; -1: they have none
  bool has_lm_head = false;
};
HeadCounts CountHeads(const checkpoint::TensorSource& tensors, const HeadLayout& layout);

// The numbers that stand for the '#' and '%' of a pattern; none where the name is another. At most five digits each.
bool Match(std::string_view name, std::string_view pattern, std::vector<int32_t>& numbers);

// The rows of a place: a linear layer's weight and bias, all of a decoder layer, or one. `draft_rows`:
// Size::kDraftRows.
std::vector<checkpoint::TensorRow> RowsOf(const HeadPlace& place, const HeadsInfo& info, const model::ModelConfig& base,
                                          int64_t draft_rows);
// Names that the layout accepts and does not use.
std::vector<std::string> UnusedNames(const HeadsInfo& info);

// The layout of this spelling that holds the same tensors as `layout`; null: the kind has none.
const HeadLayout* Respelled(const HeadKind& kind, const HeadLayout& layout, std::string_view spelling);

// The heads of a file, for a base. Throws FileError for heads that do not fit it.
std::unique_ptr<HeadWeights> LoadHeads(HeadsFile file, const model::ModelWeights& base);

// Every linear layer that belongs to the heads, in the order of Places: not a base's lm head that they use.
std::vector<model::Linear*> LinearsOf(HeadWeights& weights);
// The lm head of every head, the base's too.
std::vector<model::Linear*> LmHeadsOf(HeadWeights& weights);

// A number in the config that differs from what the keys say is worth a warning, not a refusal: released configs are
// wrong (docs/formats.md: they say 2 heads where the file has 4).
void WarnIfDifferent(const base::JsonView& config, const char* key, int64_t found, HeadsInfo& info);

}  // namespace hydrant::draft
