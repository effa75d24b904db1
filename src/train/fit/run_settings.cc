// SPDX-License-Identifier: Apache-2.0
#include "train/fit/run_settings.h"

#include "base/json.h"
#include "hydrant/error.h"
#include "kernels/cpu_features.h"

namespace hydrant::train {

using base::Json;

Precision PrecisionNamed(const std::string& name) {
  if (name == "f32") return Precision::kF32;
  if (name == "bf16") return Precision::kBF16;
  if (name != "auto") throw UserError("RunOptions::precision is '" + name + "', expected auto, f32 or bf16");
  const kernels::CpuFeatures& cpu = kernels::DetectCpuFeatures();
  return cpu.amx || (cpu.avx512 && !cpu.slow_bf16_dots) ? Precision::kBF16 : Precision::kF32;
}

std::string FolderNameOf(std::string arch) {
  if (const size_t at = arch.find("++"); at != std::string::npos) arch.replace(at, 2, "_pp");
  return arch;
}

Json SettingsOf(const RunOptions& options, const RunData& run, Precision precision) {
  return {{"data", ContentHash(run.data)},
          {"tokens", options.tokens},
          {"row_tokens", options.row_tokens},
          {"rows", options.rows},
          {"seed", options.seed},
          {"held_out", run.held_out.size()},
          {"precision", precision == Precision::kBF16 ? "bf16" : "f32"}};
}

Json SettingsOf(const OptimizerRecipe& recipe) {
  return {{"peak_rate", recipe.peak_rate},
          {"warmup_steps", recipe.warmup_steps},
          {"final_factor", recipe.final_factor},
          {"betas", {recipe.beta1, recipe.beta2}},
          {"epsilon", recipe.epsilon},
          {"weight_decay", recipe.weight_decay},
          {"clip", recipe.clip},
          {"epochs", recipe.epochs}};
}

Json SettingsOf(const Recipe& recipe) {
  Json settings = SettingsOf(static_cast<const OptimizerRecipe&>(recipe));
  settings.update(Json{{"label_weight", recipe.label_weight},
                       {"teacher_weight", recipe.teacher_weight},
                       {"head_decay", recipe.head_decay},
                       {"reconstruction_weight", recipe.reconstruction_weight},
                       {"noise_alpha", recipe.noise_alpha},
                       {"dropout", recipe.dropout},
                       {"num_passes", recipe.num_passes}});
  // Checkpoints of runs without it do not say it.
  if (recipe.text_noise != 0) settings["text_noise"] = recipe.text_noise;
  return settings;
}

Json SettingsOf(const HeadShape& shape, const draft::HeadsInfo& info) {
  return {{"arch", shape.arch},
          {"num_heads", info.num_heads},
          {"num_layers", info.num_layers},
          {"tied_blocks", info.tied_blocks},
          {"hidden_layer_offset", info.hidden_layer_offset},
          {"shared_lm_head", shape.shared_lm_head},
          {"draft_vocab", shape.draft_vocab.size()}};
}

}  // namespace hydrant::train
