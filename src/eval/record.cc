// SPDX-License-Identifier: Apache-2.0
#include "eval/record.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/float_mode.h"
#include "eval/chunked_forward.h"
#include "hydrant/error.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "sampling/choose.h"
#include "tree/topology.h"

namespace hydrant::eval {
namespace {

int32_t BlocksOf(int32_t positions) { return (positions - 1) / kernels::kBlockPositions + 1; }

int32_t NumRows(const RecordedReply& reply) { return std::max(0, static_cast<int32_t>(reply.token_ids.size()) - 1); }

// Of prompt and reply, what is committed when the last row is drafted: not its root, nor the token behind that.
int32_t NumCommitted(const RecordedReply& reply) {
  return static_cast<int32_t>(reply.prompt_ids.size()) + std::max(0, NumRows(reply) - 1);
}

void CheckTokens(std::span<const int32_t> ids, int64_t vocab_size, const std::string& where) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    throw UserError(where + " has token " + std::to_string(id) + ", expected 0 to " + std::to_string(vocab_size - 1));
  }
}

void CheckReply(const RecordedReply& reply, const model::ModelConfig& config, const std::string& where) {
  for (const std::span<const int32_t> ids :
       {std::span(reply.prompt_ids), std::span(reply.token_ids), std::span(reply.past_end)}) {
    CheckTokens(ids, config.vocab_size, where);
  }
  const size_t length = reply.prompt_ids.size() + reply.token_ids.size();
  if (reply.prompt_ids.empty()) throw UserError(where + " has no prompt");
  if (length > static_cast<size_t>(config.max_positions) + 1) {
    throw UserError(where + " has " + std::to_string(length) + " tokens with its prompt, and the base model allows " +
                    std::to_string(config.max_positions));
  }
}

void CheckOptions(const RecordOptions& options, int32_t levels, int32_t max_depth) {
  const auto check = [](const char* name, int32_t value, int32_t most) {
    if (value >= 1 && value <= most) return;
    throw UserError(std::string("RecordOptions::") + name + " is " + std::to_string(value) + ", expected 1 to " +
                    std::to_string(most));
  };
  check("num_levels", levels, std::min(max_depth, tree::Topology::kMaxDepth));
  check("num_ranks", options.num_ranks, tree::kNoRank);
  check("side_by_side", options.side_by_side, INT32_MAX);
}

// One reply whose rows are being ranked.
struct Text {
  Text(kv::BlockPool* pool, const kernels::KernelTable* kernels, int32_t vocab_size, const RecordedReply& its)
      : reply(&its), table(pool), noise(kernels, its.seed, vocab_size) {}

  const RecordedReply* reply;
  std::vector<uint8_t>* ranks = nullptr;
  std::vector<int32_t> tokens;  // of the reply and past its end
  std::unique_ptr<draft::DraftState> state;
  kv::BlockTable table;        // of the drafter's own layers
  std::vector<Matrix> hidden;  // [wanted layers] of [reply's committed tokens, D]
  sampling::NoiseCache noise;
  int32_t row = 0;
  Matrix logits;  // [levels, V] of the row
  std::vector<float> scratch;
  std::vector<int32_t> candidates;

  // The root of the row and the true tokens behind it; what comes behind the last one is not asked for.
  std::span<const int32_t> Path(int32_t levels) const {
    const auto at = static_cast<size_t>(row);
    return std::span(tokens).subspan(at, std::min(static_cast<size_t>(levels), tokens.size() - 1 - at));
  }
};

// Drafts along the replies, row by row, side by side: a drafter's weights are read once for all of them.
class RankRecorder {
 public:
  RankRecorder(const RankContext& context, std::span<const RecordedReply> replies, const RecordOptions& options)
      : context_(context),
        replies_(replies),
        options_(options),
        decoder_(context.queue, context.base, context.drafter->WantedLayers()),
        base_pool_(
            {.layers = model::KvShapeFor(context.base->config, context.kv_type).layers, .dtype = context.kv_type},
            BlocksOf(Longest())),
        draft_pool_({.layers = context.drafter->KvLayers(), .dtype = context.kv_type}, DraftBlocks()),
        forward_(&decoder_, &base_pool_) {
    table_.num_levels = options.num_levels;
    table_.num_ranks = options.num_ranks;
    table_.replies.resize(replies.size());
    for (const RecordedReply& reply : replies) total_ += NumCommitted(reply) + NumRows(reply);
  }

