// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/errors.h"

#include <exception>
#include <new>

#include "base/free_memory.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/option_names.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

std::string Indented(const std::string& text) {
  std::string out;
  for (const char c : EscapedName(text, "\n")) {
    out += c;
    if (c == '\n') out += "       ";
  }
  return out;
}

// Where something small did not fit: what large things need is checked before.
void ReportNoMemory() {
  try {
    PrintError(ErrorText("memory has run out; now that it ends, " + base::FreeText(base::FreeNow()),
                         "weights and heads that 'hydrant convert' wrote once take the least"));
  } catch (...) {
    PrintError("error: more memory is needed than is free\n");
  }
}

}  // namespace

std::string ErrorText(const std::string& message, const std::string& hint) {
  std::string text = "error: " + Indented(WithFlags(message)) + "\n";
  if (!hint.empty()) text += "hint:  " + Indented(WithFlags(hint)) + "\n";
  return text;
}

int ReportException() {
  try {
    throw;
  } catch (const OutputClosed&) {
    return kExitOk;
  } catch (const Interruption&) {
    return InterruptedExit();
  } catch (const Stopped&) {
    return InterruptedExit();
  } catch (const UserError& e) {
    PrintError(ErrorText(e.what(), e.hint()));
    return kExitUser;
  } catch (const Error& e) {
    PrintError(ErrorText(e.what(), e.hint()));
  } catch (const std::bad_alloc&) {
    ReportNoMemory();
    return kExitUser;
  } catch (const std::exception& e) {
    PrintError(ErrorText(e.what(), "this is a bug in hydrant; please report it with the command that led here"));
  } catch (...) {
    PrintError(ErrorText("unknown failure", "this is a bug in hydrant; please report it"));
  }
  return kExitOurs;
}

}  // namespace hydrant::cli
