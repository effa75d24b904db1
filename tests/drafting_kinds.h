// SPDX-License-Identifier: Apache-2.0
// The drafters there are, and the ways in which a request may have its tokens drafted: two tables over which the tests
// of losslessness run, alone and under the server. A new kind of drafter is one line in DraftingKinds.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <list>
#include <ostream>
#include <string>
#include <vector>

#include "tests/head_folders.h"
#include "tests/lossless_util.h"

namespace hydrant::test {

// Where a drafter comes from: a folder in tests/golden or ../shared/golden, with the base that it belongs to; where
// that is not there, or none is named, random weights for base_mha.
struct DraftFolder {
  std::string golden = {};
  std::string base = "base_mha";
  std::function<std::string(const TempDir&)> made = {};  // writes it
};

template <class Folder>
std::function<std::string(const TempDir&)> Made(const Folder& folder) {
  return [folder](const TempDir& dir) { return folder.Write(dir); };
}

struct DraftingKind {
  const char* name;
  std::vector<DraftFolder> drafts;  // none: plain decoding; several: they draft together
  bool grows_trees = false;         // dynamic ones and beams
};
inline void PrintTo(const DraftingKind& kind, std::ostream* out) { *out << kind.name; }

inline const std::vector<DraftingKind>& DraftingKinds() {
  static const std::vector<DraftingKind> kinds = [] {
    const std::string stories = "../models/stories260K-hf", eagle3_base = "eagle/eagle3_l8/base";
    const DraftFolder model{.golden = "base_mha"}, hydra_pp{.golden = "hydra/prefix_mlp_k2_l1"},
        eagle1{.made = Made(EagleFolder(false))}, eagle3{.made = Made(EagleFolder(true))};
    return std::vector<DraftingKind>{
        {"Plain", {}},
        {"Medusa", {{.golden = "medusa/a_k3_l2"}}},
        {"MedusaOfOneLayer", {{.golden = "medusa/a_k4_l1"}}},
        {"MedusaV2", {{.golden = "medusa/c_v2_k4_l1"}}},
        {"MedusaWithTokenMap", {{.golden = "medusa/d_k4_l1_vllm_token_map"}}},
        {"Hydra", {{.golden = "hydra/mlp_k3_l2"}}},
        {"HydraOfOneLayer", {{.golden = "hydra/mlp_k4_l1"}}},
        {"HydraUngrounded", {{.golden = "hydra/mlp_ungrounded_k4_l1"}}},
        {"HydraOfAnOlderState", {{.golden = "hydra/mlp_offset1_k4_l1"}}},
        {"HydraPlusPlus", {hydra_pp}},
        {"HydraPlusPlusTied", {{.golden = "hydra/hydra_pp_k4_l4"}}},
        {"HydraEagleAttn", {{.golden = "hydra/eagle_attn_k1", .made = Made(HydraAttentionFolder("eagle-attn"))}}, true},
        {"HydraCrossAttn", {{.golden = "hydra/cross_attn_k1", .made = Made(HydraAttentionFolder("cross-attn"))}}, true},
        {"Eagle1", {{.golden = "eagle/eagle1", .base = stories, .made = eagle1.made}}, true},
        {"Eagle3", {{.golden = "eagle/eagle3_l8", .base = eagle3_base, .made = eagle3.made}}, true},
        {"Redrafter", {{.golden = "redrafter/head", .base = stories, .made = Made(RedrafterFolder(true))}}, true},
        {"RedrafterWithoutRnn",
         {{.golden = "redrafter/proj_head", .base = stories, .made = Made(RedrafterFolder(false, 96))}},
         true},
        {"MlpSpeculator", {{.made = Made(MlpSpeculatorFolder())}}, true},
        {"MlpSpeculatorTied", {{.made = Made(MlpSpeculatorFolder(true, 5, 64, true))}}, true},
        {"DraftModel", {model}, true},
        {"SmallerDraftModel", {{.golden = "assisted/draft", .base = stories}}, true},
        {"MedusaAndHydra", {{.golden = "medusa/a_k3_l2"}, {.golden = "hydra/mlp_k3_l2"}}},
        {"HydraPlusPlusAndEagle3", {hydra_pp, eagle3}},
        {"Eagle1AndDraftModelAndEagle3", {eagle1, model, eagle3}, true},
        {"DraftModelAndHydraPlusPlus", {model, hydra_pp}},
    };
  }();
  return kinds;
}

// tests/golden/NAME or ../shared/golden/NAME; empty where neither is there.
inline std::string GoldenOrShared(const std::string& name) {
  if (name.empty()) return "";
  if (std::filesystem::is_directory(Golden(name))) return Golden(name);
  const std::string shared = SharedDir() + "/golden/" + name;
  return !SharedDir().empty() && std::filesystem::is_directory(shared) ? shared : "";
}

// No drafts of random weights are needed for it.
inline bool IsTrained(const DraftingKind& kind) {
  return !kind.drafts.empty() && std::ranges::none_of(kind.drafts, [](const DraftFolder& draft) {
    return GoldenOrShared(draft.golden).empty();
  });
}

inline bool IsThere(const DraftingKind& kind) {
  return std::ranges::all_of(kind.drafts, [](const DraftFolder& draft) {
    return draft.made != nullptr || !GoldenOrShared(draft.golden).empty();
  });
}

// For an engine that drafts so. What is written for it lies there until the process ends.
inline EngineOptions OptionsOf(const DraftingKind& kind) {
  static std::list<TempDir> made;
  EngineOptions options = OptionsOf(std::string());
  for (const DraftFolder& draft : kind.drafts) {
    std::string folder = GoldenOrShared(draft.golden);
    if (folder.empty()) {
      folder = draft.made(made.emplace_back());
    } else {
      options.model = GoldenOrShared(draft.base);
    }
    if (options.draft.empty()) {
      options.draft = folder;
    } else {
      options.more_drafts.push_back(folder);
    }
  }
  return options;
}

// Every way to draft with it: requests with nothing but their settings of drafts. `info`: of its engine.
inline std::vector<GenerationRequest> WaysToDraft(const DraftingKind& kind, const EngineInfo& info) {
  std::vector<GenerationRequest> ways;
  const auto add = [&ways](const std::string& tree) -> GenerationRequest& {
    ways.emplace_back().tree = tree;
    return ways.back();
  };
  const LookupOptions last{.max_tokens = 5, .min_match = 1}, first{.max_tokens = 10, .rule = LookupRule::kFirst};
  add("").use_drafter = false;
  if (kind.drafts.empty()) {
    add("").lookup = last;
    add("").lookup = first;
    add("").lookup = {.max_tokens = 40, .min_match = 1};
    return ways;
  }
  const std::vector<std::string> trees = EveryTree(info.draft_depth);
  add("").draft_depth = info.draft_depth;
  add(trees[1]);
  add(trees[2]).draft_p_min = 0.004F;
  add(trees[2]).accept.candidates = CandidateNoise::kPlain;
  add(trees[1]).lookup = last;
  add(trees[2]).lookup = first;
  add(trees[2]).max_nodes = 5;
  add("auto");
  if (!kind.grows_trees) return ways;
  add("dynamic");
  add("dynamic").dynamic = {.nodes = 9, .depth = 3, .width = 4};
  ways.back().draft_p_min = 0.05F;
  add("beam").beam = {.width = 5, .length = 4};
  return ways;
}

}  // namespace hydrant::test
