// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/head_ranks.h"

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "checkpoint/rank_files.h"
#include "draft/heads/head_kind.h"
#include "hydrant/error.h"
#include "model/weights.h"

namespace hydrant::draft {
namespace {

using checkpoint::ShardAxis;

constexpr int64_t kMostRanks = 1024;

bool MatchesLinear(const std::string& name, const std::string& pattern) {
  std::vector<int32_t> numbers;
  return Match(name, pattern + ".weight", numbers) || Match(name, pattern + ".bias", numbers);
}

// Of one row; nothing: the row does not name it.
std::optional<ShardAxis> AxisOfRow(const std::string& name, const HeadTensor& tensor) {
  if (tensor.form != Form::kDecoderLayer) {
    return MatchesLinear(name, tensor.name) ? std::optional(tensor.shard) : std::nullopt;
  }
  for (const checkpoint::TensorRow& row : model::LayerRows({}, tensor.name)) {
    if (row.name == name) return row.shard;
  }
  return std::nullopt;
}

// Whole layers on other ranks are another split than that of tensors.
void RefusePipelines(const base::JsonView& mapping) {
  if (mapping.Has("pp_size") && mapping.At("pp_size").Int(1, kMostRanks) != 1) {
    mapping.At("pp_size").Fail("1 (ranks that hold other layers are not read)",
                               "convert the checkpoint again without pipeline parallelism");
  }
}

int64_t RanksOf(const base::JsonView& config, int64_t found) {
  if (!config.Has("mapping")) return found;
  const base::JsonView mapping = config.At("mapping");
  RefusePipelines(mapping);
  return mapping.Has("tp_size") ? mapping.At("tp_size").Int(1, kMostRanks) : found;
}

// The folder holds ranks 0 to `expected` - 1 and no others.
void CheckRanks(const std::string& folder, const std::vector<int64_t>& ranks, int64_t expected,
                const base::JsonView* config) {
  const auto found = static_cast<int64_t>(ranks.size());
  int64_t missing = 0;  // the first one
  while (missing < found && ranks[static_cast<size_t>(missing)] == missing) ++missing;
  if (found == expected && missing == expected) return;
  const std::string held = "holds " + std::to_string(found) + (found == 1 ? " rank file" : " rank files");
  const std::string hint =
      missing < expected ? "add " + checkpoint::RankFileName(missing) : "take away what is left of another";
  if (found == expected) throw FileError(folder, held + ", but no " + checkpoint::RankFileName(missing), hint);
  throw FileError(
      folder, held + ", expected " + std::to_string(expected) + " ('mapping.tp_size' of " + config->file() + ")", hint);
}

}  // namespace

std::optional<ShardAxis> RankAxis(const std::string& name) {
  for (const HeadKind* kind : HeadKinds()) {
    for (const HeadLayout& layout : kind->layouts) {
      if (layout.spelling == nullptr || layout.spelling != std::string_view(kRankSpelling)) continue;
      for (const HeadTensor& tensor : layout.tensors) {
        if (const auto axis = AxisOfRow(name, tensor)) return axis;
      }
    }
  }
  return std::nullopt;
}

std::unique_ptr<checkpoint::TensorSource> OpenHeadTensors(const std::string& folder, const base::JsonView* config) {
  std::unique_ptr<checkpoint::TensorSource> first = checkpoint::OpenHeadsFolder(folder);
  if (!first->display_name().ends_with(checkpoint::RankFileName(0))) return first;
  const std::vector<int64_t> ranks = checkpoint::RanksIn(folder);
  const auto found = static_cast<int64_t>(ranks.size());
  const int64_t expected = config == nullptr ? found : RanksOf(*config, found);
  CheckRanks(folder, ranks, expected, config);
  if (found == 1) return first;
  checkpoint::RankFiles files{.folder = folder, .count = found};
  if (config != nullptr && config->Has("vocab_size")) {
    files.vocab_size = config->At("vocab_size").Int(1, INT32_MAX);
  }
  return checkpoint::JoinRanks(files, RankAxis);
}

}  // namespace hydrant::draft
