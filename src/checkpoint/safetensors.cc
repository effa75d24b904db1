// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/packed_tensors.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

using base::Json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

std::optional<DType> DTypeOf(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, DType>, 7> kNames = {{{"F32", DType::kF32},
                                                                         {"F16", DType::kF16},
                                                                         {"BF16", DType::kBF16},
                                                                         {"I64", DType::kI64},
                                                                         {"I32", DType::kI32},
                                                                         {"U8", DType::kU8},
                                                                         {"BOOL", DType::kBool}}};
  for (const auto& [spelling, dtype] : kNames) {
    if (spelling == name) return dtype;
  }
  return std::nullopt;
}

struct HeaderEntry {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;  // begin, end in the data section
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

struct Header {
  std::map<std::string, HeaderEntry> entries;
  std::map<std::string, std::string, std::less<>> metadata;
};

// Fills a Header from parser events. A document tree of a hostile 100 MB header would take gigabytes; this takes what
// the entries need.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  Header Take() { return std::move(header_); }

  bool null() override;
  bool boolean(bool) override { Refuse("a boolean"); }
  bool number_float(number_float_t, const string_t&) override { Refuse("a fraction"); }
  bool binary(binary_t&) override { Refuse("binary data"); }
  bool number_integer(number_integer_t) override { Refuse("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool start_object(std::size_t) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool key(string_t& name) override;
  bool parse_error(std::size_t, const std::string&, const Json::exception& e) override {
    throw FileError(file_, "the header is not valid JSON: " + base::ProblemOf(e));
  }

 private:
  enum class At : uint8_t { kStart, kTop, kTensor, kNumbers, kMetadata, kEnd };

  // `what`: a value of the wrong kind. Names the key that it stands under.
  [[noreturn]] void Refuse(const std::string& what) const {
    const bool named = at_ != At::kStart && at_ != At::kEnd;
    const bool inside = at_ != At::kTop && !field_.empty();
    Throw(what + (named && inside ? " as '" + Printable(field_) + "'" : ""), named && !inside ? " as '" : " in '");
  }
  [[noreturn]] void RefuseTwice(const std::string& thing) const {
    throw FileError(file_, "the header has " + thing + " twice");
  }
  [[noreturn]] void RefuseKey(const std::string& what) const { Throw(what, " in '"); }
  [[noreturn]] void Throw(const std::string& what, const std::string& before_name) const {
    const bool named = at_ != At::kStart && at_ != At::kEnd;
    throw FileError(file_, "the header has " + what + (named ? before_name + Printable(name_) + "'" : "") +
                               ", expected {\"name\": {\"dtype\": .., \"shape\": [..], \"data_offsets\": [..]}, ..}");
  }

  const std::string& file_;
  Header header_;
  At at_ = At::kStart;
  std::string name_;   // of the tensor, or __metadata__
  std::string field_;  // key inside it
  HeaderEntry entry_;
  bool has_metadata_ = false;
};

// The safetensors library reads `"__metadata__": null` as a file without metadata, and refuses any other null.
bool HeaderReader::null() {
  if (at_ != At::kTop || name_ != "__metadata__") Refuse("null");
  if (has_metadata_) RefuseTwice("the key '__metadata__'");
  has_metadata_ = true;
  return true;
}

bool HeaderReader::key(string_t& name) {
  if (at_ == At::kTop) {
    name_ = name;
    field_.clear();
    return true;
  }
  field_ = name;
  if (at_ == At::kMetadata) {
    if (header_.metadata.contains(name)) RefuseKey("the key '" + Printable(name) + "' twice");
    return true;
  }
  bool* seen = nullptr;
  if (name == "dtype") seen = &entry_.has_dtype;
  if (name == "shape") seen = &entry_.has_shape;
  if (name == "data_offsets") seen = &entry_.has_offsets;
  if (seen == nullptr) RefuseKey("the key '" + Printable(name) + "'");
  if (*seen) RefuseKey("the key '" + Printable(name) + "' twice");
  *seen = true;
  return true;
}

bool HeaderReader::start_object(std::size_t) {
  if (at_ == At::kStart) {
    at_ = At::kTop;
  } else if (at_ == At::kTop && name_ == "__metadata__") {
    if (has_metadata_) RefuseTwice("the key '__metadata__'");
    has_metadata_ = true;
    at_ = At::kMetadata;
  } else if (at_ == At::kTop) {
    if (header_.entries.contains(name_)) RefuseTwice("tensor '" + Printable(name_) + "'");
    entry_ = HeaderEntry();
    at_ = At::kTensor;
  } else {
    Refuse("an object");
  }
  return true;
}

bool HeaderReader::end_object() {
  if (at_ == At::kTensor) {
    if (!entry_.has_dtype || !entry_.has_shape || !entry_.has_offsets) RefuseKey("no dtype, shape or data_offsets");
    header_.entries.emplace(name_, std::move(entry_));
  }
  at_ = at_ == At::kTop ? At::kEnd : At::kTop;
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  if (at_ != At::kTensor || field_ == "dtype") Refuse("an array");
  at_ = At::kNumbers;
  return true;
}

bool HeaderReader::end_array() {
  at_ = At::kTensor;
  return true;
}

bool HeaderReader::number_unsigned(number_unsigned_t value) {
  if (at_ != At::kNumbers) Refuse("a number");
  if (value > static_cast<uint64_t>(INT64_MAX)) Refuse("the number " + std::to_string(value));
  std::vector<int64_t>& numbers = field_ == "shape" ? entry_.shape : entry_.offsets;
  if (numbers.size() == kMaxRank) Refuse("more than 8 numbers");
  numbers.push_back(static_cast<int64_t>(value));
  return true;
}

bool HeaderReader::string(string_t& value) {
  if (at_ == At::kMetadata) {
    header_.metadata.emplace(field_, value);
  } else if (at_ == At::kTensor && field_ == "dtype") {
    entry_.dtype = value;
  } else {
    Refuse("text");
  }
  return true;
}

// The header's JSON text, and where the data begins.
std::string_view HeaderText(const FileBytes& file, uint64_t* data_begin) {
  uint64_t length = 0;
  if (file.bytes.size() < sizeof length) {
    throw FileError(file.path, "is " + std::to_string(file.bytes.size()) + " bytes, too short for a safetensors file",
                    "fetch it again: its download may have ended early");
  }
  std::memcpy(&length, file.bytes.data(), sizeof length);  // little-endian, as is every target of ours
  const uint64_t available = file.bytes.size() - sizeof length;
  if (length > kMaxHeaderBytes || length > available) {
    throw FileError(file.path,
                    "says that its header has " + std::to_string(length) + " bytes, expected at most " +
                        std::to_string(std::min(available, kMaxHeaderBytes)),
                    "the file is truncated or not a safetensors file");
  }
  *data_begin = sizeof length + length;
  const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()) + sizeof length, length);
  if (text.empty() || text.front() != '{') {
    throw FileError(file.path, "has a header that does not begin with '{'", "it is not a safetensors file");
  }
  return text;
}

