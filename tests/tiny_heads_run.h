// SPDX-License-Identifier: Apache-2.0
// For tests: a run of `hydrant train heads` that takes a second, of two kinds of heads for a base of random weights.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/test_data.h"
#include "tests/tiny_base.h"
#include "train/fit/train_heads.h"

namespace hydrant::test {

// A base of random weights with 512 tokens, and a tokenizer cut to as many.
class TinyHeadsRun : public testing::Test {
 protected:
  TinyHeadsRun() {
    const std::string golden = SourceDir() + "/tests/golden/";
    for (const char* file : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(golden + "base_mha/" + file, dir_.path() + "/" + file);
    }
    dir_.Write("tokenizer.json", TinyTokenizer());
    std::string text;
    for (int i = 0; i < 60; ++i) {
      text += "The " + std::to_string(i * i) + "th house of the street had " + std::to_string(7 * i % 13) + " doors";
      text += i % 3 == 0 ? ".\n<|endoftext|>\n" : ", and nobody knew why. ";
    }
    text_ = dir_.Write("text.txt", text);
  }

  train::TrainHeadsOptions Options(const std::string& out) const {
    train::TrainHeadsOptions options;
    options.engine.model = dir_.path();
    options.engine.threads = 1;
    options.data = {text_};
    options.out = dir_.path() + "/" + out;
    options.row_tokens = 64;
    options.rows = 8;
    options.precision = "f32";
    options.log_every = 2;
    options.save_every = 2;
    options.cache_most = 0;
    for (const char* arch : {"medusa", "hydra++"}) {
      train::HeadsToTrain heads{.shape = {.arch = arch, .num_heads = 3}, .recipe = train::UsualRecipe(arch)};
      heads.recipe.epochs = 1;
      heads.recipe.warmup_steps = 0;
      heads.recipe.dropout = 0;
      heads.recipe.noise_alpha = 0;
      // AdamW divides by the gradient's size, so that a gradient that is zero but for rounding would move its parameter
      // as far as any other. With this term it moves in proportion.
      heads.recipe.epsilon = 1e-3;
      options.heads.push_back(heads);
    }
    return options;
  }

  const TempDir dir_;
  std::string text_;
};

}  // namespace hydrant::test
