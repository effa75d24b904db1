// SPDX-License-Identifier: Apache-2.0
#include "load/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/float_mode.h"
#include "base/free_memory.h"
#include "base/mapped_file.h"
#include "base/nearest.h"
#include "base/paths.h"
#include "draft/heads/draft_vocab.h"
#include "draft/union_of.h"
#include "hydrant/error.h"
#include "load/draft_model_loading.h"
#include "load/end_of_turn.h"
#include "load/folder_kind.h"
#include "load/memory_words.h"
#include "load/other_kinds.h"
#include "model/linear_packer.h"

namespace hydrant::load {
namespace {

void CheckMoreDrafts(const EngineOptions& options) {
  if (options.more_drafts.empty()) return;
  if (options.draft.empty()) throw UserError("EngineOptions::more_drafts is set without EngineOptions::draft");
  if (options.more_drafts.size() > 3) {
    throw UserError("EngineOptions::draft has " + std::to_string(1 + options.more_drafts.size()) +
                    " folders, expected 4 at most");
  }
  std::vector<std::string> folders = options.more_drafts;
  folders.push_back(options.draft);
  for (size_t i = 0; i < folders.size(); ++i) {
    if (folders[i].empty()) throw UserError("a folder of EngineOptions::draft is empty");
    std::error_code error;  // a folder that is not there is told when it is read
    const auto before = folders.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(folders.begin(), before, [&](const std::string& other) {
          return other == folders[i] || std::filesystem::equivalent(other, folders[i], error);
        })) {
      throw UserError("EngineOptions::draft has " + folders[i] + " twice: it would draft the same tree twice",
                      "name each folder once");
    }
  }
}

void CheckOptions(const EngineOptions& options) {
  if (options.model.empty()) throw UserError("no model given", "name its folder with EngineOptions::model");
  static_cast<void>(kernels::KernelsFor(options.cpu_target));
  if (options.threads < 0 || options.threads > 1024) {
    throw UserError("EngineOptions::threads is " + std::to_string(options.threads) + ", expected 0 (all) to 1024");
  }
  if (options.prefill_chunk < 0 || options.prefill_chunk > kMaxRows) {
    throw UserError("the prefill chunk is " + std::to_string(options.prefill_chunk) + ", expected 1 to " +
                    std::to_string(kMaxRows) + ", or 0 (the fastest)");
  }
  const bool cuts_vocab = !options.draft_vocab.empty() || !options.draft_vocab_text.empty();
  if (options.draft.empty() && cuts_vocab) {
    throw UserError("a draft vocabulary needs heads that draft", "name their folder with EngineOptions::draft");
  }
  if (!options.draft_vocab_text.empty() && (options.draft_vocab_size < 1 || !options.draft_vocab.empty())) {
    throw UserError(
        "EngineOptions::draft_vocab_text needs EngineOptions::draft_vocab_size of at least 1, and excludes "
        "EngineOptions::draft_vocab");
  }
  if (options.draft_vocab_size != 0 && options.draft_vocab_text.empty()) {
    throw UserError("EngineOptions::draft_vocab_size says how many tokens of EngineOptions::draft_vocab_text",
                    "name a text, or leave it out");
  }
  if (options.draft.empty() && !options.tree.empty()) {
    throw NeedsHeads("EngineOptions::tree");
  }
  CheckMoreDrafts(options);
}

// Nothing for "auto".
std::optional<quant::WeightFormat> FormatNamed(const char* flag, const std::string& name) {
  if (name == "auto") return std::nullopt;
  const std::optional<quant::WeightFormat> format = quant::WeightFormatNamed(name);
  if (format) return format;
  static constexpr std::string_view kNames[] = {"auto", "stored", "f32", "bf16", "w8a8", "w4a8", "w8a16", "w4a16"};
  const std::string nearest = base::Nearest(name, kNames);
  throw UserError(
      std::string(flag) + " '" + name + "' is unknown, expected auto, stored, f32, bf16, w8a8, w4a8, w8a16 or w4a16",
      nearest.empty() ? "" : "did you mean " + nearest + "?");
}

void AddToInfo(const model::PackReport& report, EngineInfo& info) {
  info.pack_seconds += report.seconds;
  info.packed_bytes_before += report.bytes_before;
  info.packed_bytes_after += report.bytes_after;
}

// Refuses packing for which there is too little memory. What 'hydrant convert' writes is used where it lies in its
// file.
model::LinearPacker::CheckNeed NeedCheck(const std::string& what, const std::string& format, const std::string& command,
                                         uint64_t stays) {
  return [=](const model::PackNeed& need) {
    const base::FreeMemory free = base::FreeNow();
    if (need.bytes <= free.own) return;
    throw MemoryRefusal({.what = what, .format = format, .command = command, .stays = stays}, need, free);
  };
}

// Packed weights of files in the layout of other kernels are copied as a whole.
void CheckArranging(LoadedModel& loaded) {
  uint64_t bytes = 0;
  const auto add = [&](const model::Linear& linear) {
    if (linear.packed && !loaded.queue.table->Reads(linear.packed->matrix.type)) bytes += linear.bytes();
  };
  for (model::LayerWeights& layer : loaded.weights.layers) {
    for (const model::Linear* linear : model::LinearsOf(layer)) add(*linear);
  }
  add(loaded.weights.lm_head);
  if (bytes == 0) return;
  const base::FreeMemory free = base::FreeNow();
  if (bytes <= free.own) return;
  throw FileError(
      loaded.options.model,
      "is in the layout of another machine: its copy needs " + base::MemoryText(bytes) + ", and " +
          base::FreeText(free),
      "convert it on this machine, or with the other ConvertOptions::layout: then it is used where it lies");
}

// Weights that are used where they lie in files can be dropped and read again, so they do not have to fit.
void WarnOfPaging(LoadedModel& loaded, const base::FreeMemory& free) {
  const uint64_t bytes = loaded.info.weight_bytes + loaded.info.head_weight_bytes;
  if (bytes <= free.pages) return;
  loaded.info.warnings.push_back(PagingWarning(loaded.options.model, bytes, free.pages));
}

void PackBase(LoadedModel& loaded) {
  const EngineOptions& options = loaded.options;
  const std::optional<quant::WeightFormat> format = FormatNamed("EngineOptions::weights", options.weights);
  CheckArranging(loaded);
  model::LinearPacker packer(loaded.pool.get(), options.on_pack,
                             NeedCheck(options.model, options.weights,
                                       "hydrant convert ConvertOptions::weights FORMAT " + options.model + " OUT",
                                       loaded.weights.embedding.num_bytes()));
  packer.Keep(loaded.weights.embedding);
  for (model::LayerWeights& layer : loaded.weights.layers) {
    for (model::Linear* linear : model::LinearsOf(layer)) packer.Add(*linear, {.format = format});
  }
  const auto lm_head = format ? std::optional(model::LmHeadFormat(*format)) : std::nullopt;
  packer.Add(loaded.weights.lm_head, {.format = lm_head});
  const model::PackReport report = packer.Run();
  loaded.weights.bytes += report.bytes_after - report.bytes_freed;
  AddToInfo(report, loaded.info);
}

// Heads follow a packed base in 8 bits, unless the user or their folder says otherwise: drafts need not be exact.
model::FormatChoice ChooseHeadFormat(const LoadedModel& loaded) {
  const std::optional<quant::WeightFormat> format =
      FormatNamed("EngineOptions::head_weights", loaded.options.head_weights);
  if (format) return {.format = format};
  if (!loaded.weights.layers.front().q.packed) return {};
  return {.format = quant::WeightFormat::kW8A8, .only_floats = true};
}

// Tokens that heads may draft; empty: all.
std::vector<int32_t> DraftVocab(LoadedModel& loaded) {
  const EngineOptions& options = loaded.options;
  const int64_t vocab_size = loaded.weights.config.vocab_size;
  if (!options.draft_vocab.empty()) return draft::ReadDraftVocab(options.draft_vocab, vocab_size);
  if (options.draft_vocab_text.empty()) return {};
  const std::string text = base::ReadTextFile(options.draft_vocab_text, tokenizer::kMostTextBytes);
  const auto tokenizer = tokenizer::LoadTokenizer(options.model);
  const std::vector<int32_t> ids = tokenizer->Encode(text, {.parse_special = false, .add_bos = false});
  std::vector<int32_t> tokens = draft::MostFrequentTokens(ids, options.draft_vocab_size, vocab_size);
  if (tokens.empty()) throw FileError(options.draft_vocab_text, "has no tokens", "name a text like those to generate");
  if (const auto found = static_cast<int64_t>(tokens.size());
      found < std::min<int64_t>(options.draft_vocab_size, vocab_size)) {
    loaded.info.warnings.push_back(
        options.draft_vocab_text + " has " + std::to_string(found) +
        " different tokens, and heads draft no others; EngineOptions::draft_vocab_size asks for " +
        std::to_string(options.draft_vocab_size));
  }
  return tokens;
}

std::unique_ptr<draft::Drafter> LoadOneDrafter(const std::string& folder, LoadedModel& loaded,
                                               model::WeightArranger& arranger) {
  const EngineOptions& options = loaded.options;
  const model::FormatChoice choice = ChooseHeadFormat(loaded);
  const std::string format = choice.format ? quant::NameOf(*choice.format) : "";
  model::LinearPacker packer(loaded.pool.get(), options.on_pack,
                             NeedCheck(folder, format,
                                       "hydrant convert ConvertOptions::head_weights FORMAT ConvertOptions::model " +
                                           options.model + " " + folder + " OUT",
                                       0));
  draft::HeadPacking packing{
      .choice = choice, .packer = &packer, .arranger = &arranger, .draft_vocab = DraftVocab(loaded)};
  const bool is_model = IsDraftModel(folder);
  std::unique_ptr<draft::Drafter> drafter = ReadAs(is_model ? Role::kBase : Role::kHeads, folder, [&] {
    if (is_model) {
      return LoadDraftModel(folder, loaded.weights, options.model, &loaded.queue, packing, &loaded.info.warnings);
    }
    return draft::MakeDrafter(folder, loaded.weights, &loaded.queue, packing, &loaded.info.warnings);
  });
  const int64_t vocab = packing.num_tokens > 0 ? packing.num_tokens : loaded.weights.config.vocab_size;
  loaded.info.num_draft_vocab = std::max(loaded.info.num_draft_vocab, static_cast<int32_t>(vocab));
  AddToInfo(packing.report, loaded.info);
  if (loaded.info.head_weights.empty()) loaded.info.head_weights = packing.format;
  return drafter;
}

void LoadDrafter(LoadedModel& loaded, model::WeightArranger& arranger) {
  const EngineOptions& options = loaded.options;
  static_cast<void>(ChooseHeadFormat(loaded));  // an unknown name is refused without heads, too
  if (options.draft.empty()) return;
  loaded.drafter = LoadOneDrafter(options.draft, loaded, arranger);
  if (options.more_drafts.empty()) return;
  std::vector<std::unique_ptr<draft::Drafter>> all;
  all.push_back(std::move(loaded.drafter));
  for (const std::string& folder : options.more_drafts) all.push_back(LoadOneDrafter(folder, loaded, arranger));
  loaded.drafter = std::make_unique<draft::UnionOf>(std::move(all));
}

// What the tokenizer warns of, too.
void AddEndOfTurn(LoadedModel& loaded) {
  EngineInfo& info = loaded.info;
  const auto warn = [&info](const std::vector<std::string>& warnings) {
    info.warnings.insert(info.warnings.end(), warnings.begin(), warnings.end());
  };
  if (loaded.tokenizer) warn(loaded.tokenizer->warnings());
  EndOfTurn end = FindEndOfTurn(loaded.weights.config, loaded.tokenizer.get(), loaded.options.model);
  for (const EosToken& token : end.tokens) {
    if (!token.template_only) info.eos_token_ids.push_back(token.id);
  }
  warn(end.warnings);
  info.eos_tokens = std::move(end.tokens);
}

void FillInfo(LoadedModel& loaded) {
  EngineInfo& info = loaded.info;
  info.model_family = model::NameOf(loaded.weights.config.family);
  info.drafter = loaded.drafter ? loaded.drafter->name() : "none";
  info.num_heads = loaded.drafter ? loaded.drafter->num_heads() : 0;
  info.draft_depth = loaded.drafter ? loaded.drafter->usual_depth() : 0;
  info.cpu_target = loaded.queue.table->target;
  info.threads = loaded.pool->num_threads();
  if (const std::string text = base::TooManyThreads(info.threads); !text.empty()) info.warnings.push_back(text);
  info.prefill_chunk = loaded.options.prefill_chunk;
  info.vocab_size = static_cast<int32_t>(loaded.weights.config.vocab_size);
  info.kv_type = NameOf(loaded.kv_shape.dtype);
  info.max_positions = static_cast<int32_t>(loaded.weights.config.max_positions);
  info.weights = loaded.weights.layers.front().q.format();
  info.weight_bytes = loaded.weights.bytes;
  info.head_weight_bytes = loaded.drafter ? loaded.drafter->weight_bytes() : 0;
  info.has_tokenizer = loaded.tokenizer != nullptr;
  AddEndOfTurn(loaded);
}

}  // namespace

