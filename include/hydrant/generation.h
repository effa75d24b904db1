// SPDX-License-Identifier: Apache-2.0
// What a user asks of one generation, and what comes back. Plain data.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant {

// How a token is drawn. Order of the processors: repetition penalty, frequency and presence penalty, temperature,
// top-k, top-p, min-p (docs/algorithms/sampling.md). At temperature 0 the most likely token is taken, and top_k, top_p,
// min_p and seed change nothing: whoever wants a sampled text sets the temperature. (`hydrant run` does so itself where
// one of the three is given alone.)
struct SamplingOptions {
  float temperature = 0.0F;         // 0 = greedy
  int32_t top_k = 0;                // 0 = off; keeps every token equal to the k-th
  float top_p = 1.0F;               // 1 = off; smallest set of most likely tokens whose probability reaches top_p
  float min_p = 0.0F;               // 0 = off; keeps tokens with probability >= min_p * the largest
  float repetition_penalty = 1.0F;  // 1 = off; over prompt and output, each distinct token once
  float presence_penalty = 0.0F;    // output only, OpenAI's definition
  float frequency_penalty = 0.0F;   // output only, OpenAI's definition
  uint64_t seed = 0;

  bool operator==(const SamplingOptions&) const = default;
};

enum class AcceptRule : uint8_t {
  kExact,      // output equals plain decoding, token for token, greedy and sampled
  kTypical,    // Medusa's and Hydra's typical acceptance: lossy by design. At temperature 0 it is the exact rule
  kRejection,  // drafts are drawn at random, and kept or drawn again so that output is distributed as plain decoding's;
               // the text is another one. At temperature 0 it is the exact rule (docs/algorithms/rejection.md)
};

constexpr const char* NameOf(AcceptRule rule) {
  switch (rule) {
    case AcceptRule::kExact: return "exact";
    case AcceptRule::kTypical: return "typical";
    case AcceptRule::kRejection: return "rejection";
  }
  return "?";
}

// The token after the accepted path, typical rule only.
enum class RootChoice : uint8_t { kSampled, kArgmax };
// Do drafts see the verifier's noise (docs/algorithms/sampling.md)? kAuto: under the exact rule, where the match is
// with a token drawn with that noise; not under the typical one, which has no such draw. The rejection rule takes kAuto
// alone: it needs drafts with noise of their own.
enum class CandidateNoise : uint8_t { kAuto, kCoupled, kPlain };

struct AcceptOptions {
  AcceptRule rule = AcceptRule::kExact;
  float epsilon = 0.09F;  // hard limit of the typical rule
  float alpha = 0.3F;     // entropy factor of the typical rule
  RootChoice root = RootChoice::kSampled;
  CandidateNoise candidates = CandidateNoise::kAuto;

  bool operator==(const AcceptOptions&) const = default;
};

constexpr bool DraftsSeeNoise(const AcceptOptions& accept) {
  if (accept.candidates == CandidateNoise::kAuto) return accept.rule == AcceptRule::kExact;
  return accept.candidates == CandidateNoise::kCoupled;
}

struct StopOptions {
  int32_t max_tokens = 256;  // 0: the prompt is computed, and no token is chosen
  bool ignore_eos = false;
  std::vector<std::string> stop;  // stop strings, cut from the text; need a tokenizer
  // Tokens that end the reply beside EngineInfo::eos_token_ids, such as Engine::EndOfReply of the prompt's template.
  std::vector<int32_t> eos_token_ids = {};

  bool operator==(const StopOptions&) const = default;
};

// Which of the places where the last tokens stood before is drafted from (docs/algorithms/lookup.md).
enum class LookupRule : uint8_t {
  kLast,   // where most tokens agree, of equal places the latest; a chain is no longer than what agrees there
  kFirst,  // transformers' prompt lookup: where most agree, the earliest; a chain has max_tokens where the text has
           // them
};

constexpr const char* NameOf(LookupRule rule) { return rule == LookupRule::kFirst ? "first" : "last"; }

// Drafts from the text itself: what followed its last tokens where they stood before, in prompt or reply, as a chain in
// place of the heads' tree. Costs no weights; pays where text repeats itself. Works without heads too.
struct LookupOptions {
  int32_t max_tokens = 0;  // most tokens of a chain; 0 = off
  int32_t min_match = 0;   // last tokens that must have stood together before; 0: LeastMatch
  LookupRule rule = LookupRule::kLast;
  int32_t max_match = 0;  // last tokens that are compared; 0: MostMatch

  bool operator==(const LookupOptions&) const = default;
};

// The longest run of last tokens that is compared. By itself 64, or transformers' 3, which a longer min_match raises.
constexpr int32_t MostMatch(const LookupOptions& lookup) {
  if (lookup.max_match > 0) return lookup.max_match;
  if (lookup.rule == LookupRule::kLast) return 64;
  return lookup.min_match > 3 ? lookup.min_match : 3;
}
// The shortest one. By itself 3, which a shorter max_match lowers, or transformers' 1.
constexpr int32_t LeastMatch(const LookupOptions& lookup) {
  if (lookup.min_match > 0) return lookup.min_match;
  if (lookup.rule == LookupRule::kFirst) return 1;
  return MostMatch(lookup) < 3 ? MostMatch(lookup) : 3;
}

