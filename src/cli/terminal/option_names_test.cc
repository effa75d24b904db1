// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/option_names.h"

#include <gtest/gtest.h>

namespace hydrant::cli::option_names_test {
namespace {

TEST(OptionNamesTest, OptionsOfTheLibraryBecomeFlags) {
  EXPECT_EQ(WithFlags("take EngineOptions::kv_type bf16 or f32"), "take --kv-type bf16 or f32");
  EXPECT_EQ(WithFlags("EngineOptions::draft"), "--draft");
  EXPECT_EQ(WithFlags("(StopOptions::stop, SamplingOptions::top_k)"), "(--stop, --top-k)");
  EXPECT_EQ(WithFlags("'hydrant convert ConvertOptions::weights w4a8'"), "'hydrant convert --weights w4a8'");
}

TEST(OptionNamesTest, SomeFlagsHaveNamesOfTheirOwn) {
  EXPECT_EQ(WithFlags("LookupOptions::max_tokens is 70"), "--lookup is 70");
  EXPECT_EQ(WithFlags("LookupOptions::max_match, LookupOptions::rule"), "--lookup-max-match, --lookup-rule");
  EXPECT_EQ(WithFlags("replace it with ConvertOptions::replace"), "replace it with --force");
  EXPECT_EQ(WithFlags("RenderChat::template_name: none"), "--template: none");
}

TEST(OptionNamesTest, OtherTextStaysAsItIs) {
  for (const char* text : {"", "::", "a::b", "EngineOptions::", "EngineOptions: :x", "MyEngineOptions::draft",
                           "/models/std::string/config.json", "EngineOptions"}) {
    EXPECT_EQ(WithFlags(text), text);
  }
}

}  // namespace
}  // namespace hydrant::cli::option_names_test
