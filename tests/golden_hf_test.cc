// SPDX-License-Identifier: Apache-2.0
// Parity with Hugging Face's own code on small base models of every family; refusals by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "eval/logits.h"
#include "tests/golden_case.h"
#include "tests/test_data.h"

namespace hydrant::test::golden_hf_test {
namespace {

void ExpectRefused(const std::string& folder, const base::Json& json) {
  EngineOptions options;
  options.model = folder;
  try {
    Engine engine(options);
    FAIL() << folder << " must be refused";
  } catch (const UserError& e) {
    for (const base::Json& word : json.at("error_should_name")) {
      EXPECT_NE(std::string(e.what()).find(word.get<std::string>()), std::string::npos) << word << " in " << e.what();
    }
  }
}

void ExpectCase(const std::string& folder) {
  const base::Json json = base::ReadJsonFile(folder + "/case.json");
  if (json.value("expect_error", false)) {
    ExpectRefused(folder, json);
    return;
  }
  EngineOptions options;
  options.model = folder;
  const auto loaded = load::LoadModel(options);
  const auto expected = ReadValues(folder + "/tensors.safetensors");
  const eval::EvalLogitsResult result = eval::EvalLogits(*loaded, Ids(json.at("prompt_ids")), {});
  EXPECT_LE(LargestDifference(result.logits, expected.at("logits")),
            json.at("tolerance").at("logits_abs").get<float>());
  EXPECT_LE(LargestDifference(result.hidden, expected.at("hidden")),
            json.at("tolerance").at("hidden_abs").get<float>());

  // Every target, and prompts cut into chunks of awkward sizes.
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    EngineOptions run = options;
    run.cpu_target = table->name;
    run.prefill_chunk = 7;
    Engine engine(run);
    GenerationRequest request;
    request.prompt_ids = Ids(json.at("prompt_ids"));
    request.stop.max_tokens =
        static_cast<int32_t>(json.at("output_ids").size()) + (json.at("ignore_eos").get<bool>() ? 0 : 8);
    request.stop.ignore_eos = json.at("ignore_eos").get<bool>();
    const GenerationResult generated = engine.Generate(request);
    EXPECT_EQ(generated.token_ids, Ids(json.at("output_ids"))) << table->name;
    EXPECT_EQ(generated.finish_reason == FinishReason::kEos, json.value("stop_reason", "") == "eos");
  }
}

std::vector<std::string> Cases(const std::string& root) {
  std::vector<std::string> folders;
  if (!std::filesystem::is_directory(root)) return folders;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

TEST(HuggingFaceParity, EverySharedCaseMatches) {
  HYDRANT_NEED_SHARED();
  const std::vector<std::string> folders = Cases(SharedDir() + "/golden/hf");
  EXPECT_GE(folders.size(), 24U);
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    ExpectCase(folder);
  }
}

TEST(HuggingFaceParity, EveryCommittedCaseMatches) {
  const std::vector<std::string> folders = Cases(SourceDir() + "/tests/golden/hf");
  EXPECT_GE(folders.size(), 1U);
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    ExpectCase(folder);
  }
}

}  // namespace
}  // namespace hydrant::test::golden_hf_test
