// SPDX-License-Identifier: Apache-2.0
// Shared objects beside the program that `hydrant train` alone loads.
#pragma once

#include <exception>
#include <span>
#include <string>

#include "train/tokenizer/train_tokenizer.h"

namespace hydrant::cli {

struct Module {
  const char* file;
  const char* entry;  // the one function that it exports
  int mode;           // of dlopen
  const char* lacks;  // what a build without the module has not: "training"
  const char* hint;   // how to get it
};

// The function. Throws UserError where the module is missing, or is none of ours.
void* EntryOf(const Module& module);

// hydrant-train.so: what needs libtorch. It returns the exit code.
using TrainEntry = int (*)(int count, const char* const* words);
extern const Module kTrainModule;

// hydrant-tokenizer.so: SentencePiece's trainer. That calls the protobuf inside libsentencepiece; within
// hydrant-train.so it would meet libtorch's in its place, and crash.
struct TokenizerJob {
  std::span<const std::string> files;
  const train::TokenizerOptions* options = nullptr;
  std::string model = {};  // the result
  std::exception_ptr error = {};
};
using TokenizerEntry = void (*)(TokenizerJob* job);
extern const Module kTokenizerModule;

// train::TrainTokenizer, in its module.
std::string TrainTokenizerInModule(std::span<const std::string> files, const train::TokenizerOptions& options);

}  // namespace hydrant::cli
