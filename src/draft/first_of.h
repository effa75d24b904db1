// SPDX-License-Identifier: Apache-2.0
// Two drafters for one sequence: the second is asked where the first has nothing to propose.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "draft/several.h"

namespace hydrant::draft {

// Both drafters hear of a prompt's commits at once, and the first one of every step's commit, too. What steps commit
// waits for the second drafter until it is next asked, or until kMostWaiting rows wait: a drafter that is not asked
// need not know, and many rows together cost no more than a prompt's rows do. (A waiting row takes 16 KB at 7B.)
class FirstOf : public Drafter {
 public:
  // Both must outlive this.
  FirstOf(Drafter* first, Drafter* second);

  static constexpr int64_t kMostWaiting = 1024;

  const char* name() const override { return second_->name(); }
  int32_t max_depth() const override { return both_.max_depth(); }
  int32_t num_trees() const override { return second_->num_trees(); }
  bool FillsShapes() const override { return first_->FillsShapes() || second_->FillsShapes(); }
  std::vector<int32_t> WantedLayers() const override { return both_.wanted(); }
  std::vector<kv::LayerShape> KvLayers() const override { return both_.KvLayers(); }
  bool ReadsNextToken() const override { return both_.ReadsNextToken(); }
  uint64_t weight_bytes() const override { return both_.weight_bytes(); }
  uint64_t table_bytes() const override { return both_.table_bytes(); }
  uint64_t bytes_read() const override { return both_.bytes_read(); }
  int32_t MostNodes(const GenerationRequest& request) const override;
  std::unique_ptr<DraftState> NewState(const GenerationRequest& request) const override;
  int32_t Resume(DraftState& state, const DraftKv& kv, int32_t length) const override;
  void Commit(std::span<const CommitInput> inputs) override;
  void Propose(std::span<ProposeInput> inputs) override;

 private:
  DraftKv KvOfSecond(const DraftKv& kv) const { return both_.KvOf(1, kv); }
  void HandOver(std::span<ProposeInput> inputs);

  Drafter* first_;
  Drafter* second_;
  Several both_;
  std::vector<CommitInput> commits_;
  std::vector<kernels::ConstRows> hidden_;  // of commits_
  std::vector<ProposeInput> asked_;         // of the second
};

}  // namespace hydrant::draft