// A tree that follows what the drafts say, as EAGLE-2 grows it: the most likely paths by the product of their tokens'
// probabilities. For drafters that go level by level (EAGLE heads, draft models).
struct DynamicTreeOptions {
  int32_t nodes = 59;  // drafted nodes at most; the root is not counted (EAGLE's total_token - 1)
  int32_t depth = 8;   // levels (EAGLE's depth + 1)
  int32_t width = 10;  // nodes that a level expands, and candidates of each (EAGLE's top_k)

  bool operator==(const DynamicTreeOptions&) const = default;
};

// A tree of beams, as ReDrafter searches it: each level keeps the `width` likeliest paths of all that go on from those
// of the level before. The paths that are left in the end are the tree. For drafters that go level by level.
struct BeamOptions {
  int32_t width = 10;
  int32_t length = 4;  // of a path in tokens, the root included: one more than levels are drafted

  bool operator==(const BeamOptions&) const = default;
};

// Where a token of a reply came from.
enum class DraftSource : uint8_t {
  kBase,        // the base model's own choice
  kHeads,       // draft heads
  kLookup,      // LookupOptions
  kPrediction,  // GenerationRequest::prediction_ids
  kGiven,       // GenerationRequest::draft_ids
};

constexpr const char* NameOf(DraftSource source) {
  switch (source) {
    case DraftSource::kBase: return "base";
    case DraftSource::kHeads: return "heads";
    case DraftSource::kLookup: return "lookup";
    case DraftSource::kPrediction: return "prediction";
    case DraftSource::kGiven: return "given";
  }
  return "?";
}

struct GenerationRequest {
  std::vector<int32_t> prompt_ids;  // used exactly as given
  SamplingOptions sampling;
  AcceptOptions accept;
  StopOptions stop;
  bool use_drafter = true;  // false = plain decoding even where heads are loaded, or lookup is on
  // Drafted tokens that their head gives less are left out of the tree, and nothing is drafted below a path that the
  // heads together give less; 0 = off. Under the exact rule this changes the speed only.
  float draft_p_min = 0.0F;
  LookupOptions lookup;  // exact rule only: it changes the speed, never the text
  // Preset name, JSON file, literal list, "dynamic" or "beam": grown from what the drafts say, or "auto": chosen step
  // by step, by what steps take and give on this machine (docs/algorithms/tree_auto.md). Empty: EngineOptions::tree.
  // Exact rule: it changes the speed, never the text.
  std::string tree = {};
  DynamicTreeOptions dynamic = {};  // of the tree "dynamic"
  BeamOptions beam = {};            // of the tree "beam"
  // Where `tree` is empty: > 0: a chain of so many tokens, unless EngineOptions::tree is "dynamic". 0: as
  // EngineOptions::tree says, or where that is empty, too, under the rejection rule a chain of 4, or as many as the
  // heads have.
  int32_t draft_depth = 0;
  int32_t max_nodes = 0;  // drafted tokens of a step, at most; 0: as many as the tree has
  // Requests of one scope use each other's keys and values where their texts begin alike, and compute only what is new.
  // How long a prompt takes then tells what others of the scope have asked before. Empty: a scope of its own.
  std::string cache_scope = {};
  // What the reply may say, or nearly so: drafted step by step, from where the reply is in it, before lookups and
  // heads. The place is found again after a difference. Exact rule only: it changes the speed, never the text.
  std::vector<int32_t> prediction_ids = {};
  // The reply's first tokens, as somebody else has drafted them: a chain that the first step verifies, behind the token
  // that the prompt gives. They begin with that token. Exact rule only.
  std::vector<int32_t> draft_ids = {};
  // For each token of the reply its log probability by the base model's own logits, before penalties, temperature and
  // filters, beside so many most likely tokens, 0 to 64; -1: none.
  int32_t num_logprobs = -1;
  // The same for the prompt's own tokens but the first. All of the prompt is computed then, whatever the cache has.
  bool score_prompt = false;
};

struct Logprob {
  int32_t token_id = 0;
  float value = 0;  // natural logarithm
};

// At one place of the reply.
struct TokenLogprobs {
  float chosen = 0;          // of the token that stands there
  std::vector<Logprob> top;  // most likely first
};

// A request that was submitted. Later ones have larger numbers.
using RequestId = uint64_t;

enum class FinishReason : uint8_t {
  kEos,        // an end-of-sequence id; it is the last of token_ids
  kStop,       // a stop string
  kLength,     // max_tokens
  kContext,    // prompt and reply together reach max_position_embeddings
  kCancelled,  // the caller or its callback asked to stop
  kError,      // GenerationResult::error says what
};

constexpr const char* NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos: return "eos";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kError: return "error";
  }
  return "?";
}

// Wall time by phase, in milliseconds, summed over the generation.
struct PhaseTimes {
  double prefill = 0;  // the prompt's own forwards
  double draft = 0;    // heads, and the prefix layer over newly committed rows
  double forward = 0;  // base model in the steps
  double verify = 0;   // choosing tokens and walking the tree
  double commit = 0;   // KV copies, stop rules, text
};

