// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/torch_zip.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/pickle.h"
#include "checkpoint/zip_archive.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

constexpr uint64_t kMaxPickleBytes = uint64_t{64} << 20;  // about 0.5 KB describe a tensor
// Strided views are copied. Views that do not repeat elements add up to the file's size at most once each; a few may
// overlap.
constexpr uint64_t kMaxCopiesOfFile = 4;

bool BeginsWith(std::span<const uint8_t> bytes, std::span<const uint8_t> magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

void CheckIsZip(const FileBytes& file) {
  constexpr std::array<uint8_t, 4> kZip = {'P', 'K', 3, 4};
  // A pickled LONG1, 0x1950a86a20f9469cfc6c: torch's magic number before 1.6.
  constexpr std::array<uint8_t, 14> kLegacy = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c,
                                               0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
  if (BeginsWith(file.bytes, kZip)) return;
  if (BeginsWith(file.bytes, kLegacy)) {
    throw FileError(file.path, "is in PyTorch's format before torch 1.6 (raw pickles), expected the zip format",
                    "load it with torch.load and save it again with torch.save, or convert it to safetensors");
  }
  throw FileError(file.path, "is not a PyTorch zip file (it does not begin with 'PK')");
}

// "archive/" of "archive/data.pkl"; torch names the folder after the file.
std::string FindPrefix(const FileBytes& file, const ZipArchive& zip) {
  constexpr std::string_view kPickle = "/data.pkl";
  std::string prefix;
  for (const std::string& name : zip.Names()) {
    const bool found = name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size();
    if (!found) continue;
    if (!prefix.empty()) throw FileError(file.path, "has more than one data.pkl, expected one");
    prefix = name.substr(0, name.size() - kPickle.size() + 1);
  }
  if (prefix.empty()) throw FileError(file.path, "is a zip file without data.pkl, expected what torch.save writes");
  return prefix;
}

void CheckArchiveKind(const FileBytes& file, const std::string& prefix, const ZipArchive& zip) {
  if (zip.Has(prefix + "constants.pkl")) {
    throw FileError(file.path, "is a TorchScript archive (it holds constants.pkl), expected a state dict",
                    "load it with torch.jit.load and torch.save its state_dict()");
  }
  const std::string byte_order = prefix + "byteorder";
  if (!zip.Has(byte_order)) return;  // written since torch 2.1
  const std::string_view order = zip.Read(byte_order, 64);
  if (order != "little") {
    throw FileError(file.path, "has byte order '" + Printable(order) + "', expected 'little'",
                    "convert it to safetensors on the machine that wrote it");
  }
}

bool IsContiguous(const PickledTensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];  // at most the number of elements, which was checked
  }
  return true;
}

// Index of the last element that the view reads, or nothing on overflow. No extent is zero.
std::optional<int64_t> LastElement(const PickledTensor& tensor) {
  int64_t last = tensor.offset;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach)) return std::nullopt;
    if (__builtin_add_overflow(last, reach, &last)) return std::nullopt;
  }
  return last;
}

// Copies a checked view element by element, last dimension innermost.
void CopyStrided(const PickledTensor& tensor, const uint8_t* storage, uint8_t* out) {
  const size_t width = SizeOf(tensor.dtype);
  const size_t rank = tensor.shape.size();
  std::vector<int64_t> index(rank, 0);
  int64_t element = tensor.offset;
  for (;;) {
    for (int64_t i = 0; i < tensor.shape[rank - 1]; ++i) {
      std::memcpy(out, storage + static_cast<size_t>(element + i * tensor.strides[rank - 1]) * width, width);
      out += width;
    }
    size_t d = rank - 1;
    for (; d-- > 0;) {
      element += tensor.strides[d];
      if (++index[d] < tensor.shape[d]) break;
      element -= tensor.shape[d] * tensor.strides[d];
      index[d] = 0;
    }
    if (d == static_cast<size_t>(-1)) return;
  }
}

// Turns what data.pkl says into views of the storages' zip entries.
class Storages {
 public:
  Storages(const FileBytes& file, std::string prefix, const ZipArchive& zip)
      : file_(file), prefix_(std::move(prefix)), zip_(&zip) {}

  // Equal views of one storage become the same StoredTensor.
  StoredTensor View(const std::string& name, PickledTensor tensor);
  uint64_t bytes_copied() const { return bytes_copied_; }

 private:
  using Key = std::tuple<std::string, DType, int64_t, std::vector<int64_t>, std::vector<int64_t>>;

  [[noreturn]] void Fail(const std::string& name, const std::string& problem, const std::string& hint = {}) const {
    throw FileError(file_.path, "tensor '" + Printable(name) + "' " + problem, hint);
  }
  std::span<const uint8_t> Bytes(const std::string& name, const PickledTensor& tensor);
  void CheckBounds(const std::string& name, const PickledTensor& tensor) const;
  TensorView Copy(const std::string& name, const PickledTensor& tensor, std::span<const uint8_t> storage);