  tree::RankTable Run() {
    const base::DefaultFloatMode mode;
    for (;;) {
      Tell();
      while (open_.size() < static_cast<size_t>(options_.side_by_side) && next_ < replies_.size()) Open(next_++);
      if (open_.empty()) return std::move(table_);
      Ask();
      context_.queue->pool->ParallelFor(static_cast<int64_t>(open_.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) Rank(*open_[static_cast<size_t>(i)]);
      });
      Advance();
    }
  }

 private:
  int32_t Longest() const {
    int32_t longest = 1;
    for (const RecordedReply& reply : replies_) longest = std::max(longest, NumCommitted(reply));
    return longest;
  }
  // Drafters keep their own keys and values behind the committed ones while they draft.
  int32_t DraftBlocks() const {
    const int64_t texts = std::min<int64_t>(options_.side_by_side, static_cast<int64_t>(replies_.size()));
    const int64_t blocks = texts * BlocksOf(Longest() + options_.num_levels + 1);
    return static_cast<int32_t>(std::clamp<int64_t>(blocks, 1, INT32_MAX));
  }

  // Reads a text with the base model, and commits its prompt. A reply without steps has no rows.
  void Open(size_t i) {
    const RecordedReply& reply = replies_[i];
    if (NumRows(reply) == 0) {
      done_ += NumCommitted(reply);
      return Tell();
    }
    const auto vocab = static_cast<int32_t>(context_.base->config.vocab_size);
    auto text = std::make_unique<Text>(&draft_pool_, context_.queue->table, vocab, reply);
    text->ranks = &table_.replies[i];
    text->tokens = reply.token_ids;
    text->tokens.insert(text->tokens.end(), reply.past_end.begin(), reply.past_end.end());
    text->state = context_.drafter->NewState({});
    text->hidden.resize(context_.drafter->WantedLayers().size());
    std::vector<int32_t> committed = reply.prompt_ids;
    committed.insert(committed.end(), reply.token_ids.begin(), reply.token_ids.begin() + (NumRows(reply) - 1));
    kv::BlockTable table(&base_pool_);
    const auto length = static_cast<int32_t>(committed.size());
    const bool reserved = table.Reserve(length);
    HYDRANT_CHECK(reserved);
    forward_.Run(committed, table, context_.chunk, /*first_wanted=*/length,
                 [&](int32_t first, int32_t count, const model::ForwardOutput& output) {
                   TakeChunk(*text, first, count, output);
                   done_ += count;
                   Tell();
                 });
    open_.push_back(std::move(text));
  }

  // Commits the prompt's rows, and keeps the hidden states of the reply's for later.
  void TakeChunk(Text& text, int32_t first, int32_t count, const model::ForwardOutput& output) {
    const auto prompt = static_cast<int32_t>(text.reply->prompt_ids.size());
    const int32_t of_prompt = std::clamp(prompt - first, 0, count);
    std::vector<kernels::ConstRows> hidden;
    for (size_t i = 0; i < text.hidden.size(); ++i) {
      hidden.push_back(kernels::ConstRows(output.HiddenOf(i)).Part(0, of_prompt));
      const Matrix& from = output.HiddenOf(i);
      Matrix& kept = text.hidden[i];
      if (first == 0) kept.Resize(NumRows(*text.reply) - 1, from.cols());
      for (int32_t r = of_prompt; r < count; ++r) std::copy_n(from.row(r), from.cols(), kept.row(first + r - prompt));
    }
    if (of_prompt == 0) return;
    const std::span<const int32_t> tokens(text.reply->prompt_ids);
    const draft::CommitInput input =
        CommitOf(text, tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(of_prompt)), hidden, true);
    context_.drafter->Commit(std::span(&input, 1));
  }

  static draft::CommitInput CommitOf(Text& text, std::span<const int32_t> tokens,
                                     std::span<const kernels::ConstRows> hidden, bool is_prompt) {
    const auto count = static_cast<int32_t>(tokens.size());
    const bool reserved = text.table.Reserve(text.table.length() + count);
    HYDRANT_CHECK(reserved);
    text.table.Append(count);
    return {.state = text.state.get(),
            .kv = {.table = &text.table},
            .tokens = tokens,
            .hidden = hidden,
            .is_prompt = is_prompt};
  }

  void Ask() {
    std::vector<draft::AlongInput> inputs;
    for (const std::unique_ptr<Text>& text : open_) {
      inputs.push_back({.state = text->state.get(),
                        .kv = {.table = &text->table},
                        .tokens = text->Path(options_.num_levels),
                        .logits = &text->logits});
    }
    context_.drafter->LogitsAlong(inputs);
    if (open_.front()->logits.rows() > 0) return;
    throw UserError(std::string("'") + context_.drafter->name() + "' ranks no tokens, so there is nothing to record",
                    "name one folder of heads, or of a draft model");
  }

  // As the drafter ranks its candidates.
  void Rank(Text& text) const {
    const auto levels = static_cast<size_t>(options_.num_levels), row = static_cast<size_t>(text.row);
    const size_t begin = text.ranks->size();
    text.ranks->resize(begin + levels, tree::kNoRank);
    SamplingOptions sampling = options_.sampling;
    sampling.seed = text.reply->seed;
    const std::span<const int32_t> tokens(text.tokens);
    HYDRANT_CHECK(row + static_cast<size_t>(text.logits.rows()) < tokens.size());
    const bool by_path = context_.drafter->RanksByPath();
    for (size_t d = 0; d < static_cast<size_t>(text.logits.rows()); ++d) {
      const sampling::TokenHistory history{.prompt = text.reply->prompt_ids,
                                           .output = tokens.first(row + 1),
                                           .path = tokens.subspan(row + 1, by_path ? d : 0)};
      sampling::RankCandidates(std::as_const(text.logits).row_span(static_cast<int64_t>(d)), sampling,
                               /*coupled=*/true, history, text.noise, static_cast<int64_t>(row + 1 + d),
                               options_.num_ranks, text.scratch, text.candidates);
      const auto found = std::ranges::find(text.candidates, tokens[row + 1 + d]);
      if (found == text.candidates.end()) break;
      (*text.ranks)[begin + d] = static_cast<uint8_t>(found - text.candidates.begin());
    }
    text.noise.Forget(static_cast<int64_t>(row) + 2);
  }

  // Commits the roots of this row; the next tokens are the roots of the next one.
  void Advance() {
    for (const std::unique_ptr<Text>& text : open_) ++text->row;
    done_ += static_cast<int64_t>(open_.size());
    std::erase_if(open_, [](const auto& text) { return text->row == NumRows(*text->reply); });
    std::vector<draft::CommitInput> commits;
    std::vector<std::vector<kernels::ConstRows>> hidden(open_.size());
    for (size_t i = 0; i < open_.size(); ++i) {
      Text& text = *open_[i];
      const int32_t root = text.row - 1;
      for (const Matrix& layer : text.hidden) hidden[i].push_back(kernels::ConstRows(layer).Part(root, 1));
      commits.push_back(CommitOf(text, std::span<const int32_t>(text.tokens).subspan(static_cast<size_t>(root), 1),
                                 hidden[i], false));
    }
    if (!commits.empty()) context_.drafter->Commit(commits);
  }

  void Tell() const {
    if (options_.progress)
      options_.progress(static_cast<double>(done_) / static_cast<double>(std::max(total_, int64_t{1})));
  }

  RankContext context_;
  std::span<const RecordedReply> replies_;
  const RecordOptions& options_;
  model::Decoder decoder_;
  kv::BlockPool base_pool_, draft_pool_;  // base_pool_: of one text at a time
  ChunkedForward forward_;
  tree::RankTable table_;
  std::vector<std::unique_ptr<Text>> open_;
  size_t next_ = 0;
  int64_t total_ = 0, done_ = 0;  // rows of the base model and of the heads
};

}  // namespace

