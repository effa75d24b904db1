// SPDX-License-Identifier: Apache-2.0
// What other programs (llama.cpp, vLLM, Hugging Face's tools, the authors' scripts) call our flags and commands.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hydrant::cli {

// What to do instead of the unknown `flag`, in a command that has `flags`; empty where nobody is known to call it so.
// Capitals and '_' for '-' make no difference beyond one letter, nor does a number that follows one letter ("-n256").
std::string ForeignFlagHint(std::string_view flag, std::span<const std::string_view> flags);

// The same for the unknown command `word` of the program itself.
std::string ForeignCommandHint(std::string_view word);

}  // namespace hydrant::cli
