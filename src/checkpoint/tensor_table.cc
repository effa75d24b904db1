// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_table.h"

#include <utility>

#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

std::vector<int64_t> ExpectedShape(const TensorRow& row) {
  std::vector<int64_t> shape;
  for (const Extent& extent : row.shape) shape.push_back(extent.value);
  return shape;
}

// "vocab_size, hidden_size": the words for the extents that differ from `found`, for all where the ranks differ; only
// those that `file` says.
std::string Symbols(const TensorRow& row, const std::vector<int64_t>& found, const std::string& file) {
  std::string symbols;
  for (size_t i = 0; i < row.shape.size(); ++i) {
    const Extent& extent = row.shape[i];
    const bool differs = found.size() != row.shape.size() || found[i] != extent.value;
    if (!differs || extent.symbol.empty() || extent.file != file || symbols.ends_with(extent.symbol)) continue;
    symbols += (symbols.empty() ? "" : ", ") + extent.symbol;
  }
  return symbols;
}

// "inner_dim of heads/config.json": the words for the extents that another config says than the loader's.
std::string OtherSymbols(const TensorRow& row, const std::vector<int64_t>& found) {
  for (const Extent& extent : row.shape) {
    const std::string symbols = extent.file.empty() ? "" : Symbols(row, found, extent.file);
    if (!symbols.empty()) return symbols + " of " + extent.file;
  }
  return {};
}

// "expected [4096, 8192] (2 * hidden_size of vicuna/config.json: head 0 sees the hidden state and one embedding)".
std::string Expected(const TensorRow& row, const std::vector<int64_t>& found, const std::string& config_file) {
  std::string text = "expected " + ShapeString(ExpectedShape(row));
  std::string reason = Symbols(row, found, {});
  const std::string other = OtherSymbols(row, found);
  if (!config_file.empty() && (!reason.empty() || other.empty())) {
    reason += (reason.empty() ? "by " : " of ") + config_file;
  }
  if (!other.empty()) reason += (reason.empty() ? "" : ", ") + other;
  if (!row.note.empty()) reason += (reason.empty() ? "" : ": ") + row.note;
  return reason.empty() ? text : text + " (" + reason + ")";
}

}  // namespace

TableLoader::TableLoader(const TensorSource& source, std::string config_file)
    : source_(&source), config_file_(std::move(config_file)) {}

const StoredTensor* TableLoader::TakeStored(const TensorRow& row) {
  if (row.presence == Presence::kUnused) {
    Ignore(row.name);
    return nullptr;
  }
  std::string name = row.name;
  const StoredTensor* stored = source_->Find(name);
  if (stored == nullptr && !row.tied_to.empty()) {
    name = row.tied_to;
    stored = source_->Find(name);
  }
  if (stored == nullptr) {
    if (row.presence == Presence::kOptional) return nullptr;
    throw FileError(source_->display_name(), "tensor '" + row.name + "' is missing, " + Expected(row, {}, config_file_),
                    row.hint);
  }
  const std::vector<int64_t>& shape = stored->shape();
  if (shape != ExpectedShape(row)) {
    throw FileError(stored->file,
                    "tensor '" + name + "' is " + ShapeString(shape) + ", " + Expected(row, shape, config_file_),
                    row.hint);
  }
  if (!stored->packed && !IsFloat(stored->view.dtype)) {
    throw FileError(stored->file,
                    "tensor '" + name + "' has dtype " + NameOf(stored->view.dtype) + ", expected f32, f16 or bf16",
                    row.hint);
  }
  taken_.insert(name);
  used_.insert(name);
  if (storages_.insert(stored->storage_id).second) bytes_taken_ += stored->bytes();
  return stored;
}

TensorView TableLoader::Take(const TensorRow& row) {
  const StoredTensor* stored = TakeStored(row);
  if (stored == nullptr) return {};
  if (stored->packed) {
    throw FileError(stored->file,
                    "tensor '" + row.name + "' is packed in " + stored->packed->format + ", expected f32, f16 or bf16");
  }
  return stored->view;
}

void TableLoader::Ignore(const std::string& name) {
  if (source_->Find(name) != nullptr) taken_.insert(name);
}

std::vector<std::string> TableLoader::Left() const {
  std::vector<std::string> left;
  for (const auto& [name, tensor] : source_->tensors()) {
    if (!taken_.contains(name)) left.push_back(name);
  }
  return left;
}

void TableLoader::Finish(const std::string& why) const {
  const std::vector<std::string> left = Left();
  if (left.empty()) return;
  const StoredTensor* stored = source_->Find(left.front());
  std::string problem = "tensor '" + left.front() + "' " + ShapeString(stored->view.shape) + " is not expected here";
  if (left.size() > 1) problem += " (and " + std::to_string(left.size() - 1) + " more)";
  if (!why.empty()) {
    problem += ": " + why;
  } else if (!config_file_.empty()) {
    problem += ": " + config_file_ + " describes a model without it";
  }
  throw FileError(stored->file, problem);
}

}  // namespace hydrant::checkpoint
