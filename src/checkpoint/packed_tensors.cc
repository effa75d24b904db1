// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_tensors.h"

#include <utility>

#include "base/json.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 40;
constexpr int64_t kMaxSlices = 256;

constexpr const char* kConvertAgain = "convert it again with this version's 'hydrant convert'";

const StoredTensor& Required(const std::string& file, const FileSource& source, const std::string& name, DType dtype,
                             size_t rank) {
  const StoredTensor* stored = source.Find(name);
  if (stored == nullptr) {
    throw FileError(file, "tensor '" + Printable(name) + "' is missing, which '" + kPackedKey + "' calls for");
  }
  if (stored->view.dtype != dtype || stored->view.shape.size() != rank) {
    throw FileError(file, "tensor '" + Printable(name) + "' is " + NameOf(stored->view.dtype) + " " +
                              ShapeString(stored->view.shape) + ", expected " + NameOf(dtype) + " with " +
                              std::to_string(rank) + " dimensions (a packed tensor)");
  }
  return *stored;
}

PackedTensor ReadEntry(const base::JsonView& entry) {
  PackedTensor packed;
  packed.format = Printable(entry.At("format").String());
  packed.shape = entry.At("shape").IntList(1, kMaxExtent);
  if (packed.shape.size() != 2) entry.At("shape").Fail("two extents");
  packed.slices = entry.At("slices").Int(1, kMaxSlices);
  if (packed.shape[1] % packed.slices != 0) entry.At("slices").Fail("a divisor of the inputs");
  return packed;
}

}  // namespace

void AttachPackedTensors(const std::string& file, const Metadata& metadata, FileSource* source) {
  const auto version = metadata.find(kLayoutKey);
  const auto list = metadata.find(kPackedKey);
  if (version == metadata.end() && list == metadata.end()) return;
  if (version == metadata.end() || (version->second != kLinesLayout && version->second != kInterleavedLayout)) {
    throw FileError(file,
                    std::string("has packed weights of layout ") +
                        (version == metadata.end() ? "unknown" : Printable(version->second)) + ", expected layout " +
                        kInterleavedLayout + " or " + kLinesLayout,
                    kConvertAgain);
  }
  if (list == metadata.end()) {
    throw FileError(file, std::string("the header's metadata have no '") + kPackedKey + "'", kConvertAgain);
  }
  const std::string place = file + " ('" + kPackedKey + "' of its metadata)";
  const base::Json json = base::ParseJson(list->second, place);
  const base::JsonView view(json, place);
  if (!view.is_object()) view.Fail("an object");
  TensorView dictionary;
  if (source->Find(kDictionaryName) != nullptr) {
    dictionary = Required(file, *source, kDictionaryName, DType::kU8, 2).view;
    source->Remove(kDictionaryName);
  }
  for (const auto& [name, ignored] : json.items()) {
    PackedTensor packed = ReadEntry(view.At(name));
    Required(file, *source, name, DType::kU8, 3);
    packed.scales = Required(file, *source, name + kScalesSuffix, DType::kF32, 2).view;
    packed.dictionary = dictionary;
    packed.interleaved = version->second == kInterleavedLayout;
    source->MarkPacked(name, std::make_shared<const PackedTensor>(std::move(packed)));
    source->Remove(name + kScalesSuffix);
  }
}

}  // namespace hydrant::checkpoint
