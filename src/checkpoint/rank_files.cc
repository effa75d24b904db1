// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rank_files.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/paths.h"
#include "checkpoint/file_source.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

constexpr const char* kConvertWithItsTool = "convert the checkpoint again with the tool that wrote it";

bool IsRows(ShardAxis axis) { return axis == ShardAxis::kOutputs || axis == ShardAxis::kVocabulary; }

size_t RowBytes(const TensorView& view) { return view.num_bytes() / static_cast<size_t>(view.shape.front()); }

// Joins the parts that the ranks hold of one tensor.
class Joiner {
 public:
  Joiner(const std::string& name, std::vector<const StoredTensor*> parts) : name_(name), parts_(std::move(parts)) {
    for (const StoredTensor* part : parts_) {
      const TensorView &view = part->view, &first = parts_.front()->view;
      if (part->packed) Fail(*part, "is packed in " + part->packed->format + ", expected floats: ranks hold no others");
      if (view.num_elements() == 0) Fail(*part, "is empty");
      if (view.dtype == first.dtype && view.shape == first.shape) continue;
      Fail(*part, std::string("is ") + hydrant::NameOf(view.dtype) + " " + ShapeString(view.shape) + ", expected " +
                      hydrant::NameOf(first.dtype) + " " + ShapeString(first.shape) + " as in " + RankFileName(0));
    }
  }

  // `rows` of the weight's part where this is its bias, else 0.
  StoredTensor Join(ShardAxis axis, int64_t rows, int64_t vocab_size) const {
    const TensorView& first = parts_.front()->view;
    const bool is_whole = first.shape.empty() || (rows > 0 && first.shape.front() != rows);
    if (is_whole || axis == ShardAxis::kReplicated) return Same();
    if (axis == ShardAxis::kInputs) return JoinColumns();
    StoredTensor joined = JoinRows();
    if (axis == ShardAxis::kVocabulary && vocab_size > 0) CutRows(joined, vocab_size);
    return joined;
  }

 private:
  [[noreturn]] void Fail(const StoredTensor& part, const std::string& problem) const {
    throw FileError(part.file, "tensor '" + Printable(name_) + "' " + problem, kConvertWithItsTool);
  }

  StoredTensor Same() const {
    const TensorView& first = parts_.front()->view;
    for (const StoredTensor* part : parts_) {
      if (std::memcmp(part->view.data, first.data, first.num_bytes()) == 0) continue;
      Fail(*part, "differs from that of " + RankFileName(0) + ", expected the same in every rank (it is not split)");
    }
    return *parts_.front();
  }

  StoredTensor WithRoom(std::vector<int64_t> shape, uint8_t** room) const {
    StoredTensor joined = *parts_.front();
    joined.view.shape = std::move(shape);
    const std::shared_ptr<uint8_t[]> memory(new uint8_t[joined.view.num_bytes()]);
    *room = memory.get();
    joined.view.data = memory.get();
    joined.view.owner = memory;
    return joined;
  }

  StoredTensor JoinRows() const {
    std::vector<int64_t> shape = parts_.front()->view.shape;
    shape.front() *= static_cast<int64_t>(parts_.size());
    uint8_t* out = nullptr;
    StoredTensor joined = WithRoom(std::move(shape), &out);
    for (const StoredTensor* part : parts_) {
      std::memcpy(out, part->view.data, part->view.num_bytes());
      out += part->view.num_bytes();
    }
    return joined;
  }

  StoredTensor JoinColumns() const {
    std::vector<int64_t> shape = parts_.front()->view.shape;
    if (shape.size() != 2) Fail(*parts_.front(), "is " + ShapeString(shape) + ", expected a matrix, split by inputs");
    const int64_t rows = shape.front();
    shape.back() *= static_cast<int64_t>(parts_.size());
    uint8_t* out = nullptr;
    StoredTensor joined = WithRoom(std::move(shape), &out);
    for (int64_t r = 0; r < rows; ++r) {
      for (const StoredTensor* part : parts_) {
        const size_t bytes = RowBytes(part->view);
        std::memcpy(out, part->view.data + static_cast<size_t>(r) * bytes, bytes);
        out += bytes;
      }
    }
    return joined;
  }

  // Padding has at most a row less than there are ranks; more would be tokens.
  void CutRows(StoredTensor& joined, int64_t vocab_size) const {
    const int64_t rows = joined.view.shape.front(), ranks = static_cast<int64_t>(parts_.size());
    if (rows < vocab_size || rows - vocab_size >= ranks) {
      Fail(*parts_.front(), "has " + std::to_string(rows) + " rows in " + std::to_string(ranks) + " ranks, expected " +
                                std::to_string((vocab_size + ranks - 1) / ranks * ranks) + " (vocab_size " +
                                std::to_string(vocab_size) + " of config.json, padded to a multiple of the ranks)");
    }
    joined.view.shape.front() = vocab_size;
  }

  const std::string& name_;
  std::vector<const StoredTensor*> parts_;  // by rank
};

std::vector<std::unique_ptr<TensorSource>> OpenAll(const RankFiles& files) {
  std::vector<std::unique_ptr<TensorSource>> ranks;
  for (int64_t rank = 0; rank < files.count; ++rank) {
    ranks.push_back(OpenTensorFile((std::filesystem::path(files.folder) / RankFileName(rank)).string()));
  }
  return ranks;
}