DType KvTypeNamed(const std::string& name, const model::ModelWeights& weights) {
  if (name == "auto") return weights.layers.front().q.packed ? DType::kBF16 : DType::kF32;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == NameOf(dtype)) return dtype;
  }
  static constexpr std::string_view kNames[] = {"auto", "f32", "bf16", "f16"};
  const std::string nearest = base::Nearest(name, kNames);
  throw UserError("EngineOptions::kv_type '" + name + "' is unknown, expected auto, f32, bf16 or f16",
                  nearest.empty() ? "" : "did you mean " + nearest + "?");
}

int32_t BestPrefillChunk(const kernels::KernelTable& table, const model::ModelWeights& weights) {
  return static_cast<int32_t>(kernels::PromptRows(table, weights.layers.front().q.view().kind));
}

int ThreadsFor(const model::ModelConfig& config, int allowed) {
  // (Embedded model, 803 thousand weights a layer in 8 bits, Intel with AMX, 1 2 4 8 16 threads: one row .62 .35 .23
  // .21 .25 ms, 5 rows .75 .48 .35 .37 .43.)
  constexpr int64_t kLayerWeightsPerThread = 200'000;
  const int64_t q = config.num_heads * config.head_dim, kv = config.num_kv_heads * config.head_dim;
  const int64_t weights = config.hidden_size * (2 * q + 2 * kv + 3 * config.intermediate_size);
  return static_cast<int>(std::clamp<int64_t>(weights / kLayerWeightsPerThread, 1, allowed));
}