  const FileBytes& file_;
  std::string prefix_;
  const ZipArchive* zip_;
  std::map<std::string, std::span<const uint8_t>> storages_;
  std::map<Key, StoredTensor> views_;
  uint64_t bytes_copied_ = 0;
};

std::span<const uint8_t> Storages::Bytes(const std::string& name, const PickledTensor& tensor) {
  const auto known = storages_.find(tensor.storage_key);
  const std::span<const uint8_t> bytes =
      known != storages_.end() ? known->second : zip_->Stored(prefix_ + "data/" + tensor.storage_key);
  storages_.emplace(tensor.storage_key, bytes);
  int64_t expected = 0;
  if (__builtin_mul_overflow(tensor.storage_elements, static_cast<int64_t>(SizeOf(tensor.dtype)), &expected) ||
      static_cast<uint64_t>(expected) != bytes.size()) {
    Fail(name, "has a storage of " + std::to_string(bytes.size()) + " bytes, expected " +
                   std::to_string(tensor.storage_elements) + " elements of " + NameOf(tensor.dtype));
  }
  return bytes;
}

void Storages::CheckBounds(const std::string& name, const PickledTensor& tensor) const {
  const std::optional<int64_t> count = CheckedProduct(tensor.shape);
  if (count == 0 && tensor.offset <= tensor.storage_elements) return;
  const std::optional<int64_t> last = count && *count > 0 ? LastElement(tensor) : std::nullopt;
  if (!last || *last >= tensor.storage_elements) {
    Fail(name, "of shape " + ShapeString(tensor.shape) + " and strides " + ShapeString(tensor.strides) + " at offset " +
                   std::to_string(tensor.offset) + " reaches beyond its storage of " +
                   std::to_string(tensor.storage_elements) + " elements");
  }
  // A view that repeats elements (stride 0) could ask for any amount of memory.
  if (*count > tensor.storage_elements) {
    Fail(name,
         "has " + std::to_string(*count) + " elements in a storage of " + std::to_string(tensor.storage_elements) +
             ": an expanded view is refused",
         "save it with .contiguous()");
  }
}

TensorView Storages::Copy(const std::string& name, const PickledTensor& tensor, std::span<const uint8_t> storage) {
  TensorView view;
  view.dtype = tensor.dtype;
  view.shape = tensor.shape;
  const size_t bytes = view.num_bytes();
  if (bytes > kMaxCopiesOfFile * file_.bytes.size() - bytes_copied_) {
    Fail(name,
         "is one of many overlapping strided views: unpacked they exceed " + std::to_string(kMaxCopiesOfFile) +
             " times the file",
         "save the tensors with .contiguous()");
  }
  bytes_copied_ += bytes;
  const std::shared_ptr<uint8_t[]> copy(new uint8_t[bytes]);
  CopyStrided(tensor, storage.data(), copy.get());
  view.data = copy.get();
  view.owner = copy;
  return view;
}

StoredTensor Storages::View(const std::string& name, PickledTensor tensor) {
  const std::span<const uint8_t> storage = Bytes(name, tensor);
  CheckBounds(name, tensor);
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 1) tensor.strides[i] = 0;  // arbitrary in the file
  }
  const bool contiguous = CheckedProduct(tensor.shape) == 0 || IsContiguous(tensor);
  if (contiguous) tensor.strides.clear();
  const Key key{tensor.storage_key, tensor.dtype, tensor.offset, tensor.shape, tensor.strides};
  if (const auto known = views_.find(key); known != views_.end()) return known->second;

  StoredTensor stored;
  stored.file = file_.path;
  stored.storage_id = views_.size() + 1;
  if (contiguous) {
    const uint8_t* begin = storage.empty() ? file_.bytes.data() : storage.data();
    stored.view = {begin + static_cast<size_t>(tensor.offset) * SizeOf(tensor.dtype), tensor.dtype, tensor.shape,
                   file_.owner};
  } else {
    stored.view = Copy(name, tensor, storage);
  }
  views_.emplace(key, stored);
  return stored;
}

}  // namespace

std::unique_ptr<TensorSource> ReadTorchZip(const FileBytes& file) {
  CheckIsZip(file);
  const ZipArchive zip(file);
  const std::string prefix = FindPrefix(file, zip);
  CheckArchiveKind(file, prefix, zip);
  const std::string_view pickle = zip.Read(prefix + "data.pkl", kMaxPickleBytes);

  auto source = std::make_unique<FileSource>(file.path);
  source->AddFile(file.path);
  Storages storages(file, prefix, zip);
  for (auto& [name, tensor] : ReadStateDict(pickle, file.path)) {
    source->Add(name, storages.View(name, std::move(tensor)));
  }
  source->AddBytesCopied(storages.bytes_copied());
  return source;
}

}  // namespace hydrant::checkpoint