Header ParseHeader(const FileBytes& file, std::string_view text) {
  HeaderReader reader(file.path);
  try {
    Json::sax_parse(text.begin(), text.end(), &reader);
  } catch (const Json::exception& e) {
    throw FileError(file.path, "the header is not valid JSON: " + base::ProblemOf(e));
  }
  return reader.Take();
}

DType CheckedDType(const FileBytes& file, const std::string& name, const std::string& dtype) {
  const std::optional<DType> known = DTypeOf(dtype);
  if (!known) {
    throw FileError(file.path,
                    "tensor '" + Printable(name) + "' has dtype " + Printable(dtype) +
                        ", expected F32, F16, BF16, I64, I32, U8 or BOOL",
                    "quantised checkpoints are not read; use the f32, f16 or bf16 release");
  }
  return *known;
}

// Checks that shape, dtype and offsets of one entry agree and lie in the data section.
StoredTensor CheckedEntry(const FileBytes& file, const std::string& name, const HeaderEntry& entry,
                          std::span<const uint8_t> data) {
  const DType dtype = CheckedDType(file, name, entry.dtype);
  const std::string thing = "tensor '" + Printable(name) + "'";
  if (entry.offsets.size() != 2 || entry.offsets[0] > entry.offsets[1] ||
      static_cast<uint64_t>(entry.offsets[1]) > data.size()) {
    throw FileError(file.path,
                    thing + " has data_offsets " + ShapeString(entry.offsets) + ", expected [begin, end] within the " +
                        std::to_string(data.size()) + " bytes of data",
                    "the file may be truncated");
  }
  const std::optional<int64_t> count = CheckedProduct(entry.shape);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<int64_t>(SizeOf(dtype)), &bytes) ||
      bytes != entry.offsets[1] - entry.offsets[0]) {
    throw FileError(file.path, thing + " is " + ShapeString(entry.shape) + " " + entry.dtype + " and has " +
                                   std::to_string(entry.offsets[1] - entry.offsets[0]) + " bytes of data, " +
                                   (count ? "expected " + std::to_string(bytes) : "too few for such a shape"));
  }
  StoredTensor tensor;
  tensor.view = {data.data() + entry.offsets[0], dtype, entry.shape, file.owner};
  tensor.file = file.path;
  return tensor;
}