RankContext RankContextOf(load::LoadedModel& loaded) {
  if (!loaded.drafter) throw load::NeedsHeads("recording ranks");
  return {.queue = &loaded.queue,
          .base = &loaded.weights,
          .drafter = loaded.drafter.get(),
          .kv_type = loaded.kv_shape.dtype,
          .chunk = loaded.options.prefill_chunk};
}

tree::RankTable RecordRanks(const RankContext& context, std::span<const RecordedReply> replies,
                            const RecordOptions& options) {
  RecordOptions complete = options;
  if (complete.num_levels == 0) complete.num_levels = context.drafter->usual_depth();
  CheckOptions(complete, complete.num_levels, context.drafter->max_depth());
  for (size_t i = 0; i < replies.size(); ++i)
    CheckReply(replies[i], context.base->config, "reply " + std::to_string(i));
  return RankRecorder(context, replies, complete).Run();
}

Recording Record(load::LoadedModel& loaded, std::span<const std::vector<int32_t>> prompts, RecordOptions options) {
  const RankContext context = RankContextOf(loaded);
  if (options.num_levels == 0) options.num_levels = context.drafter->usual_depth();
  CheckOptions(options, options.num_levels, context.drafter->max_depth());
  options.past_end = options.num_levels - 1;
  const std::function<void(double)> progress = options.progress;
  constexpr double kOfReplies = 0.75;  // of the time
  if (progress) options.progress = [&](double share) { progress(kOfReplies * share); };
  Recording recording;
  recording.replies = RecordReplies(loaded, prompts, options);
  if (progress) options.progress = [&](double share) { progress(kOfReplies + (1 - kOfReplies) * share); };
  recording.ranks = RecordRanks(context, recording.replies, options);
  return recording;
}

}  // namespace hydrant::eval
