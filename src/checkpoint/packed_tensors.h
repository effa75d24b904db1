// SPDX-License-Identifier: Apache-2.0
// The metadata of a converted file: which tensors are packed, and how. docs/formats.md.
#pragma once

#include <map>
#include <string>

#include "checkpoint/file_source.h"

namespace hydrant::checkpoint {

// Layouts of kernels/packed.h. A file of another one is refused: its panels would be read as wrong weights. (1 was
// lines with all table numbers of a panel before its codes, 2 was interleaved with lines of 8 outputs by 16 inputs; 3
// and 4 were lines and interleaved with tables of their own for each output.)
inline constexpr const char* kInterleavedLayout = "6";
inline constexpr const char* kLinesLayout = "5";

// Keys of `__metadata__`.
inline constexpr const char* kLayoutKey = "hydrant.layout";
inline constexpr const char* kPackedKey = "hydrant.packed";  // JSON: {name: {"format", "shape", "slices"}}
inline constexpr const char* kSourceKey = "hydrant.source";
inline constexpr const char* kSourceHashKey = "hydrant.source_hash";
// Tensors that belong to packed ones.
inline constexpr const char* kDictionaryName = "hydrant.dictionary";
inline constexpr const char* kScalesSuffix = ".scales";

using Metadata = std::map<std::string, std::string, std::less<>>;

// Where the metadata name packed tensors: checks that what they say agrees with the tensors, gives each its
// PackedTensor, and takes scales and dictionary off the list. Sizes that follow from the layout are checked where
// weights are made of them (model/packed_file.h). Throws FileError.
void AttachPackedTensors(const std::string& file, const Metadata& metadata, FileSource* source);

}  // namespace hydrant::checkpoint