// The format's rule: in order of their offsets, tensors follow each other without gaps, and the last one ends the file.
void CheckNoHoles(const FileBytes& file, const Header& header, uint64_t data_size) {
  std::vector<std::pair<std::pair<int64_t, int64_t>, const std::string*>> order;
  for (const auto& [name, entry] : header.entries) order.push_back({{entry.offsets[0], entry.offsets[1]}, &name});
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t end = 0;
  for (const auto& [offsets, name] : order) {
    if (offsets.first != end) {
      throw FileError(file.path, "tensor '" + Printable(*name) + "' begins at data offset " +
                                     std::to_string(offsets.first) + ", expected " + std::to_string(end) +
                                     " (tensors neither overlap nor leave gaps)");
    }
    end = offsets.second;
  }
  if (static_cast<uint64_t>(end) != data_size) {
    throw FileError(file.path,
                    "has " + std::to_string(data_size) + " bytes of data, its tensors cover " + std::to_string(end));
  }
}

// `safetensors.torch.save_model` drops all but one name of tied tensors and notes {dropped: stored} in the metadata.
void AddAliases(const FileBytes& file, const Header& header, FileSource* source) {
  for (const auto& [dropped, stored] : header.metadata) {
    const StoredTensor* tensor =
        dropped == "format" || dropped.starts_with("hydrant.") ? nullptr : source->Find(stored);
    if (tensor == nullptr || dropped == stored || !header.entries.contains(stored)) continue;
    if (header.entries.contains(dropped)) {
      throw FileError(file.path, "__metadata__ says that '" + Printable(dropped) + "' is stored as '" +
                                     Printable(stored) + "', but both are stored");
    }
    source->Add(dropped, *tensor);
  }
}

}  // namespace

std::unique_ptr<TensorSource> ReadSafetensors(const FileBytes& file) {
  uint64_t data_begin = 0;
  const std::string_view text = HeaderText(file, &data_begin);
  const Header header = ParseHeader(file, text);
  const std::span<const uint8_t> data = file.bytes.subspan(data_begin);

  auto source = std::make_unique<FileSource>(file.path);
  source->AddFile(file.path);
  uint64_t next_storage = 1;
  for (const auto& [name, entry] : header.entries) {
    StoredTensor tensor = CheckedEntry(file, name, entry, data);
    tensor.storage_id = next_storage++;
    source->Add(name, std::move(tensor));
  }
  CheckNoHoles(file, header, data.size());
  AttachPackedTensors(file.path, header.metadata, source.get());
  AddAliases(file, header, source.get());
  source->SetMetadata(header.metadata);
  return source;
}

}  // namespace hydrant::checkpoint
