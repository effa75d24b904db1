// SPDX-License-Identifier: Apache-2.0
// A recording in a file, so that what follows it can begin again without it. A line of JSON says what it is of and how
// long its parts are; behind it stand the tokens, 4 bytes each, and the ranks, 1 byte each.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/record.h"

namespace hydrant::eval {

// What a recording hangs on. With another key it is another one.
struct RecordingKey {
  std::string model, heads;  // hashes of their folders' files (checkpoint/content_hash.h); empty: there is no folder
  std::string prompts;       // hash of the ids
  std::string settings;      // sampling, stop rules, levels and ranks, number types, CPU target

  bool operator==(const RecordingKey&) const = default;
};

// Reads all files of both folders, trees.json aside: a search writes that. `look` is called now and then, and may throw
// to end it. `options` as for Record.
RecordingKey KeyOf(const load::LoadedModel& loaded, std::span<const std::vector<int32_t>> prompts,
                   const RecordOptions& options, const std::function<void()>& look = {});

// The file appears whole or not at all. Throws FileError.
void WriteRecording(const std::string& path, const RecordingKey& key, const Recording& recording);

// Throws FileError for a file that is none, is damaged, or is of another key: it says which part differs.
Recording ReadRecording(const std::string& path, const RecordingKey& key);

}  // namespace hydrant::eval
