// SPDX-License-Identifier: Apache-2.0
#include "server/engine_loop.h"

#include <utility>

namespace hydrant::server {

EngineLoop::EngineLoop(Engine& engine, std::function<void()> after_step)
    : engine_(engine), after_step_(std::move(after_step)), thread_([this] { Run(); }) {}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

RequestId EngineLoop::Submit(const GenerationRequest& request, RequestCallbacks callbacks) {
  const RequestId id = engine_.Submit(request, std::move(callbacks));
  {
    const std::lock_guard lock(mutex_);
    has_work_ = true;
  }
  changed_.notify_all();
  return id;
}

void EngineLoop::Run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return has_work_ || ends_; });
      if (ends_) return;
      has_work_ = false;
    }
    bool goes_on = true;
    while (goes_on) {
      goes_on = engine_.Step();
      after_step_();
      const std::lock_guard lock(mutex_);
      if (ends_) return;
    }
  }
}

}  // namespace hydrant::server
