// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/drafting_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "cli/flags/engine_flags.h"
#include "cli/flags/values.h"
#include "tokenizer/chat/chat_template.h"

namespace hydrant::cli {
namespace {

constexpr std::array<std::string_view, 2> kLookupRules = {"last", "first"};
constexpr std::array<std::string_view, 3> kRules = {"exact", "typical", "rejection"};
constexpr std::array<std::string_view, 2> kRoots = {"sampled", "argmax"};
constexpr std::array<std::string_view, 2> kCandidates = {"coupled", "plain"};

void AddLookupFlags(FlagSet& flags, RunOptions& options, const DraftingHelp& help) {
  LookupOptions& lookup = options.request.lookup;
  flags.Repeated(
      "--lookup", "N",
      [&options](const std::string& value) {
        options.lookups.push_back(static_cast<int32_t>(ParseInteger("--lookup", value, 0, 64)));
      },
      "Where the last tokens stood before in prompt or reply, draft up to N tokens (0 to 64) that followed them, with "
      "or without heads (default 0: never" +
          help.other + ")");
  flags.Value(
      "--lookup-rule", "RULE",
      [&lookup](const std::string& value) {
        const bool first = ParseChoice("--lookup-rule", value, kLookupRules) == "first";
        lookup.rule = first ? LookupRule::kFirst : LookupRule::kLast;
      },
      "Of the places where most tokens agree, last: the latest, and as many tokens as agree there; first: the "
      "earliest, and N tokens, as transformers' prompt lookup (default last)");
  flags.Value(
      "--lookup-min", "N",
      [&lookup](const std::string& value) {
        lookup.min_match = static_cast<int32_t>(ParseInteger("--lookup-min", value, 1, 64));
      },
      "How many last tokens must have stood together before (default 3; with --lookup-rule first 1)");
  flags.Value(
      "--lookup-max-match", "N",
      [&lookup](const std::string& value) {
        lookup.max_match = static_cast<int32_t>(ParseInteger("--lookup-max-match", value, 1, 64));
      },
      "How many last tokens are compared at most (default 64; with --lookup-rule first 3)");
}

void CheckLookup(const FlagSet& flags, const RunOptions& options) {
  for (const char* flag : {"--lookup-rule", "--lookup-min", "--lookup-max-match"}) {
    if (flags.Given(flag) && !flags.Given("--lookup")) {
      throw UserError(fmt::format("{} is for lookups only", flag), "add --lookup N, or leave it out");
    }
  }
  const LookupOptions& lookup = options.request.lookup;
  if (LeastMatch(lookup) > MostMatch(lookup)) {
    throw UserError(fmt::format("--lookup-max-match is {}, expected at least --lookup-min, {}", lookup.max_match,
                                lookup.min_match));
  }
  const bool looks_up = std::ranges::any_of(options.lookups, [](int32_t tokens) { return tokens > 0; });
  if (const AcceptRule rule = options.request.accept.rule; looks_up && rule != AcceptRule::kExact) {
    throw UserError(
        fmt::format("--lookup is for the exact rule: with --accept {} the text would depend on it", NameOf(rule)),
        fmt::format("leave out --lookup or --accept {}", NameOf(rule)));
  }
}

constexpr const char* kChainFlag = "--draft-depth";
constexpr const char* kDynamicFlags[] = {"--draft-nodes", "--draft-width", kChainFlag};

void AddDynamicTreeFlags(FlagSet& flags, DynamicTreeOptions& tree) {
  const auto add = [&](const char* flag, int32_t most, int32_t* target, const std::string& help) {
    flags.Value(
        flag, "N",
        [=](const std::string& value) { *target = static_cast<int32_t>(ParseInteger(flag, value, 1, most)); }, help);
  };
  add(kDynamicFlags[0], 511, &tree.nodes,
      "Drafted tokens of a dynamic tree, the root not counted (default 59: EAGLE's total_token 60)");
  add(kChainFlag, 64, &tree.depth,
      "Levels of a dynamic tree (default 8: EAGLE's depth 7); without --tree, a chain of N tokens");
  add("--draft-width", 64, &tree.width,
      "Tokens of each level that a dynamic tree goes on from, and candidates for each of them (default 10: EAGLE's "
      "top_k 10)");
}

constexpr const char* kBeamFlags[] = {"--beam-width", "--beam-length"};

void AddBeamFlags(FlagSet& flags, BeamOptions& beam) {
  const auto add = [&](const char* flag, int32_t least, int32_t most, int32_t* target, const std::string& help) {
    flags.Value(
        flag, "N",
        [=](const std::string& value) { *target = static_cast<int32_t>(ParseInteger(flag, value, least, most)); },
        help);
  };
  add(kBeamFlags[0], 1, 50, &beam.width, "Beams of a tree of beams (default 10); without --tree it says --tree beam");
  add(kBeamFlags[1], 2, 65, &beam.length,
      "Tokens of a beam, of which the first is there already (default 4: three are drafted); likewise");
}

// Flags of one kind of grown trees need a --tree of that kind.
void CheckGrownTree(const FlagSet& flags, const RunOptions& options, const char* tree,
                    std::span<const char* const> its_flags) {
  if (std::ranges::find(options.trees, tree) != options.trees.end()) return;
  for (const char* flag : its_flags) {
    if (!flags.Given(flag)) continue;
    const bool is_chain = flag == std::string_view(kChainFlag);
    throw UserError(fmt::format("{} is for {} trees{}", flag, tree,
                                is_chain ? ", or for a chain where no --tree is given" : " only"),
                    is_chain ? "leave out one of the two" : fmt::format("add --tree {}, or leave it out", tree));
  }
}

// --draft-depth alone.
bool NamesChain(const FlagSet& flags, const RunOptions& options) {
  return flags.Given(kChainFlag) && options.trees.empty() && !flags.Given("--draft-nodes") &&
         !flags.Given("--draft-width");
}

// Before a model is loaded; the request is checked again.
void CheckBeam(const BeamOptions& beam) {
  constexpr int32_t kMostDrafts = 511;
  const int32_t drafts = beam.width * (beam.length - 1);
  if (drafts <= kMostDrafts) return;
  throw UserError(fmt::format("{} beams of {} tokens may be {} drafted tokens, expected at most {}", beam.width,
                              beam.length, drafts, kMostDrafts),
                  "lower --beam-width or --beam-length");
}

}  // namespace

void AddDraftingFlags(FlagSet& flags, RunOptions& options, const DraftingHelp& help) {
  flags.Repeated(
      "--tree", "TREE", [&options](const std::string& value) { options.trees.push_back(value); },
      "Draft tree: auto (chosen while text is generated, by what steps take and give), dynamic (grown from what the "
      "drafts say) and beam (searched in beams) for drafters that go level by level, a preset ('hydrant tree list'), a "
      "JSON file or a list of paths (default auto" +
          help.tree + ")");
  AddTreeMemoryFlag(flags, options.engine);
  AddDynamicTreeFlags(flags, options.request.dynamic);
  AddBeamFlags(flags, options.request.beam);
  flags.Repeated(
      "--draft-p-min", "X",
      [&options](const std::string& value) {
        options.draft_p_mins.push_back(ParseFloat("--draft-p-min", value, {.min = 0, .max = 1}));
      },
      "Leave out drafted tokens whose probability is below X by their head (default 0: whole trees" + help.other + ")");
  AddLookupFlags(flags, options, help);
}

void AddAcceptFlags(FlagSet& flags, AcceptOptions& accept) {
  flags.Group("Acceptance of drafts");
  flags.Value(
      "--accept", "RULE",
      [&accept](const std::string& value) {
        const std::string rule = ParseChoice("--accept", value, kRules);
        accept.rule = rule == "typical"     ? AcceptRule::kTypical
                      : rule == "rejection" ? AcceptRule::kRejection
                                            : AcceptRule::kExact;
      },
      "exact: the text is the model's own; typical: faster, and the text may differ; rejection: drafts are drawn, and "
      "the text is another one that the model might have drawn (default exact)");
  flags.Value(
      "--epsilon", "X",
      [&accept](const std::string& value) { accept.epsilon = ParseFloat("--epsilon", value, {.min = 0, .max = 1}); },
      "Typical: a token of at least this probability is kept (default 0.09)");
  flags.Value(
      "--alpha", "X",
      [&accept](const std::string& value) { accept.alpha = ParseFloat("--alpha", value, {.min = 0, .max = 100}); },
      "Typical: or of X * exp(-entropy), whichever is less (default 0.3; sqrt(epsilon) beside --epsilon alone)");
  flags.Value(
      "--root", "HOW",
      [&accept](const std::string& value) {
        accept.root = ParseChoice("--root", value, kRoots) == "argmax" ? RootChoice::kArgmax : RootChoice::kSampled;
      },
      "Typical: the token after the kept ones is sampled or argmax, the most likely one (default sampled)");
  flags.Value(
      "--candidates", "HOW",
      [&accept](const std::string& value) {
        accept.candidates = ParseChoice("--candidates", value, kCandidates) == "plain" ? CandidateNoise::kPlain
                                                                                       : CandidateNoise::kCoupled;
      },
      "When sampling, drafted tokens are drawn with the model's own random numbers (coupled), or are the most likely "
      "ones "
      "(plain) (default coupled; plain under typical acceptance)");
}

void RefuseWithoutDrafter(const FlagSet& flags, const std::string& hint) {
  for (const char* flag : {"--tree", "--beam-width", "--beam-length", "--draft-nodes", "--draft-depth", "--draft-width",
                           "--draft-p-min", "--head-weights", "--draft-vocab", "--draft-vocab-text"}) {
    if (flags.Given(flag)) throw UserError(fmt::format("{} needs draft heads", flag), hint);
  }
}

void CheckOneOfEach(const RunOptions& options, bool may_have_trees) {
  const auto check = [](const char* flag, size_t count) {
    if (count > 1) throw UserError(fmt::format("{} is given several times, and this command takes one", flag));
  };
  if (!may_have_trees) check("--tree", options.trees.size());
  check("--draft-p-min", options.draft_p_mins.size());
  check("--lookup", options.lookups.size());
}

void CheckDrafting(const FlagSet& flags, RunOptions& options) {
  const bool names_beams = std::ranges::any_of(kBeamFlags, [&](const char* flag) { return flags.Given(flag); });
  if (names_beams && options.trees.empty()) options.trees.push_back("beam");
  if (options.engine.draft.empty() && !options.engine.model.empty()) RefuseWithoutDrafter(flags, "give --draft DIR");
  if (NamesChain(flags, options)) {
    options.request.draft_depth = options.request.dynamic.depth;
  } else {
    CheckGrownTree(flags, options, "dynamic", kDynamicFlags);
  }
  CheckGrownTree(flags, options, "beam", kBeamFlags);
  CheckBeam(options.request.beam);
  CheckLookup(flags, options);
  if (!options.trees.empty()) options.engine.tree = options.trees.front();
  if (!options.lookups.empty()) options.request.lookup.max_tokens = options.lookups.front();
  if (!options.draft_p_mins.empty()) options.request.draft_p_min = options.draft_p_mins.front();
}

void CheckAcceptance(const FlagSet& flags, RunOptions& options) {
  AcceptOptions& accept = options.request.accept;
  for (const char* flag : {"--epsilon", "--alpha", "--root"}) {
    if (flags.Given(flag) && accept.rule != AcceptRule::kTypical) {
      throw UserError(fmt::format("{} is for typical acceptance only", flag), "add --accept typical, or leave it out");
    }
  }
  if (flags.Given("--epsilon") && !flags.Given("--alpha")) accept.alpha = std::sqrt(accept.epsilon);
  if (accept.rule == AcceptRule::kRejection && flags.Given("--draft-p-min")) {
    throw UserError(
        "--draft-p-min is for the other rules: with --accept rejection it would change what texts are likely",
        "leave it out, or shorten the chain with --draft-depth");
  }
  if (!options.compare_plain) return;
  if (options.engine.draft.empty() && !options.engine.model.empty() && !flags.Given("--lookup")) {
    throw UserError("--compare-plain needs drafts", "give --draft DIR, or --lookup N");
  }
  if (accept.rule != AcceptRule::kExact) {
    throw UserError(fmt::format("--compare-plain checks that both texts are equal, which --accept {} does not promise",
                                NameOf(accept.rule)),
                    fmt::format("leave out --accept {}", NameOf(accept.rule)));
  }
}

void AddTemplateFlag(FlagSet& flags, RunOptions& options) {
  flags.Value(
      "--template", "NAME",
      [&options](const std::string& value) {
        const auto names = tokenizer::TemplateNames();
        std::vector<std::string_view> choices(names.begin(), names.end());
        choices.insert(choices.end(), {"none", "auto"});
        options.template_name = ParseChoice("--template", value, choices);
      },
      "Chat template by name; none: the text is continued as it is; auto: the model's own, else none (default auto)");
}

}  // namespace hydrant::cli