void OpenQueue(LoadedModel& loaded) {
  const EngineOptions& options = loaded.options;
  const int threads = options.threads > 0 ? options.threads : ThreadsFor(loaded.weights.config, base::DefaultThreads());
  loaded.pool = std::make_unique<base::ThreadPool>(threads, true);
  loaded.pool->StopWhen(options.stop);
  loaded.queue.pool = loaded.pool.get();
  loaded.queue.table = &kernels::KernelsForModel(options.cpu_target, loaded.weights.config.hidden_size);
}

void FinishLoading(LoadedModel& loaded) {
  const DType kv_type = KvTypeNamed(loaded.options.kv_type, loaded.weights);
  loaded.kv_shape = model::KvShapeFor(loaded.weights.config, kv_type);
  if (loaded.options.prefill_chunk == 0) {
    loaded.options.prefill_chunk = BestPrefillChunk(*loaded.queue.table, loaded.weights);
  }
  if (loaded.drafter) loaded.lookup_or_drafter = std::make_unique<draft::FirstOf>(&loaded.lookup, loaded.drafter.get());
  const std::vector<kv::LayerShape> own = loaded.proposer().KvLayers();
  loaded.kv_shape.layers.insert(loaded.kv_shape.layers.end(), own.begin(), own.end());
  loaded.kv_shape.reads_next_token = loaded.proposer().ReadsNextToken();
  loaded.decoder = std::make_unique<model::Decoder>(&loaded.queue, &loaded.weights, loaded.proposer().WantedLayers());
  FillInfo(loaded);
  loaded.lookup.SetEosTokenIds(loaded.info.eos_token_ids);
}

