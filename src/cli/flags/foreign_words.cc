// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/foreign_words.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace hydrant::cli {
namespace {

// Words that mean the first of `ours` that the command has; else `sentence` is said, if there is one. Lists are
// separated by spaces.
// A word of `ours` without dashes is a word without a flag in the command.
struct Meaning {
  std::string_view theirs;
  std::string_view ours;
  std::string_view sentence;
};

constexpr std::string_view kCpus = "hydrant computes on CPUs only; --threads says on how many cores";
constexpr std::string_view kOwnContext =
    "the context is the model's own (max_position_embeddings in its config.json); --max-tokens bounds a reply";

constexpr std::array kFlags = {
    Meaning{"-m --model --model-path --model-name --model-name-or-path --model-id --model-dir --base-model "
            "--base-model-path "
            "--base --pretrained-model-name-or-path --checkpoint --ckpt --ckpt-dir --tokenizer --tokenizer-path",
            "--model --base PATH IN", ""},
    Meaning{"-md --model-draft --draft-model --draft-model-path --spec-draft-model --speculative-model "
            "--assistant-model --medusa --medusa-model --medusa-path --hydra --hydra-path --hydra-model --heads "
            "--heads-path --ea-model-path --adapter-path",
            "--draft", ""},
    Meaning{
        "-p --prompt --text-prompt --input --input-text --query --question --message --instruction --user-prompt -e",
        "--prompt --text", ""},
    Meaning{"-f --file --prompt-path --input-file --from-file -bf --binary-file", "--prompt-file",
            "'< FILE' gives the text of a file"},
    Meaning{"--text", "--prompt", ""},
    Meaning{"--ids --input-ids --token-ids --tokens --prompt-token-ids", "--prompt-ids --ids", ""},
    Meaning{"-n --n-predict --predict --num-predict --n-tokens --num-tokens --max-new-tokens --max-new-token "
            "--max-completion-tokens --max-output-tokens --max-gen-len --max-gen-toks --max-length --length "
            "--steps --max-steps",
            "--max-tokens", ""},
    Meaning{"--steps --max-steps --max-train-steps --train-steps --num-steps --num-train-steps", "--tokens",
            "times --epochs, a run goes over so many"},
    Meaning{"--learning-rate --peak-lr --max-lr", "--lr", ""},
    Meaning{"--num-train-epochs --num-epochs --n-epochs --max-epochs --epoch", "--epochs", ""},
    Meaning{"--warmup --num-warmup-steps --warmup-ratio --warmup-iters", "--warmup-steps", ""},
    Meaning{"--wd --decay", "--weight-decay", ""},
    Meaning{"--grad-clip --clip-grad --max-grad-norm --gradient-clipping", "--clip", ""},
    Meaning{"--eval-steps --eval-interval --eval-freq --evaluation-steps", "--eval-every", ""},
    Meaning{"--save-steps --save-interval --save-freq --checkpoint-every", "--save-every", ""},
    Meaning{"--logging-steps --log-interval --log-freq --log-steps", "--log-every", ""},
    Meaning{"--resume-from-checkpoint --resume-from --continue", "--resume", ""},
    Meaning{"--bf16 --fp16 --fp32 --mixed-precision --amp --tf32", "--precision", "auto, f32 or bf16"},
    Meaning{"--num-heads --n-heads --medusa-num-heads --hydra-num-heads --num-draft-heads", "--heads", ""},
    Meaning{"--num-layers --n-layers --medusa-num-layers --hydra-num-layers", "--layers", ""},
    Meaning{"-b --batch --train-batch-size --per-device-train-batch-size --micro-batch-size --global-batch-size",
            "--batch-size", ""},
    Meaning{"--gradient-accumulation-steps --grad-accum", "", "a step has --batch-size rows at once"},
    Meaning{"-c --ctx-size --n-ctx --num-ctx --ctx --context-size --context-length --context-len --max-context "
            "--max-model-len --max-seq-len --max-seq-length --seq-len --max-position-embeddings --context --cutoff-len "
            "--model-max-length",
            "--seq-len --context", kOwnContext},
    Meaning{"-t --n-threads --num-threads --nthreads --nproc --cpu-threads --threads-batch -tb --omp-num-threads "
            "--cores -j",
            "--threads", ""},
    Meaning{"--temp -temp", "--temperature", ""},
    Meaning{"-k --topk", "--top-k", ""},
    Meaning{"--topp --nucleus", "--top-p", ""},
    Meaning{"--minp", "--min-p", ""},
    Meaning{"-s --random-seed --rng-seed", "--seed", ""},
    Meaning{"--repeat-penalty --rep-penalty --rep-pen --repetition", "--repetition-penalty", ""},
    Meaning{"--repeat-last-n", "", "--repetition-penalty is over the whole prompt and output"},
    Meaning{"-sys --sys --system-prompt --system-message --system-prompt-file", "--system", ""},
    Meaning{"--chat-template --prompt-template --prompt-format --conv-template --conv-mode --conversation-template "
            "--chat-template-file --jinja --format",
            "--template", ""},
    Meaning{"-r --reverse-prompt --stop-sequence --stop-sequences --stop-string --stop-strings --stop-words", "--stop",
            ""},
    Meaning{"--no-eos --ignore-eos-token", "--ignore-eos", ""},
    Meaning{"-b --batch-size --n-batch -ub --ubatch-size --max-num-batched-tokens --prefill-step-size "
            "--chunk-size --chunked-prefill-size",
            "--prefill-chunk", "prompts are read in parts of a size that suits the machine"},
    Meaning{"-ctk --cache-type-k -ctv --cache-type-v --cache-type --kv-cache-dtype --kv-dtype --kv-cache-type",
            "--kv-type", ""},
    Meaning{"-q --dtype --torch-dtype --quantization --quantize --quant --quant-type --precision --wbits --bits "
            "--load-in-4bit --load-in-8bit --ftype",
            "--weights", ""},
    Meaning{"--do-sample --sample", "--temperature", "above 0 the text is sampled"},
    Meaning{"--greedy --greedy-search", "", "leave out --temperature, top-k, top-p and min-p: that is greedy"},
    Meaning{"--num-speculative-tokens --speculative-num-draft-tokens --draft-max --draft-n --spec-draft-n-max "
            "--num-assistant-tokens",
            "--draft-depth", ""},
    Meaning{"--medusa-choices --hydra-choices --tree-choices --draft-tree --choices", "--tree", ""},
    Meaning{"--draft-min-p --spec-draft-p-min --assistant-confidence-threshold", "--draft-p-min", ""},
    Meaning{"--prompt-lookup-num-tokens --prompt-lookup --lookup-ngram --ngram", "--lookup", ""},
    Meaning{"--prompt-lookup-min --ngram-prompt-lookup-min", "--lookup-min", ""},
    Meaning{"--prompt-lookup-max --ngram-prompt-lookup-max --max-matching-ngram-size", "--lookup-max-match", ""},
    Meaning{"--posterior-threshold", "--epsilon", ""},
    Meaning{"--posterior-alpha", "--alpha", ""},
    Meaning{"--typical --typical-p --typical-acceptance --typical-sampling", "--accept", "its value is 'typical'"},
    Meaning{"--verbose -v --verbose-prompt --timings --show-timings --perf --print-stats --profile", "--stats", ""},
    Meaning{"-o --output --output-file --out-file --save-path --save --outfile --output-dir --outdir --outtype",
            "--out OUT", "'> FILE' keeps what is printed"},
    Meaning{"--overwrite --overwrite-output-dir -y --yes", "--force", ""},
    Meaning{"--json-output --as-json", "--json", ""},
    Meaning{"--colour --no-color", "--color", ""},
    Meaning{"--head-dtype --head-quant", "--head-weights", ""},
    Meaning{"--add-special-tokens --bos", "--add-bos", ""},
    Meaning{"--no-add-special-tokens --no-add-bos", "--no-bos", ""},
    Meaning{"--skip-special-tokens --remove-special", "--skip-special", ""},
    Meaning{"--dataset --data --data-path --corpus --wikitext --dataset-name --dataset-path --train-file --train-data "
            "--training-data --train-data-path --train-dataset --prompts --suite",
            "--text --data", ""},
    Meaning{"-i --interactive --interactive-first -cnv --conversation --chat", "",
            "'hydrant run' without a prompt is a chat, in a terminal"},
    Meaning{"-hf --hf-repo -hfr --hf-file -mu --model-url --hub --repo --repo-id --revision", "",
            "hydrant downloads nothing: 'hf download ORG/NAME --local-dir DIR', then --model DIR"},
    Meaning{"-ngl --gpu-layers --n-gpu-layers -mg --main-gpu -sm --split-mode -ts --tensor-split --device "
            "--device-map -dev --gpu-memory-utilization --gpus -tp --tensor-parallel-size --num-gpus -ngld",
            "", kCpus},
    Meaning{"-fa --flash-attn --mlock --no-mmap --use-mmap --numa --no-kv-offload --enforce-eager --use-cache", "",
            "leave it out: there is nothing to choose here"},
    Meaning{"--lora --lora-scaled --lora-path --adapter --adapters --peft --enable-lora", "",
            "adapters are not read: merge them into the model first (peft's merge_and_unload)"},
    Meaning{"--api-key --api-keys", "--api-key-file", ""},
    Meaning{"--host --port --served-model-name", "", "'hydrant serve' is the server"},
    Meaning{"-np --parallel --max-num-seqs --max-concurrent-requests --max-num-sequences", "--max-batch", ""},
    Meaning{"-a --alias", "--served-model-name", ""},
    Meaning{"--ssl-cert-file --ssl-certfile", "--tls-cert", ""},
    Meaning{"--ssl-key-file --ssl-keyfile", "--tls-key", ""},
    Meaning{"--trust-remote-code", "", "leave it out: code from a model's folder is never run"},
    Meaning{"-no-cnv --no-conversation --raw", "", "--template none continues the text as it is"},
    Meaning{"--version -V", "", "'hydrant --version' prints the version"},
    Meaning{"--usage -?", "", "--help lists the flags"},
};

constexpr std::array kCommandsElsewhere = {
    Meaning{"generate gen complete completion completions chat infer inference predict sample talk ask prompt "
            "llama-cli main cli simple exec start interactive text-generation continue",
            "run", ""},
    Meaning{"server api api-server llama-server web openai", "serve", ""},
    Meaning{"quantize quant quantise pack llama-quantize export compress", "convert", ""},
    Meaning{"info show describe stat ls model check verify gguf-dump dump validate", "inspect", ""},
    Meaning{"encode tokenise tok llama-tokenize", "tokenize", ""},
    Meaning{"decode detokenise untokenize", "detokenize", ""},
    Meaning{"perplexity ppl llama-perplexity score", "eval ppl", ""},
    Meaning{"logits evaluate lm-eval", "eval", ""},
    Meaning{"benchmark llama-bench perf speed timing", "bench", ""},
    Meaning{"latency throughput", "bench latency", ""},
    Meaning{"step", "bench step", ""},
    Meaning{"roofline", "bench roofline", ""},
    Meaning{"heads draft", "bench heads", ""},
    Meaning{"trees choices presets", "tree list", ""},
    Meaning{"pull download fetch get hub", "",
            "hydrant downloads nothing: 'hf download ORG/NAME --local-dir DIR', then 'hydrant run --model DIR'"},
    Meaning{"finetune fine-tune fit training", "train heads", ""},
    Meaning{"distill distill-data self-distill", "train distill-data", ""},
    Meaning{"version", "--version", ""},
    Meaning{"usage commands", "--help", ""},
};

bool Lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(' '));
    if (entry == word) return true;
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
  }
  return false;
}

