// SPDX-License-Identifier: Apache-2.0
// Any folder of draft heads or of a draft model beside a small base (heads_folder.h) either gives a drafter that drafts
// and can be written again, or is refused with a typed error.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "convert/respelled_tensors.h"
#include "draft/heads/head_kind.h"
#include "eval/logits.h"
#include "heads_folder.h"
#include "hydrant/engine.h"
#include "hydrant/error.h"
#include "load/loaded_model.h"

namespace hydrant::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVocabulary = 24;

// Eight layers: enough for EAGLE-3's own rule of which hidden states it reads.
std::string BaseText() {
  std::string text =
      R"({"model_type": "llama", "vocab_size": 24, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 8,
          "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64})";
  text +=
      "\n-- model.safetensors\nF32 model.embed_tokens.weight 24 8\nF32 model.norm.weight 8\nF32 lm_head.weight 24 8\n";
  for (int layer = 0; layer < 8; ++layer) {
    const std::string name = "F32 model.layers." + std::to_string(layer) + ".";
    for (const char* rest :
         {"input_layernorm.weight 8", "post_attention_layernorm.weight 8", "self_attn.q_proj.weight 8 8",
          "self_attn.k_proj.weight 4 8", "self_attn.v_proj.weight 4 8", "self_attn.o_proj.weight 8 8",
          "mlp.gate_proj.weight 12 8", "mlp.up_proj.weight 12 8", "mlp.down_proj.weight 8 12"}) {
      text += name + rest + "\n";
    }
  }
  return text;
}

// The base, made once, and the folder beside it.
class Bench {
 public:
  Bench()
      : root_((fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
              ("hydrant_fuzz_heads_" + std::to_string(getpid()))) {
    fs::create_directories(draft());
    fs::create_directories(base());
    WriteFolder(BaseText(), base());
  }
  ~Bench() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  std::string base() const { return root_ / "base"; }
  std::string draft() const { return root_ / "draft"; }

  // What loads can be run: a shape or an id that a check let through shows there.
  void LoadAndDraft() const {
    EngineOptions options;
    options.model = base();
    options.draft = draft();
    options.load_tokenizer = false;
    options.cpu_target = "portable";
    options.threads = 1;
    const std::unique_ptr<load::LoadedModel> loaded = load::LoadModel(options);
    const eval::EvalLogitsResult result = eval::EvalLogits(*loaded, {1, 2, 3}, {});
    if (result.head_logits.rows() < 1 || result.head_logits.cols() != kVocabulary) std::abort();
  }

  // As `hydrant convert --layout` without a base: what the file itself says of its sizes.
  void Respell() const {
    draft::HeadsFile file = draft::OpenHeads(draft());
    const model::ModelWeights sizes = convert::BaseBySizes(file);
    const convert::Respelling to{.layout = "safetensors", .rows = file.info.rows, .file = file.info.weights_file};
    convert::Respell(*draft::LoadHeads(std::move(file), sizes), sizes, to);
  }

 private:
  const fs::path root_;
};

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const hydrant::fuzz::Bench bench;
  hydrant::fuzz::WriteFolder({reinterpret_cast<const char*>(data), size}, bench.draft());
  try {
    bench.LoadAndDraft();
  } catch (const hydrant::UserError&) {
  }
  try {
    bench.Respell();
  } catch (const hydrant::UserError&) {
  }
  return 0;
}