// The tensor in each rank.
std::vector<const StoredTensor*> PartsOf(const std::string& name,
                                         const std::vector<std::unique_ptr<TensorSource>>& ranks) {
  std::vector<const StoredTensor*> parts;
  for (const auto& rank : ranks) {
    parts.push_back(rank->Find(name));
    if (parts.back() != nullptr) continue;
    throw FileError(rank->display_name(),
                    "lacks tensor '" + Printable(name) + "', which " + RankFileName(0) +
                        " holds: ranks of one "
                        "checkpoint hold the same names",
                    kConvertWithItsTool);
  }
  return parts;
}

void RefuseFurtherNames(const TensorSource& first, const TensorSource& rank, const AxisOf& axis_of) {
  for (const auto& [name, tensor] : rank.tensors()) {
    if (first.Find(name) != nullptr || !axis_of(name)) continue;
    throw FileError(rank.display_name(),
                    "holds tensor '" + Printable(name) + "', which " + RankFileName(0) +
                        " lacks: ranks of one "
                        "checkpoint hold the same names",
                    kConvertWithItsTool);
  }
}

// Rows of the weight that a bias goes with; 0: it is no bias, or goes with none.
int64_t RowsOfWeight(const TensorSource& rank, const std::string& name) {
  constexpr std::string_view kBias = ".bias";
  if (!name.ends_with(kBias)) return 0;
  const StoredTensor* weight = rank.Find(name.substr(0, name.size() - kBias.size()) + ".weight");
  return weight == nullptr || weight->view.shape.empty() ? 0 : weight->view.shape.front();
}

}  // namespace

std::string RankFileName(int64_t rank) { return "rank" + std::to_string(rank) + ".safetensors"; }

std::vector<int64_t> RanksIn(const std::string& folder) {
  constexpr std::string_view kBegin = "rank", kEnd = ".safetensors";
  std::vector<int64_t> ranks;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) continue;
    int64_t rank = -1;
    std::from_chars(name.data() + kBegin.size(), name.data() + name.size() - kEnd.size(), rank);
    if (rank >= 0 && name == RankFileName(rank)) ranks.push_back(rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

std::unique_ptr<TensorSource> JoinRanks(const RankFiles& files, const AxisOf& axis_of) {
  HYDRANT_CHECK(files.count > 0);
  const std::vector<std::unique_ptr<TensorSource>> ranks = OpenAll(files);
  auto joined = std::make_unique<FileSource>(ranks.front()->display_name());
  for (const auto& rank : ranks) {
    joined->AddFile(rank->display_name());
    RefuseFurtherNames(*ranks.front(), *rank, axis_of);
  }
  uint64_t storage_id = 0;
  for (const auto& [name, tensor] : ranks.front()->tensors()) {
    const std::optional<ShardAxis> axis = axis_of(name);
    if (!axis) continue;
    StoredTensor stored =
        Joiner(name, PartsOf(name, ranks)).Join(*axis, RowsOfWeight(*ranks.front(), name), files.vocab_size);
    stored.storage_id = ++storage_id;
    if (stored.view.data != tensor.view.data) joined->AddBytesCopied(stored.view.num_bytes());
    joined->Add(name, std::move(stored));
  }
  return joined;
}

std::optional<std::vector<int64_t>> PartShape(const std::vector<int64_t>& shape, ShardAxis axis, int64_t count) {
  std::vector<int64_t> part = shape;
  if (axis == ShardAxis::kReplicated || count == 1) return part;
  if (part.empty() || (axis == ShardAxis::kInputs && part.size() != 2)) return std::nullopt;
  int64_t& extent = axis == ShardAxis::kInputs ? part.back() : part.front();
  if (axis != ShardAxis::kVocabulary && extent % count != 0) return std::nullopt;
  extent = (extent + count - 1) / count;
  return part;
}

void ForEachPiece(const TensorView& view, ShardAxis axis, const Part& part,
                  const std::function<void(const uint8_t* bytes, size_t size)>& take) {
  const std::optional<std::vector<int64_t>> shape = PartShape(view.shape, axis, part.count);
  HYDRANT_CHECK(shape.has_value());
  if (axis == ShardAxis::kReplicated || part.count == 1) return take(view.data, view.num_bytes());
  const size_t row_bytes = RowBytes(view);
  if (IsRows(axis)) {
    const int64_t rows = shape->front(), first = std::min(part.rank * rows, view.shape.front());
    const int64_t here = std::min(rows, view.shape.front() - first);
    take(view.data + static_cast<size_t>(first) * row_bytes, static_cast<size_t>(here) * row_bytes);
    if (here < rows) take(nullptr, static_cast<size_t>(rows - here) * row_bytes);
    return;
  }
  const size_t width = row_bytes / static_cast<size_t>(part.count);
  for (int64_t r = 0; r < view.shape.front(); ++r) {
    take(view.data + static_cast<size_t>(r) * row_bytes + static_cast<size_t>(part.rank) * width, width);
  }
}

}  // namespace hydrant::checkpoint