// "-n256" -> "-n"; "--Top_K" -> "--top-k", but one letter keeps its case; "-ctx-size" -> "--ctx-size" where that is
// known.
std::string Folded(std::string_view flag) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  if (flag.size() > 2 && flag[0] == '-' && flag[1] != '-' && std::ranges::all_of(flag.substr(2), digit)) {
    flag = flag.substr(0, 2);
  }
  std::string folded(flag);
  if (folded.size() <= 2) return folded;
  for (char& c : folded) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return folded;
}

std::string HintOf(const Meaning& meaning, std::string_view flag, std::span<const std::string_view> flags) {
  for (const std::string_view ours : flags) {
    if (!Lists(meaning.ours, ours)) continue;
    if (!ours.starts_with("-")) return fmt::format("{} stands there without a flag: leave out {}", ours, flag);
    constexpr std::array<std::string_view, 4> kWithSentence = {"--temperature", "--accept", "--tokens", "--precision"};
    const bool tells = std::ranges::find(kWithSentence, ours) != kWithSentence.end() && !meaning.sentence.empty();
    const std::string also = tells ? fmt::format(" ({})", meaning.sentence) : "";
    return fmt::format("{} is {} here{}", flag, ours, also);
  }
  return std::string(meaning.sentence);
}

}  // namespace

std::string ForeignFlagHint(std::string_view flag, std::span<const std::string_view> flags) {
  const std::string folded = Folded(flag);
  for (const std::string& word : {folded, "-" + folded}) {  // "-ctx-size", as some write it
    for (const std::string_view ours : flags) {
      if (word == ours) return fmt::format("{} is {} here", flag, ours);
    }
    for (const Meaning& meaning : kFlags) {
      if (!Lists(meaning.theirs, word)) continue;
      std::string hint = HintOf(meaning, flag, flags);
      if (!hint.empty()) return hint;
    }
  }
  return {};
}

std::string ForeignCommandHint(std::string_view word) {
  std::string folded(word);
  for (char& c : folded) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  while (folded.starts_with("-")) folded.erase(0, 1);
  for (const Meaning& meaning : kCommandsElsewhere) {
    if (!Lists(meaning.theirs, folded)) continue;
    if (!meaning.ours.empty()) return fmt::format("that is 'hydrant {}' here", meaning.ours);
    return std::string(meaning.sentence);
  }
  return {};
}

}  // namespace hydrant::cli
