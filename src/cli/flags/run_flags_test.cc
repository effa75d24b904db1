// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hydrant/error.h"

namespace hydrant::cli::run_flags_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunOptions Parsed(const std::vector<std::string>& args) { return ParseRunFlags(args).value(); }

std::string Refusal(const std::vector<std::string>& args) {
  try {
    ParseRunFlags(args);
  } catch (const UserError& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "accepted";
}

TEST(RunFlagsTest, DefaultsAreThoseOfTheDocumentation) {
  const RunOptions options = Parsed({});
  EXPECT_EQ(options.source, PromptSource::kNone);
  EXPECT_EQ(Parsed({"--prompt-file", "-"}).source, PromptSource::kStdin);
  EXPECT_EQ(options.template_name, "auto");
  EXPECT_EQ(options.engine.kv_type, "auto");
  EXPECT_EQ(options.engine.cpu_target, "auto");
  EXPECT_EQ(options.request.sampling, SamplingOptions());
  EXPECT_EQ(options.request.sampling.temperature, 0.0F);
  EXPECT_EQ(options.request.sampling.top_p, 1.0F);
  EXPECT_EQ(options.request.accept, AcceptOptions());
  EXPECT_EQ(options.request.accept.epsilon, 0.09F);
  EXPECT_EQ(options.request.accept.alpha, 0.3F);
  EXPECT_EQ(options.request.draft_p_min, 0.0F);
  EXPECT_EQ(options.request.lookup, LookupOptions());
}

TEST(RunFlagsTest, EveryFlagReachesItsSetting) {
  std::istringstream words(
      "--model M --draft D --tree chain --draft-p-min 0.25 --prompt Hi --system Hush --template vicuna --max-tokens 5 "
      "--temperature 0.8 "
      "--top-k 40 --top-p 0.9 --min-p 0.05 --repetition-penalty 1.1 --presence-penalty -0.5 --frequency-penalty 0.25 "
      "--seed 18446744073709551615 --stop a --stop b --ignore-eos --accept typical --epsilon 0.1 --alpha 0.2 "
      "--root argmax --candidates plain --threads 2 --cpu-target avx2 --kv-type bf16 --json --stats");
  const RunOptions options = Parsed({std::istream_iterator<std::string>(words), {}});
  EXPECT_EQ(options.engine.model, "M");
  EXPECT_EQ(options.engine.draft, "D");
  EXPECT_EQ(options.engine.tree, "chain");
  EXPECT_EQ(options.request.draft_p_min, 0.25F);
  EXPECT_EQ(options.engine.threads, 2);
  EXPECT_EQ(options.engine.cpu_target, "avx2");
  EXPECT_EQ(options.engine.kv_type, "bf16");
  EXPECT_EQ(options.source, PromptSource::kText);
  EXPECT_EQ(options.prompt, "Hi");
  EXPECT_EQ(options.system, "Hush");
  EXPECT_EQ(options.template_name, "vicuna");
  const SamplingOptions sampling = {.temperature = 0.8F,
                                    .top_k = 40,
                                    .top_p = 0.9F,
                                    .min_p = 0.05F,
                                    .repetition_penalty = 1.1F,
                                    .presence_penalty = -0.5F,
                                    .frequency_penalty = 0.25F,
                                    .seed = std::numeric_limits<uint64_t>::max()};
  EXPECT_EQ(options.request.sampling, sampling);
  const AcceptOptions accept = {.rule = AcceptRule::kTypical,
                                .epsilon = 0.1F,
                                .alpha = 0.2F,
                                .root = RootChoice::kArgmax,
                                .candidates = CandidateNoise::kPlain};
  EXPECT_EQ(options.request.accept, accept);
  EXPECT_EQ(options.request.stop.max_tokens, 5);
  EXPECT_TRUE(options.request.stop.ignore_eos);
  EXPECT_THAT(options.request.stop.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(options.json);
  EXPECT_TRUE(options.stats);
}

TEST(RunFlagsTest, BeamFlagsNameTheirTree) {
  for (const char* flag : {"--beam-width", "--beam-length"}) {
    const RunOptions options = Parsed({"--model", "M", "--draft", "D", "--prompt", "a", flag, "7"});
    EXPECT_EQ(options.engine.tree, "beam");
    EXPECT_EQ(options.request.beam.width, flag == std::string("--beam-width") ? 7 : 10);
    EXPECT_EQ(options.request.beam.length, flag == std::string("--beam-length") ? 7 : 4);
  }
  const RunOptions plain = Parsed({"--model", "M", "--draft", "D", "--prompt", "a"});
  EXPECT_EQ(plain.engine.tree, "");
}

TEST(RunFlagsTest, LookupsAreAChoiceAndNeedNoHeads) {
  const RunOptions one = Parsed({"--model", "M", "--lookup", "8", "--lookup-min", "2", "--compare-plain"});
  EXPECT_EQ(one.request.lookup, (LookupOptions{.max_tokens = 8, .min_match = 2}));
  EXPECT_FALSE(one.has_choice());
  EXPECT_TRUE(Parsed({"--lookup", "0", "--lookup", "8", "--compare-plain"}).has_choice());
  EXPECT_THAT(Refusal({"--lookup", "0", "--lookup", "8"}), HasSubstr("--lookup is given several times"));
  EXPECT_THAT(Refusal({"--lookup", "8", "--accept", "typical"}), HasSubstr("--lookup is for the exact rule"));
  EXPECT_EQ(Parsed({"--lookup", "0", "--accept", "typical"}).request.lookup.max_tokens, 0);
  for (const char* flag : {"--lookup-min", "--lookup-max-match"}) {
    EXPECT_THAT(Refusal({flag, "2"}), HasSubstr(std::string(flag) + " is for lookups only"));
  }
  EXPECT_THAT(Refusal({"--lookup-rule", "first"}), HasSubstr("--lookup-rule is for lookups only"));
}

TEST(RunFlagsTest, LookupsHaveRules) {
  EXPECT_EQ(Parsed({"--lookup", "8", "--lookup-rule", "first", "--lookup-max-match", "5"}).request.lookup,
            (LookupOptions{.max_tokens = 8, .rule = LookupRule::kFirst, .max_match = 5}));
  EXPECT_EQ(Parsed({"--lookup", "8", "--lookup-rule", "last"}).request.lookup, (LookupOptions{.max_tokens = 8}));
  EXPECT_THAT(Refusal({"--lookup", "8", "--lookup-rule", "frist"}), HasSubstr("did you mean first?"));
  EXPECT_THAT(Refusal({"--lookup", "8", "--lookup-min", "4", "--lookup-max-match", "3"}),
              HasSubstr("--lookup-max-match is 3, expected at least --lookup-min, 4"));
  EXPECT_THAT(Refusal({"--model", "M", "--compare-plain"}), HasSubstr("--compare-plain needs drafts"));
}

TEST(RunFlagsTest, EpsilonAloneGivesAlphaItsRoot) {
  const RunOptions options = Parsed({"--accept", "typical", "--epsilon", "0.16"});
  EXPECT_FLOAT_EQ(options.request.accept.alpha, 0.4F);
  EXPECT_EQ(Parsed({"--accept", "typical"}).request.accept.alpha, 0.3F);
}

TEST(RunFlagsTest, PromptIdsAreAList) {
  const RunOptions options = Parsed({"--prompt-ids", "[1, 306]"});
  EXPECT_EQ(options.source, PromptSource::kIds);
  EXPECT_THAT(options.request.prompt_ids, ElementsAre(1, 306));
}

struct Bad {
  const char* flag;
  const char* value;
};

TEST(RunFlagsTest, ValuesOutOfRangeAreRefusedByFlagAndRange) {
  for (const Bad& bad : std::initializer_list<Bad>{{"--temperature", "nan"},
                                                   {"--temperature", "-1"},
                                                   {"--temperature", "inf"},
                                                   {"--temperature", "hot"},
                                                   {"--top-p", "2"},
                                                   {"--top-p", "0"},
                                                   {"--top-k", "-1"},
                                                   {"--min-p", "1.5"},
                                                   {"--repetition-penalty", "0"},
                                                   {"--presence-penalty", "nan"},
                                                   {"--frequency-penalty", "1e9"},
                                                   {"--seed", "-1"},
                                                   {"--seed", "18446744073709551616"},
                                                   {"--max-tokens", "0"},
                                                   {"--max-tokens", "99999999999"},
                                                   {"--threads", "-1"},
                                                   {"--kv-type", "int8"},
                                                   {"--accept", "always"},
                                                   {"--root", "none"},
                                                   {"--candidates", "both"},
                                                   {"--color", "blue"},
                                                   {"--epsilon", "2"},
                                                   {"--draft-p-min", "1.5"},
                                                   {"--lookup", "65"},
                                                   {"--lookup-min", "0"},
                                                   {"--lookup-max-match", "0"},
                                                   {"--lookup-max-match", "65"},
                                                   {"--alpha", "-1"}}) {
    const std::string refusal = Refusal({bad.flag, bad.value});
    EXPECT_THAT(refusal, testing::StartsWith(std::string(bad.flag) + " is \"" + bad.value + "\", expected "))
        << bad.flag;
  }
}

TEST(RunFlagsTest, CombinationsWithoutAMeaningAreRefused) {
  EXPECT_THAT(Refusal({"--prompt", "a", "--prompt-ids", "[1]"}), HasSubstr("--prompt and --prompt-ids are both given"));
  EXPECT_THAT(Refusal({"--prompt", "a", "--prompt-file", "f"}), HasSubstr("both given"));
  EXPECT_THAT(Refusal({"--epsilon", "0.1"}), HasSubstr("--epsilon is for typical acceptance only"));
  EXPECT_THAT(Refusal({"--accept", "exact", "--root", "argmax"}), HasSubstr("--root is for typical"));
  EXPECT_THAT(Refusal({"--model", "M", "--tree", "chain"}), HasSubstr("--tree needs draft heads"));
  EXPECT_THAT(Refusal({"--model", "M", "--compare-plain"}), HasSubstr("--compare-plain needs drafts"));
  EXPECT_THAT(Refusal({"--model", "M", "--beam-width", "5"}), HasSubstr("--beam-width needs draft heads"));
  EXPECT_THAT(Refusal({"--model", "M", "--draft", "D", "--tree", "dynamic", "--beam-length", "5"}),
              HasSubstr("--beam-length is for beam trees only"));
  EXPECT_THAT(Refusal({"--model", "M", "--draft", "D", "--beam-width", "51"}), HasSubstr("--beam-width"));
  EXPECT_THAT(Refusal({"--model", "M", "--draft", "D", "--beam-length", "1"}), HasSubstr("--beam-length"));
  EXPECT_THAT(Refusal({"--model", "M", "--draft", "D", "--beam-width", "50", "--beam-length", "12"}),
              HasSubstr("50 beams of 12 tokens may be 550 drafted tokens, expected at most 511"));
  EXPECT_THAT(Refusal({"--model", "M", "--draft", "D", "--tree", "[[0]]", "--tree", "[[1]]"}),
              HasSubstr("--tree is given several times"));
  EXPECT_THAT(Refusal({"--model", "M", "--draft", "D", "--draft-p-min", "0", "--draft-p-min", "0.1"}),
              HasSubstr("--draft-p-min is given several times"));
  EXPECT_THAT(Refusal({"--model", "M", "--draft-p-min", "0.1"}), HasSubstr("--draft-p-min needs draft heads"));
  EXPECT_THAT(Refusal({"--model", "M", "--draft", "D", "--tree", "[[0]]", "--tree", "", "--compare-plain"}),
              HasSubstr("--tree"));
  // Without heads every tree is its root, and any rule or kind of candidates is plain decoding.
  EXPECT_TRUE(Parsed({"--model", "M", "--accept", "typical", "--candidates", "plain"}).engine.draft.empty());
  EXPECT_THAT(Refusal({"--draft", "D"}), HasSubstr("--draft needs the base model"));
  EXPECT_THAT(Refusal({"--prompt-ids", "[1]", "--template", "vicuna"}), HasSubstr("--template cannot be used"));
  EXPECT_THAT(Refusal({"--prompt-ids", "[1]", "--system", "s"}), HasSubstr("--system cannot be used"));
  EXPECT_THAT(Refusal({"--template", "none", "--system", "s"}), HasSubstr("--system needs a chat template"));
  EXPECT_THAT(Refusal({"--json", "--show-drafts"}), HasSubstr("--show-drafts and --json"));
  EXPECT_THAT(Refusal({"--color", "always"}), HasSubstr("--color is for --show-drafts"));
  EXPECT_THAT(Refusal({"--model", ""}), HasSubstr("--model is empty"));
  EXPECT_THAT(Refusal({"--stop", ""}), HasSubstr("--stop is empty"));
}

TEST(RunFlagsTest, UnknownNamesAreRefusedWithTheNearest) {
  EXPECT_THAT(Refusal({"--temprature", "1"}), HasSubstr("did you mean --temperature?"));
  EXPECT_THAT(Refusal({"--template", "vicunna"}), HasSubstr("did you mean vicuna?"));
  EXPECT_THAT(Refusal({"extra"}), HasSubstr("unexpected argument 'extra'"));
}

// As llama.cpp, vLLM, Hugging Face's tools and the authors' scripts write them.
constexpr std::pair<const char*, const char*> kSpellings[] = {{"-m", "--model"},
                                                              {"--model-path", "--model"},
                                                              {"--model_path", "--model"},
                                                              {"-md", "--draft"},
                                                              {"--speculative-model", "--draft"},
                                                              {"-p", "--prompt"},
                                                              {"-f", "--prompt-file"},
                                                              {"-n", "--max-tokens"},
                                                              {"-n256", "--max-tokens"},
                                                              {"--n-predict", "--max-tokens"},
                                                              {"--n_predict", "--max-tokens"},
                                                              {"-n-predict", "--max-tokens"},
                                                              {"--max-new-tokens", "--max-tokens"},
                                                              {"--max_new_tokens=64", "--max-tokens"},
                                                              {"--max_tokens", "--max-tokens"},
                                                              {"-t", "--threads"},
                                                              {"-t8", "--threads"},
                                                              {"--num_threads", "--threads"},
                                                              {"--temp", "--temperature"},
                                                              {"--top_k", "--top-k"},
                                                              {"--top_p=0.9", "--top-p"},
                                                              {"--min_p", "--min-p"},
                                                              {"-temperature", "--temperature"},
                                                              {"--repeat-penalty", "--repetition-penalty"},
                                                              {"--repetition_penalty", "--repetition-penalty"},
                                                              {"-s", "--seed"},
                                                              {"-sys", "--system"},
                                                              {"--system-prompt", "--system"},
                                                              {"--chat-template", "--template"},
                                                              {"-r", "--stop"},
                                                              {"-ctk", "--kv-type"},
                                                              {"--kv-cache-dtype", "--kv-type"},
                                                              {"-b", "--prefill-chunk"},
                                                              {"--dtype", "--weights"},
                                                              {"--quantization", "--weights"},
                                                              {"--do_sample", "--temperature"},
                                                              {"--num-speculative-tokens", "--draft-depth"},
                                                              {"--medusa-choices", "--tree"},
                                                              {"--posterior-threshold", "--epsilon"},
                                                              {"--prompt-lookup-num-tokens", "--lookup"},
                                                              {"--max_matching_ngram_size", "--lookup-max-match"},
                                                              {"--verbose", "--stats"}};

TEST(RunFlagsTest, SpellingsOfOtherProgramsAreNamed) {
  for (const auto& [theirs, ours] : kSpellings) {
    const std::string refusal = Refusal({theirs, "1"}),
                      flag = std::string(theirs).substr(0, std::string(theirs).find('='));
    EXPECT_THAT(refusal, testing::StartsWith("unknown flag '" + flag + "' | " + flag + " is " + ours + " here"));
  }
  EXPECT_THAT(Refusal({"-c", "4096"}), HasSubstr("the context is the model's own"));
  EXPECT_THAT(Refusal({"--max-model-len", "4096"}), HasSubstr("the context is the model's own"));
  EXPECT_THAT(Refusal({"-ngl", "99"}), HasSubstr("CPUs only"));
  EXPECT_THAT(Refusal({"--lora", "x"}), HasSubstr("merge them"));
  EXPECT_THAT(Refusal({"-i"}), HasSubstr("without a prompt is a chat"));
}

}  // namespace
}  // namespace hydrant::cli::run_flags_test
