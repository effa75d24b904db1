// SPDX-License-Identifier: Apache-2.0
#include "base/placeholder.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <vector>

#include "base/nearest.h"
#include "base/paths.h"
#include "hydrant/error.h"

namespace hydrant::base {
namespace {

namespace fs = std::filesystem;

// The second was the project's first name; both are in its specification.
constexpr std::array<std::string_view, 2> kPointerBegins = {"version https://git-lfs.github.com/spec/",
                                                            "version https://hawser.github.com/spec/"};

bool BeginsAsWebPage(std::string_view content) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return false;
  std::string begin(content.substr(first, 14));
  std::transform(begin.begin(), begin.end(), begin.begin(), [](unsigned char c) { return std::tolower(c); });
  return begin.starts_with("<!doctype html") || begin.starts_with("<html");
}

bool IsNamePart(std::string_view part) {
  constexpr std::array<std::string_view, 9> kFileEnds = {".json", ".safetensors", ".model", ".bin",  ".pt",
                                                         ".pth",  ".gguf",        ".txt",   ".jinja"};
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  return !part.empty() && part.front() != '.' && std::all_of(part.begin(), part.end(), allowed) &&
         std::none_of(kFileEnds.begin(), kFileEnds.end(), [&](std::string_view end) { return part.ends_with(end); });
}

// "org/name" of a name or an address of the hub; empty where it is neither.
std::string HubId(std::string_view path) {
  bool address = false;
  for (const std::string_view begin :
       {"https://huggingface.co/", "http://huggingface.co/", "huggingface.co/", "https://hf.co/", "hf.co/", "hf://"}) {
    if (!path.starts_with(begin)) continue;
    path.remove_prefix(begin.size());
    address = true;
    break;
  }
  while (path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.find('/');
  if (slash == std::string_view::npos) return "";
  std::string_view name = path.substr(slash + 1);
  const size_t more = name.find('/');
  if (more != std::string_view::npos && !address) return "";
  name = name.substr(0, more);
  if (!IsNamePart(path.substr(0, slash)) || !IsNamePart(name)) return "";
  // "models/tale-14": a folder of that name is here, and the rest is mistyped.
  if (!address && IsFolder(fs::path(path.substr(0, slash)))) return "";
  return std::string(path.substr(0, slash + 1)) + std::string(name);
}

std::string NearestBeside(const std::string& path) {
  fs::path whole(path);
  if (!whole.has_filename()) whole = whole.parent_path();
  const fs::path parent = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  constexpr size_t kMost = 10'000;  // names that are looked at
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end && names.size() < kMost;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string nearest = Nearest(whole.filename().string(), views);
  if (nearest.empty()) return "";
  return "did you mean " + (whole.has_parent_path() ? (parent / nearest).string() : nearest) + "?";
}

}  // namespace

void RefusePlaceholder(std::string_view content, const std::string& path) {
  if (std::any_of(kPointerBegins.begin(), kPointerBegins.end(),
                  [&](std::string_view begin) { return content.starts_with(begin); })) {
    throw FileError(path, "is a Git LFS pointer, not the file that it stands for",
                    "run `git lfs pull` in its folder, or fetch the model again: hf download ORG/NAME --local-dir DIR");
  }
  if (BeginsAsWebPage(content)) {
    throw FileError(path, "is a web page, saved in place of the file", "fetch it again: its download brought an error");
  }
}

std::string DownloadCommand(const std::string& hub_id) {
  return "hf download " + hub_id + " --local-dir " + hub_id.substr(hub_id.rfind('/') + 1);
}

std::string MissingPathHint(const std::string& path) {
  const std::string id = HubId(path);
  if (id.empty()) return NearestBeside(path);
  return "models of the Hugging Face hub are fetched first: " + DownloadCommand(id) + ", then name the folder " +
         id.substr(id.rfind('/') + 1);
}

}  // namespace hydrant::base