std::unique_ptr<LoadedModel> LoadModel(const EngineOptions& options) {
  const base::DefaultFloatMode mode;
  CheckOptions(options);
  auto loaded = std::make_unique<LoadedModel>();
  loaded->options = options;
  loaded->weights = ReadAs(Role::kBase, options.model, [&] { return model::LoadModelWeights(options.model); });
  loaded->info.warnings = loaded->weights.warnings;
  OpenQueue(*loaded);
  const base::FreeMemory free = base::FreeNow();  // before any is taken
  PackBase(*loaded);
  static_cast<void>(KvTypeNamed(options.kv_type, loaded->weights));  // before the heads are read
  model::WeightArranger arranger(loaded->queue.table, loaded->pool.get());
  LoadDrafter(*loaded, arranger);  // cuts and shares the base's lm head as the file has it
  arranger.Arrange(loaded->weights);
  if (options.load_tokenizer && tokenizer::HasTokenizer(options.model)) {
    loaded->tokenizer = tokenizer::LoadTokenizer(options.model);
  }
  if (options.stop != nullptr && *options.stop) throw Stopped();  // also where no pool was at work
  FinishLoading(*loaded);
  WarnOfPaging(*loaded, free);
  return loaded;
}

UserError NeedsHeads(const std::string& option) {
  return UserError(option + " needs heads or a draft model", "name their folder with EngineOptions::draft");
}

