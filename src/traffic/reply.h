// SPDX-License-Identifier: Apache-2.0
// One streamed reply: what it said, and when its parts came.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "traffic/sse.h"

namespace hydrant::traffic {

enum class Failure : uint8_t {
  kNone,
  kConnect,    // no connection: refused, unreachable
  kTls,        // a connection, but no TLS over it: often a certificate that is not trusted
  kTimeout,    // the whole reply took longer than is waited
  kCut,        // the connection or the stream ended before the reply did
  kStatus,     // an HTTP status other than 200
  kMalformed,  // not what the API has
  kError,      // an error in place of an event
};

// Times are seconds since the run began.
struct Reply {
  int64_t index = 0;  // of the prompt, counted through the run
  int32_t turn = 0;   // of the prompt's turns
  double start = 0;   // when the request was due
  double first = 0;   // its first text; 0: it had none
  double last = 0;    // its last text
  double end = 0;
  Failure failure = Failure::kNone;
  int status = 0;                 // of HTTP; 0: none came
  std::string problem = {};       // one sentence, where it failed
  std::string text = {};          // all of it
  std::vector<double> gaps = {};  // seconds between events with text
  int64_t num_events = 0;         // with text
  int64_t num_tokens = 0;         // by the server's usage, else by events
  int64_t num_prompt_tokens = 0;
  bool has_usage = false;
  // Of Hydrant's servers: steps after the first token, and the tokens that they gave; no steps: not said.
  int64_t num_steps = 0;
  double num_step_tokens = 0;
};

// Reads the events of a stream into a reply.
class ReplyReader {
 public:
  explicit ReplyReader(Reply& reply) : reply_(reply) {}

  // `at`: when the bytes came. False: the reply has failed, and says why.
  bool Add(std::string_view bytes, double at);
  // Has the stream said that it is whole?
  bool is_whole() const { return is_whole_; }

 private:
  void Take(std::string_view data, double at);
  void TakeChoice(const base::JsonView& choice, double at);
  void TakeUsage(const base::JsonView& event);

  Reply& reply_;
  EventReader events_;
  bool is_whole_ = false;
};

// Of an error's body: its sentence where it has OpenAI's or a similar form, else its beginning.
std::string MessageOfError(std::string_view body);

}  // namespace hydrant::traffic
