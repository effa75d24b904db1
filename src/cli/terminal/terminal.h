// SPDX-License-Identifier: Apache-2.0
// What depends on who is on the other side: checked output, colours, Ctrl-C.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::cli {

// The reader of our stdout went away (a closed pipe): the program ends quietly.
struct OutputClosed {};

// Ctrl-C or another signal ended work that leaves nothing behind: exit code InterruptedExit().
struct Interruption {};

// Writes to stdout and flushes. Throws OutputClosed, or UserError where the device is full.
void Print(std::string_view text);
// The same for stderr, where failures are ignored: there is nowhere left to report them.
void PrintError(std::string_view text);
// "warning: TEXT\n" on stderr for each.
void PrintWarnings(const std::vector<std::string>& warnings);

bool StdinIsTerminal();
bool StdoutIsTerminal();
bool StderrIsTerminal();

// From now on Ctrl-C, SIGTERM and SIGHUP only set a flag; another two seconds later or more ends the program as usual.
// A closed pipe or a file that grows too large becomes an error of write() instead of a signal. Where a mapped file has
// become shorter, a sentence names it and the program ends as by a user's mistake.
void InstallSignalHandlers();
// Signals that end a command wait from the one call to the other: until who shall have them is there.
void HoldSignals();
void ReleaseSignals();
bool Interrupted();
// What Interrupted() says, for the pools and engines that end by it.
const std::atomic<bool>* StopFlag();
// The exit code of a program that one of them has ended: 130 for Ctrl-C.
int InterruptedExit();
// Forgets Ctrl-C, not the others.
void ClearInterrupt();

// `text` on a background that tells the depth of the draft (1 = first); black on pale colours can be read on light and
// dark terminals alike. Depth 0, a token of the base model's own, stays plain. Colour stops before a line end.
std::string ColoredByDepth(std::string_view text, int32_t depth);
// "depth 1 2 3 4" in the colours themselves.
std::string ColorLegend(int32_t max_depth);

}  // namespace hydrant::cli
