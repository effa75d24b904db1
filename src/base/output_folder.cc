// SPDX-License-Identifier: Apache-2.0
#include "base/output_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "hydrant/error.h"

namespace hydrant::base {
namespace {

namespace fs = std::filesystem;

bool Holds(const fs::path& outer, const fs::path& inner) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// Neither of them, nor the folder that we run in, nor a folder that holds one: it would be gone once Keep has replaced
// it.
void CheckHoldsNoSource(const std::string& target, const std::vector<std::string>& sources) {
  std::error_code error;
  const fs::path outer = fs::canonical(target, error);
  for (const std::string& source : sources) {
    const fs::path inner = fs::canonical(source, error);
    if (error) continue;  // who reads it says so
    if (!Holds(outer, inner)) continue;
    const std::string what = inner == outer ? "is what is read" : "holds " + source + ", which is read";
    throw FileError(target, what + ": it would be lost", "name another folder to write");
  }
  const fs::path here = fs::current_path(error);
  if (!error && Holds(outer, here)) {
    throw FileError(target, here == outer ? "is the folder that this runs in" : "holds the folder that this runs in",
                    "run it from another folder, or name another one to write");
  }
}

// Made by us before, and nothing in it that we never make. `folder` is where `target` lies now.
void CheckIsOurs(const std::string& folder, const std::string& target) {
  std::error_code ignored;
  if (fs::is_empty(folder, ignored)) return;
  if (!fs::exists(fs::path(folder) / OutputFolder::kMark, ignored)) {
    throw FileError(target, std::string("holds no ") + OutputFolder::kMark + ": only a converted folder is replaced",
                    "remove it yourself, or name another folder");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.is_directory(ignored)) continue;
    throw FileError(target, "holds a folder, " + entry.path().filename().string() + ", which no conversion made",
                    "remove it yourself, or name another folder");
  }
}

void CheckTarget(const std::string& target, bool replace, const std::vector<std::string>& sources) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(target, ignored))) return;
  if (!replace)
    throw FileError(target, "exists already", "name another folder, or replace it with ConvertOptions::replace");
  if (fs::is_symlink(target, ignored)) {
    throw FileError(target, "is a link, expected a folder that can be replaced", "name the folder that it leads to");
  }
  if (!fs::is_directory(target, ignored)) {
    throw FileError(target, "is not a folder, expected one that can be replaced",
                    "remove it yourself, or name another folder");
  }
  CheckHoldsNoSource(target, sources);
  CheckIsOurs(target, target);
}

// Without slashes and "/." at its end: "x/." cannot be renamed, and x can. A way through ".." is replaced by where the
// system finds it: it may lead through the folder that is moved.
std::string Resolved(std::string path) {
  while (path.size() > 1 && (path.ends_with('/') || path.ends_with("/."))) path.pop_back();
  const fs::path given = path, parent = given.parent_path();
  std::error_code error;
  const fs::path real = fs::canonical(parent, error);
  const bool climbs = std::find(parent.begin(), parent.end(), "..") != parent.end();
  return climbs && !error ? (real / given.filename()).string() : path;
}

}  // namespace

OutputFolder::OutputFolder(const std::string& target, bool replace, const std::vector<std::string>& sources)
    : target_(Resolved(target)), replace_(replace), sources_(sources) {
  CheckTarget(target_, replace_, sources_);
  removed_ = RemoveLeftovers(target_);
  path_ = MakeBeside(target_);
  mark_ = std::make_unique<UnfinishedMark>(path_);
}

OutputFolder::~OutputFolder() {
  if (kept_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

// Moves away what is to be replaced; empty: nothing. It may have changed, or appeared, while we wrote.
std::string OutputFolder::MoveAway() const {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(target_, error))) return "";
  CheckTarget(target_, replace_, sources_);
  std::string old = MakeBeside(target_);  // rename replaces an empty folder
  fs::rename(target_, old, error);
  if (error) {
    std::error_code ignored;
    fs::remove(old, ignored);
    throw FileError(target_, "cannot be replaced: " + error.message());
  }
  return old;
}

void OutputFolder::Keep() {
  std::error_code error;
  std::string old;
  try {
    old = MoveAway();
    if (!old.empty()) CheckIsOurs(old, target_);  // once more: nobody finds it under its name now
    fs::rename(path_, target_, error);            // fails where something but an empty folder has come there
    if (error) throw FileError(target_, "cannot be created: " + error.message());
  } catch (const FileError& e) {
    kept_ = true;  // it may have taken long to make
    mark_->Remove(path_);
    std::string hint = e.hint();
    if (!old.empty()) fs::rename(old, target_, error);
    if (!old.empty() && error) hint += (hint.empty() ? "" : "; ") + ("what it held is in " + old);
    throw UserError(e.what(), hint + (hint.empty() ? "" : "; ") + "what was made is in " + path_);
  }
  kept_ = true;
  mark_->Remove(target_);  // named as it was before, it is no leftover even where this is not reached
  if (old.empty()) return;
  const UnfinishedMark unfinished(old);  // a part of it may stay where this is killed
  fs::remove_all(old, error);
  if (error) {
    throw FileError(old, "what " + target_ + " held before cannot be removed: " + error.message(),
                    target_ + " is whole and new; remove the old one yourself");
  }
}

}  // namespace hydrant::base