// A tree, and what its steps were like.
struct TreeUse {
  std::string name;            // preset name, file name, "custom", or auto's own such as "chain of 2"; "nothing"
  std::string choices = "[]";  // its paths as a JSON list
  int32_t nodes = 0;           // drafted nodes, root not counted
  int64_t steps = 0;           // of this request
  double tokens_per_step = 1;  // auto only: what a step is held to give, and to take, by all steps so far
  double milliseconds = 0;
};

// Which tree a request's steps drafted.
struct TreeReport {
  bool is_auto = false;        // chosen step by step
  TreeUse chosen;              // auto: the tree that is held to be fastest at the end
  int32_t most_nodes = 0;      // drafted nodes of the tree; auto: of the largest one
  std::vector<TreeUse> tried;  // auto: those that a step was taken with, now or before; "nothing" (plain) among them
  std::string why;             // auto: in one sentence
  std::string problem;         // auto: why what it has learned is not kept; empty: it is, or shall not be
};

struct GenerationResult {
  std::vector<int32_t> token_ids;  // what the user gets, after the cut; an EOS that ended it included
  std::string text;                // stop string cut, EOS left out; empty without a tokenizer
  bool has_text = false;
  FinishReason finish_reason = FinishReason::kLength;
  std::vector<int32_t> num_emitted;    // one per step, as verified: drafted tokens accepted + 1, before any cut
  int64_t num_drafted = 0;             // nodes of all steps' trees, the roots not counted
  int64_t num_lookup_steps = 0;        // steps whose tree was looked up in the text
  int64_t num_looked_up = 0;           // of num_drafted: nodes of those
  int64_t num_looked_up_accepted = 0;  // of num_looked_up: tokens of the reply
  std::vector<int32_t> token_depth;    // one per token id: depth in the tree that drafted it, 0 = the base model's own
  std::vector<DraftSource> token_source;  // one per token id
  std::vector<TokenLogprobs> logprobs;    // one per token id, where asked for
  // One for each token of the prompt but the first, where GenerationRequest::score_prompt asks for them.
  std::vector<TokenLogprobs> prompt_logprobs;
  // Drafted tokens of GenerationRequest::prediction_ids and draft_ids, and those of the reply among them.
  int64_t num_predicted = 0, num_predicted_accepted = 0;
  int64_t num_given = 0, num_given_accepted = 0;
  // Per depth d = 1..: steps whose tree had a node at that depth, and steps that gave the reply a token from there.
  std::vector<int64_t> depth_offered;
  std::vector<int64_t> depth_accepted;
  TreeReport tree;
  PhaseTimes phase_ms;
  int32_t num_reused = 0;     // tokens of the prompt whose keys and values were there (GenerationRequest::cache_scope)
  int32_t num_preempted = 0;  // how often its keys and values were given up and computed anew
  std::exception_ptr error = nullptr;  // finish_reason kError: a UserError, or what a callback threw

  // What the user gets of a step: drafted tokens that the base model accepts after the reply's end do not count, nor
  // does the first token, which the prompt's forward gives. Plain decoding: 1, also where there was no step.
  double tokens_per_step() const {
    if (num_emitted.empty()) return 1;
    return (static_cast<double>(token_ids.size()) - 1) / static_cast<double>(num_emitted.size());
  }
  // Drafted tokens of the reply.
  int64_t num_accepted() const {
    int64_t sum = 0;
    for (const int64_t accepted : depth_accepted) sum += accepted;
    return sum;
  }

  double seconds() const {
    return (phase_ms.prefill + phase_ms.draft + phase_ms.forward + phase_ms.verify + phase_ms.commit) / 1000;
  }
};

// The tree of one step, and what became of it. N nodes, parents before children.
struct StepTree {
  std::span<const int32_t> parents;         // [N], the root's is -1
  std::span<const int32_t> tokens;          // [N], the root's is a token of the reply already
  std::span<const int32_t> accepted;        // nodes in order, the root left out
  DraftSource source = DraftSource::kBase;  // kBase: nothing was drafted
};

// Called after each step, and between the parts of a long prompt, with the tokens that are ready since the last call:
// none yet where a stop string may have begun. Return false to stop; tokens held back then are in the result only.
struct Emission {
  std::span<const int32_t> token_ids;
  std::span<const int32_t> token_depth;  // as GenerationResult::token_depth
  std::span<const DraftSource> token_source = {};
  std::span<const TokenLogprobs> logprobs = {};  // empty: not asked for
  std::span<const std::string> token_text;       // text of each token (held-back bytes arrive with a later one)
  std::string_view text;                         // all of them joined
  const StepTree* step = nullptr;                // the last one; null: none yet
};
using EmitCallback = std::function<bool(const Emission&)>;

// Who hears of a submitted request. Both are called within Engine::Step.
struct RequestCallbacks {
  EmitCallback on_emit = {};                                  // may be empty; what it throws ends the request
  std::function<void(GenerationResult result)> on_done = {};  // exactly once, after all others; what it throws is lost
};

}  // namespace hydrant
