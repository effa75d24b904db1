// SPDX-License-Identifier: Apache-2.0
// Whether heads were of any use: those of another base draft what it does not accept.
#pragma once

#include <string>

#include "hydrant/generation.h"

namespace hydrant::cli {

// What to warn of where hardly any drafted token was accepted, over 50 steps that drafted at least; else empty. Tokens
// that were looked up in the text are no heads' drafts and do not count.
std::string LowAcceptance(const GenerationResult& result);

}  // namespace hydrant::cli
