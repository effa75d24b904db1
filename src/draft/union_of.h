// SPDX-License-Identifier: Apache-2.0
// Several drafters for one sequence, whose trees become one, as SpecInfer merges those of several small models (Miao et
// al., 2024, arXiv 2305.09781, section 3): what any of them drafts is verified.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "draft/several.h"

namespace hydrant::draft {

// Each of them fills the request's shape, or grows the request's dynamic tree, as far as its own depth goes. A path of
// tokens that several of them draft stands once. The children of a node are those of the first drafter, then the new
// ones of the second, and so on. A step's budget of nodes is divided among them.
class UnionOf : public Drafter {
 public:
  explicit UnionOf(std::vector<std::unique_ptr<Drafter>> drafters);

  const char* name() const override { return name_.c_str(); }  // "medusa + hydra"
  int32_t max_depth() const override { return parts_.max_depth(); }
  int32_t num_heads() const override;
  int32_t usual_depth() const override;
  int32_t num_trees() const override { return static_cast<int32_t>(parts_.size()); }
  bool FillsShapes() const override { return true; }
  bool GrowsTrees() const override;
  std::vector<int32_t> WantedLayers() const override { return parts_.wanted(); }
  std::vector<kv::LayerShape> KvLayers() const override { return parts_.KvLayers(); }
  bool ReadsNextToken() const override { return parts_.ReadsNextToken(); }
  uint64_t weight_bytes() const override { return parts_.weight_bytes(); }
  uint64_t table_bytes() const override { return parts_.table_bytes(); }
  uint64_t bytes_read() const override { return parts_.bytes_read(); }
  std::unique_ptr<DraftState> NewState(const GenerationRequest& request) const override;
  int32_t Resume(DraftState& state, const DraftKv& kv, int32_t length) const override;
  void Commit(std::span<const CommitInput> inputs) override;
  void Propose(std::span<ProposeInput> inputs) override;

 private:
  void ProposePart(size_t part, std::span<ProposeInput> inputs);
  void Settle(DraftState& state, const DraftKv& kv) const;

  std::vector<std::unique_ptr<Drafter>> drafters_;
  Several parts_;
  std::string name_;
  std::vector<CommitInput> commits_;
  std::vector<kernels::ConstRows> hidden_;  // of commits_
  std::vector<ProposeInput> asked_;
};

}  // namespace hydrant::draft
