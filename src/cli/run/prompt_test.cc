// SPDX-License-Identifier: Apache-2.0
#include "cli/run/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/test_data.h"

namespace hydrant::cli::prompt_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(PromptTest, AChatTakesTheTemplateOfAKnownFamilyAndSaysSo) {
  const test::TempDir dir;
  RunOptions options;
  options.engine.model = dir.path() + "/vicuna-7b-v1.5";
  std::filesystem::create_directory(options.engine.model);
  dir.Write("vicuna-7b-v1.5/config.json", "{}");
  RunOptions chat = options;
  EXPECT_EQ(ChooseTemplate(chat, /*interactive=*/true), "vicuna");
  EXPECT_THAT(chat.warnings, ElementsAre(HasSubstr("this chat goes by the template of Vicuna (--template vicuna)")));

  RunOptions prompt = options;
  EXPECT_EQ(ChooseTemplate(prompt, /*interactive=*/false), "none");
  EXPECT_THAT(prompt.warnings, ElementsAre(HasSubstr("Vicuna expects --template vicuna")));

  RunOptions meant = options;
  meant.template_name = "none";
  EXPECT_EQ(ChooseTemplate(meant, /*interactive=*/true), "none");
  EXPECT_THAT(meant.warnings, IsEmpty());
}

TEST(PromptTest, AFolderWithATemplateKeepsItWhateverItsName) {
  RunOptions options;
  options.engine.model = test::SourceDir() + "/models/tale-14m";
  options.engine.draft = "heads/hydra-zephyr-7b";
  EXPECT_EQ(ChooseTemplate(options, /*interactive=*/true), "vicuna");
  EXPECT_THAT(options.warnings, IsEmpty());
}

}  // namespace
}  // namespace hydrant::cli::prompt_test
