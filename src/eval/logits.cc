// SPDX-License-Identifier: Apache-2.0
#include "eval/logits.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "eval/chunked_forward.h"
#include "hydrant/error.h"
#include "sampling/choose.h"

namespace hydrant::eval {
namespace {

void CheckPath(const load::LoadedModel& loaded, const std::vector<int32_t>& path) {
  if (path.empty()) return;
  if (!loaded.drafter) throw UserError("EvalLogits::path needs heads", "name their folder with EngineOptions::draft");
  if (static_cast<int64_t>(path.size()) > loaded.drafter->usual_depth()) {
    throw UserError("EvalLogits::path has " + std::to_string(path.size()) + " tokens, but there are " +
                    std::to_string(loaded.drafter->usual_depth()) + " heads");
  }
  for (const int32_t token : path) {
    if (token < 0 || token >= loaded.info.vocab_size) {
      throw UserError("EvalLogits::path has token " + std::to_string(token) + ", expected 0 to " +
                      std::to_string(loaded.info.vocab_size - 1));
    }
  }
}

void CopyInto(const Matrix& from, Matrix& to, int64_t first_row) {
  for (int64_t r = 0; r < from.rows(); ++r) std::copy_n(from.row(r), from.cols(), to.row(first_row + r));
}

void CommitChunk(load::LoadedModel& loaded, draft::DraftState& state, kv::BlockTable& table,
                 std::span<const int32_t> tokens, const model::ForwardOutput& output) {
  std::vector<kernels::ConstRows> hidden;
  for (size_t i = 0; i < output.captured.size(); ++i) hidden.emplace_back(output.HiddenOf(i));
  const draft::CommitInput input{
      .state = &state, .kv = loaded.DraftKvIn(table), .tokens = tokens, .hidden = hidden, .is_prompt = true};
  loaded.drafter->Commit(std::span(&input, 1));
}

}  // namespace

EvalLogitsResult EvalLogits(load::LoadedModel& loaded, const std::vector<int32_t>& prompt_ids,
                            const std::vector<int32_t>& path, const std::function<void(double share)>& progress) {
  load::CheckPrompt(loaded, prompt_ids);
  CheckPath(loaded, path);
  const auto length = static_cast<int32_t>(prompt_ids.size());
  kv::BlockPool pool(loaded.kv_shape, (length + tree::Topology::kMaxDepth) / kernels::kBlockPositions + 1);
  kv::BlockTable table(&pool);
  const bool reserved = table.Reserve(length);
  HYDRANT_CHECK(reserved);
  std::unique_ptr<draft::DraftState> state = loaded.drafter ? loaded.drafter->NewState({}) : nullptr;

  EvalLogitsResult result;
  result.logits.Resize(length, loaded.weights.config.vocab_size);
  result.hidden.Resize(length, loaded.weights.config.hidden_size);
  ChunkedForward forward(loaded.decoder.get(), &pool);
  const auto on_chunk = [&](int32_t first, int32_t count, const model::ForwardOutput& output) {
    table.Append(count);
    load::CheckKvRange(table, first, count, loaded.base_layers(), loaded.options.model);
    CopyInto(output.logits, result.logits, first);
    CopyInto(output.hidden, result.hidden, first);
    if (state)
      CommitChunk(loaded, *state, table,
                  std::span(prompt_ids).subspan(static_cast<size_t>(first), static_cast<size_t>(count)), output);
    if (progress) progress(static_cast<double>(first + count) / length);
  };
  if (progress) progress(0);
  forward.Run(prompt_ids, table, loaded.options.prefill_chunk, 0, on_chunk);
  result.root = sampling::Argmax(std::as_const(result.logits).row_span(length - 1));
  if (!state) return result;
  std::vector<int32_t> root_and_path{result.root};
  root_and_path.insert(root_and_path.end(), path.begin(), path.end());
  draft::HeadLogits(*loaded.drafter, *state, loaded.DraftKvIn(table), std::move(root_and_path), result.head_logits);
  return result;
}

}  // namespace hydrant::eval
