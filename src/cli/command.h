// SPDX-License-Identifier: Apache-2.0
// One sub-command: its name, its line in the overview, and what runs it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::cli {

struct Command {
  std::string_view name;
  std::string_view summary;
  // `args` are the words after the command's name. Returns the exit code; the user's mistakes are thrown as UserError.
  int (*run)(const std::vector<std::string>& args);
};

// "hydrant" without argv[0]: finds the command, runs it, turns exceptions into "error:" lines and exit codes.
int Main(const std::vector<std::string>& args);

// Dispatches to one of `commands` by args[0]; `program` ("hydrant tree") is for messages and the overview.
int Dispatch(const std::string& program, std::span<const Command> commands, const std::vector<std::string>& args,
             const std::string& overview);

}  // namespace hydrant::cli
