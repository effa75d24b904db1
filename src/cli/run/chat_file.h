// SPDX-License-Identifier: Apache-2.0
// Conversations in files: a JSON list of {role, content}, as `tokenize --chat` takes it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "hydrant/engine.h"

namespace hydrant::cli {

// At most one system message, first; then the user's and the assistant's in turn, the assistant's last.
// Throws FileError for anything else.
std::vector<ChatMessage> LoadChat(const std::string& path);

// Whole or not at all. Replaces a saved conversation, and no other file; returns whether it replaced one.
bool SaveChat(const std::string& path, std::span<const ChatMessage> messages);

// "~/x" is in the home folder.
std::string ExpandHome(const std::string& path);

}  // namespace hydrant::cli