FileError NoFiniteLogits(const std::string& model) {
  return {model, "its logits are NaN or infinite",
          "a weight is NaN or infinite, or numbers grow past what f32 holds; if other EngineOptions::weights of this "
          "model work, "
          "those lose it"};
}

void CheckKvRange(const kv::BlockTable& table, int32_t first, int32_t count, kv::LayerRange layers,
                  const std::string& model) {
  if (!table.Overflows(first, count, layers)) return;
  throw FileError(model, "a key or a value is beyond 65504, the largest number of f16: the f16 KV cache overflowed",
                  "take EngineOptions::kv_type bf16 or f32");
}

void CheckPrompt(const LoadedModel& loaded, const std::vector<int32_t>& prompt_ids) {
  const model::ModelConfig& config = loaded.weights.config;
  if (prompt_ids.empty()) throw UserError("the prompt is empty", "give at least one token");
  if (static_cast<int64_t>(prompt_ids.size()) > config.max_positions) {
    throw UserError("the prompt is " + std::to_string(prompt_ids.size()) + " tokens long, but " + config.file +
                        " ('max_position_embeddings') allows " + std::to_string(config.max_positions),
                    "shorten the prompt");
  }
  CheckIds(loaded, prompt_ids, "prompt");
}

void CheckIds(const LoadedModel& loaded, std::span<const int32_t> ids, const std::string& name) {
  const model::ModelConfig& config = loaded.weights.config;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < config.vocab_size) continue;
    throw UserError(name + " token " + std::to_string(i) + " is " + std::to_string(ids[i]) + ", expected 0 to " +
                    std::to_string(config.vocab_size - 1) + " (vocab_size of " + config.file + ")");
  }
}

}  // namespace hydrant::load
