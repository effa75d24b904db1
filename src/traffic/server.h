// SPDX-License-Identifier: Apache-2.0
// The server that is measured, and what is known of it.
#pragma once

#include <string>

#include "traffic/url.h"

namespace hydrant::traffic {

struct Server {
  ServerUrl url;
  std::string api_key;       // sent as OpenAI's clients do; empty: none
  bool is_insecure = false;  // TLS: any certificate will do
  double timeout = 600;      // seconds, for a connection and then for each whole reply
};

// Asks /v1/models: the first model's name. Throws UserError where nobody listens there, and where the reply is not
// OpenAI's.
std::string FindModel(const Server& server);

}  // namespace hydrant::traffic
